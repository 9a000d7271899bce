//! A service in trouble, and how to ask it.

use std::any::Any;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::servers::{self, etcd, mariadb, memcached, postgres, redis, zookeeper};

/// A service.
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

/// Each of them.
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
    /// What tests know of it, if it is a service.
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

    /// As `--backend` calls it.
    pub(crate) fn backend(self) -> &'static str {
        self.known().map_or("file", |known| known.backend)
    }

    /// Why there is none on this machine.
    pub(crate) fn missing(self) -> Option<String> {
        (self.known()?.missing)()
    }

    /// The address of `ports`, of which all but a Redlock have one.
    pub(crate) fn at(self, ports: &[u16]) -> String {
        self.known().expect("a directory has no port").at(ports).endpoint
    }

    /// How many servers there are to an address.
    pub(crate) fn servers(self) -> usize {
        if self == Self::Redlock { 3 } else { 1 }
    }
}

/// Whether a cause can be had on a service.
pub(crate) enum Staged {
    At(Scene),
    /// It cannot, and why.
    Never(&'static str),
}

/// A service in trouble.
pub(crate) struct Scene {
    pub(crate) endpoint: String,
    variables: Vec<(String, String)>,
    /// As whom dlock runs, if not as whoever runs the tests.
    user: Option<u32>,
    /// Where this service may say something else than the others: all that it says, and its code.
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

    /// With the certificates of these names in `folder`.
    pub(crate) fn believing(self, folder: &Path, authority: &str) -> Self {
        let file: PathBuf = folder.join(authority);
        self.with("DLOCK_CACERT", &file.display().to_string())
    }

    pub(crate) fn login(self, user: &str, password: &str) -> Self {
        self.with("DLOCK_USER", user).with("DLOCK_PASSWORD", password)
    }

    /// Run by the user of that number.
    pub(crate) fn by(self, user: u32) -> Self {
        Self { user: Some(user), ..self }
    }

    /// The same servers by another address.
    pub(crate) fn but_at(self, endpoint: String) -> Self {
        Self { endpoint, ..self }
    }

    /// It says this instead of what the others do, with its own code: the contract has it so.
    pub(crate) fn says(self, code: i32, words: &[&'static str]) -> Self {
        Self { code: Some(code), words: words.to_vec(), ..self }
    }

    pub(crate) fn staged(self) -> Staged {
        Staged::At(self)
    }

    /// `command` as this scene wants it.
    pub(crate) fn dress(&self, command: Command) -> Command {
        let mut command = match self.user {
            None => command,
            Some(user) => as_user(&command, user),
        };
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }
}

/// The same command, run by another user.
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
