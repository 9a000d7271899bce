//! A service in trouble, and the way to ask it.

use std::any::Any;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::servers::{self, etcd, mariadb, memcached, postgres, redis, zookeeper};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    File,
    Etcd,
    Redis,
    Redlock,
    Zk,
    Mysql,
    Postgres,
    Memcached,
}

pub(crate) const ALL: [Kind; 8] = [
    Kind::File,
    Kind::Etcd,
    Kind::Redis,
    Kind::Redlock,
    Kind::Zk,
    Kind::Mysql,
    Kind::Postgres,
    Kind::Memcached,
];

impl Kind {
    /// Returns the description of the service. A lock directory has none.
    fn known(self) -> Option<&'static servers::Kind> {
        Some(match self {
            Self::File => return None,
            Self::Etcd => &etcd::KIND,
            Self::Redis => &redis::KIND,
            Self::Redlock => &redis::REDLOCK,
            Self::Zk => &zookeeper::KIND,
            Self::Mysql => &mariadb::KIND,
            Self::Postgres => &postgres::KIND,
            Self::Memcached => &memcached::KIND,
        })
    }

    pub(crate) fn name(self) -> &'static str {
        self.known().map_or("file", |known| known.name)
    }

    /// Returns its name for `--backend`.
    pub(crate) fn backend(self) -> &'static str {
        self.known().map_or("file", |known| known.backend)
    }

    /// Returns the reason why this machine does not have it.
    pub(crate) fn missing(self) -> Option<String> {
        (self.known()?.missing)()
    }

    /// Returns the address of `ports`. Every service but Redlock has one port.
    pub(crate) fn at(self, ports: &[u16]) -> String {
        self.known().expect("a directory has no port").at(ports).endpoint
    }

    /// Returns the number of servers in an address.
    pub(crate) fn servers(self) -> usize {
        if self == Self::Redlock { 3 } else { 1 }
    }
}

/// Whether a cause is possible on a service.
pub(crate) enum Staged {
    At(Scene),
    /// It is not, for this reason.
    Never(&'static str),
}

/// A service in trouble.
pub(crate) struct Scene {
    pub(crate) endpoint: String,
    variables: Vec<(String, String)>,
    /// The user that runs dlock, if it is not the user of the tests.
    user: Option<u32>,
    /// The message and the exit status of this service, if they differ from those of the others.
    pub(crate) words: Vec<&'static str>,
    pub(crate) code: Option<i32>,
    /// The servers.
    _kept: Box<dyn Any>,
}

impl Scene {
    pub(crate) fn at(endpoint: impl Into<String>, kept: impl Any) -> Self {
        Self {
            endpoint: endpoint.into(),
            variables: Vec::new(),
            user: None,
            words: Vec::new(),
            code: None,
            _kept: Box::new(kept),
        }
    }

    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sets the authority in `folder` that dlock trusts.
    pub(crate) fn believing(self, folder: &Path, authority: &str) -> Self {
        let file: PathBuf = folder.join(authority);
        self.with("DLOCK_CACERT", &file.display().to_string())
    }

    pub(crate) fn login(self, user: &str, password: &str) -> Self {
        self.with("DLOCK_USER", user).with("DLOCK_PASSWORD", password)
    }

    /// Runs dlock as this user.
    pub(crate) fn by(self, user: u32) -> Self {
        Self { user: Some(user), ..self }
    }

    /// Sets another address of the same servers.
    pub(crate) fn but_at(self, endpoint: String) -> Self {
        Self { endpoint, ..self }
    }

    /// Expects another message and exit status than those of the other services. The contract allows the difference.
    pub(crate) fn says(self, code: i32, words: &[&'static str]) -> Self {
        Self { code: Some(code), words: words.to_vec(), ..self }
    }

    pub(crate) fn staged(self) -> Staged {
        Staged::At(self)
    }

    /// Returns `command` with the user and the variables of this scene.
    pub(crate) fn dress(&self, command: Command) -> Command {
        let mut command = match self.user {
            None => command,
            Some(user) => as_user(&command, user),
        };
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }
}

/// Returns the same command, run by another user.
fn as_user(command: &Command, user: u32) -> Command {
    let number = user.to_string();
    let mut other = Command::new("setpriv");
    other.args(["--reuid", &number, "--regid", &number, "--clear-groups"]);
    other.arg(command.get_program()).args(command.get_args());
    other.env_clear();
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            other.env(name, value);
        }
    }
    other.current_dir("/").stdin(std::process::Stdio::null());
    other
}
