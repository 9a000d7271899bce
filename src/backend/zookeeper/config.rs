//! The ensemble, the login, and the paths of queues.

use crate::backend::{Options, ZkLayout};
use crate::lock::{ErrorKind, LockName};
use crate::net::address::{HostPort, after, hosts_and_ports, in_any_order, no_password_for};
use crate::net::credentials::{Secret, Tls};
use crate::net::fault::{Fault, FaultResult};
use crate::net::tls::stays_here_at;
use crate::queue::store::Key;

const PORT: u16 = 2181;
/// The prefix of names without `--prefix`.
const PREFIX: &str = "/dlock/";
/// The beginning of the names of nodes that are neither queues nor entries. No encoded name begins so, and raw names
/// that do are refused.
const ASIDE: &str = "~dlock";

/// The parsed options of `--backend zk`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ZkConfig {
    /// The servers, as `HOST:PORT`.
    pub servers: Vec<String>,
    /// The path that contains everything: empty, or with a leading and no trailing slash.
    pub chroot: String,
    /// The prefix of names; without one, names are encoded under `/dlock/`.
    pub prefix: Option<String>,
    /// The naming scheme of nodes.
    pub layout: ZkLayout,
    /// The user; with one, nodes belong to this user alone.
    pub user: Option<(String, Secret)>,
    /// The settings of encryption, if any was given.
    pub tls: Option<Tls>,
}

impl ZkConfig {
    /// Parses the connection options. An error is one line for display.
    pub fn parse(options: &Options) -> Result<Self, String> {
        let (servers, chroot) = endpoints(&options.endpoints)?;
        Ok(Self {
            servers,
            chroot,
            prefix: options.prefix.clone(),
            layout: options.zk_layout.unwrap_or_default(),
            user: user(options)?,
            tls: tls(&options.tls)?,
        })
    }

    /// Returns the servers as one text, for messages.
    pub fn address(&self) -> String {
        format!("{}{}", self.servers.join(","), self.chroot)
    }

    /// Returns a server on another host to which the password is sent unencrypted, if there is one.
    pub(super) fn open_password(&self) -> Option<&str> {
        let is_said = self.user.is_some() && self.tls.is_none();
        self.servers.iter().find(|server| is_said && !stays_here_at(server)).map(String::as_str)
    }

    /// Returns a text that is equal for configurations with the same queues.
    pub fn identity(&self) -> String {
        let prefix = self.prefix.as_ref().map_or_else(String::new, |p| format!("?{p}"));
        let layout = if self.layout == ZkLayout::Kazoo { "#kazoo" } else { "" };
        format!("zk://{}{}{prefix}{layout}", in_any_order(&self.servers), self.chroot)
    }

    /// Returns the path of the queue of `name`. The client library and the servers refuse an invalid one.
    ///
    /// Errors: why it cannot have one, which is a usage error.
    pub(super) fn queue(&self, name: &LockName) -> FaultResult<String> {
        let path = match &self.prefix {
            None => format!("{PREFIX}{}", name.percent_encoded()),
            Some(prefix) => absolute(&format!("{prefix}{name}")),
        };
        let is_servers = self.chroot.is_empty() && path.split('/').nth(1) == Some("zookeeper");
        if is_servers || path.split('/').any(is_aside) {
            return Err(Fault::new(ErrorKind::Invalid, format!("{path} is not for locks")));
        }
        Ok(format!("{}{path}", self.chroot))
    }

    /// Returns the paths of the nodes of the entry with `key` in the queue of `name`. The first one has the record.
    pub(super) fn nodes(&self, name: &LockName, key: &Key) -> FaultResult<Vec<String>> {
        let queue = self.queue(name)?;
        Ok(key.text.split('/').map(|node| format!("{queue}/{node}")).collect())
    }

    /// Returns the directory of all queues, without a trailing slash; empty means the root.
    pub(super) fn folder(&self) -> String {
        let prefix = absolute(self.prefix.as_deref().unwrap_or(PREFIX));
        let folder = prefix.rfind('/').map_or("", |at| &prefix[..at]);
        format!("{}{folder}", self.chroot)
    }

    /// Returns the name of the queue at `path`; `None` if it is not a queue of this configuration.
    pub(super) fn name(&self, path: &str) -> Option<LockName> {
        let path = path.strip_prefix(self.chroot.as_str())?;
        match &self.prefix {
            None => LockName::from_percent_encoded(path.strip_prefix(PREFIX)?),
            Some(prefix) => LockName::new(path.strip_prefix(absolute(prefix).as_str())?).ok(),
        }
    }
}

/// Returns the servers and the chroot of all endpoints together. A chroot is at the end of an endpoint; several must
/// agree.
fn endpoints(given: &[String]) -> Result<(Vec<String>, String), String> {
    let (mut servers, mut chroot) = (Vec::new(), String::new());
    for endpoint in given {
        let rest = after(endpoint, "zk://").unwrap_or(endpoint);
        let (hosts, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        if hosts.contains('@') {
            return Err("an address of zk has no user in it; use --user and a password file".to_owned());
        }
        for (host, port) in hosts_and_ports(hosts)? {
            servers.push(HostPort { host, port: port.unwrap_or(PORT) }.to_string());
        }
        let path = path.trim_end_matches('/');
        if !path.is_empty() && !chroot.is_empty() && path != chroot {
            return Err(format!("the endpoints have different chroots, {chroot} and {path}"));
        }
        if !path.is_empty() {
            path.clone_into(&mut chroot);
        }
    }
    if servers.is_empty() {
        if !given.is_empty() {
            return Err("the address of zk names no server; write zk://HOST:PORT".to_owned());
        }
        servers.push(format!("localhost:{PORT}"));
    }
    Ok((servers, chroot))
}

fn user(options: &Options) -> Result<Option<(String, Secret)>, String> {
    match (&options.user, &options.password) {
        (None, None) => Ok(None),
        (Some(user), Some(_)) if user.is_empty() || user.contains(':') => {
            Err("the name of a zk user cannot contain a colon".to_owned())
        }
        (Some(user), Some(password)) => Ok(Some((user.clone(), password.clone()))),
        (Some(user), None) => Err(no_password_for(user)),
        (None, Some(_)) => Err("zk wants --user for the password".to_owned()),
    }
}

fn tls(tls: &Tls) -> Result<Option<Tls>, String> {
    if !tls.is_given() {
        return Ok(None);
    }
    if tls.server_name.is_some() {
        return Err(
            "zk checks certificates for the name in the address; --tls-server-name does not apply".to_owned()
        );
    }
    if tls.authority.is_none() {
        return Err("zk does not use the system trust store; pass --cacert".to_owned());
    }
    Ok(Some(tls.clone()))
}

/// Returns the path of a slot that is taken in the queue at `queue`. It is in the queue, so that its directory exists, and
/// no client takes it for a contender.
pub(super) fn slot(queue: &str, number: u32) -> String {
    format!("{queue}/{ASIDE}{number}")
}

/// Returns the path of the last success under the queue at `queue`. It is next to the queue, so that its directory exists.
pub(super) fn success(queue: &str) -> String {
    let (folder, name) = queue.rsplit_once('/').unwrap_or_default();
    format!("{folder}/{ASIDE}.{name}")
}

/// Returns whether the node `name` is neither a queue nor an entry, but a slot or a success.
pub(super) fn is_aside(name: &str) -> bool {
    name.starts_with(ASIDE)
}

fn absolute(path: &str) -> String {
    if path.starts_with('/') { path.to_owned() } else { format!("/{path}") }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::backend::assert_refused;
    use crate::net::credentials::Pem;

    fn parsed(endpoints: &[&str]) -> Result<(String, String), String> {
        let config = ZkConfig::parse(&Options::at(endpoints))?;
        Ok((config.servers.join(","), config.chroot))
    }

    #[test]
    fn addresses_as_documented() {
        for (given, servers, chroot) in [
            (&[] as &[&str], "localhost:2181", ""),
            (&["zk://h:1"], "h:1", ""),
            (&["h"], "h:2181", ""),
            (&["ZK://h:1,i:2/a/b"], "h:1,i:2", "/a/b"),
            (&["h:1", "i:2/a/"], "h:1,i:2", "/a"),
            (&["zk://[::1]:7,[::2]"], "[::1]:7,[::2]:2181", ""),
        ] {
            assert_eq!(parsed(given), Ok((servers.to_owned(), chroot.to_owned())), "{given:?}");
        }
    }

    #[test]
    fn invalid_server_list_is_refused_with_reason() {
        for (given, part) in [
            (&["zk://"] as &[&str], "names no server"),
            (&["h:x"], "is not HOST:PORT"),
            (&["h:"], "is not HOST:PORT"),
            (&["[::1"], "is not HOST:PORT"),
            (&["u:secret@h:1"], "no user in it"),
            (&["h:1/a", "i:1/b"], "different chroots"),
        ] {
            assert_refused(parsed(given), part);
        }
    }

    #[test]
    fn incomplete_option_pair_is_refused() {
        let base = Options::default();
        let password = Some(Secret::new("secret"));
        for (options, part) in [
            (Options { user: Some("u".into()), ..base.clone() }, "no password for the user u"),
            (Options { password: password.clone(), ..base.clone() }, "wants --user"),
            (Options { user: Some("u:v".into()), password, ..base.clone() }, "cannot contain a colon"),
            (
                Options { tls: Tls { server_name: Some("n".into()), ..Tls::default() }, ..base },
                "--tls-server-name does not apply",
            ),
        ] {
            assert_refused(ZkConfig::parse(&options), part);
        }
        let authority = Some(Pem::new(b"x".to_vec()));
        let tls = Tls { authority, ..Tls::default() };
        assert!(ZkConfig::parse(&Options { tls, ..Options::default() }).expect("parses").tls.is_some());
    }

    #[test]
    fn the_order_of_servers_makes_no_other_service() {
        let identity = |at: &[&str]| ZkConfig::parse(&Options::at(at)).expect("parses").identity();
        assert_eq!(identity(&["a:1,b:2/c"]), identity(&["b:2,a:1/c"]));
        assert_ne!(identity(&["a:1"]), identity(&["a:1/c"]));
    }

    fn name(text: &str) -> LockName {
        LockName::new(text).expect("valid")
    }

    fn at(chroot: &str, prefix: Option<&str>) -> ZkConfig {
        let options = Options { prefix: prefix.map(str::to_owned), ..Options::at(&[&format!("h{chroot}")]) };
        ZkConfig::parse(&options).expect("parses")
    }

    #[test]
    fn lines_stand_where_documented() {
        for (chroot, prefix, text, path, aside) in [
            ("", None, "deploy", "/dlock/deploy", "/dlock/~dlock.deploy"),
            ("/c", None, "a/b", "/c/dlock/a%2Fb", "/c/dlock/~dlock.a%2Fb"),
            ("", Some(""), "locks/a", "/locks/a", "/locks/~dlock.a"),
            ("", Some(""), "/locks/a", "/locks/a", "/locks/~dlock.a"),
            ("/c", Some("/x/y-"), "a", "/c/x/y-a", "/c/x/~dlock.y-a"),
            ("", Some("x/"), "a b", "/x/a b", "/x/~dlock.a b"),
        ] {
            let config = at(chroot, prefix);
            assert_eq!(config.queue(&name(text)).expect("a path"), path, "{prefix:?} {text}");
            assert_eq!(success(path), aside, "{prefix:?} {text}");
            let back = config.name(path).expect("a name");
            assert_eq!(config.queue(&back).expect("a path"), path);
        }
    }

    #[test]
    fn path_of_other_data_is_refused() {
        let raw = at("", Some(""));
        for text in ["~dlock/x", "x/~dlock.a", "zookeeper/x"] {
            assert!(raw.queue(&name(text)).is_err(), "{text:?}");
            assert!(at("", None).queue(&name(text)).is_ok(), "{text:?}");
        }
        assert!(at("/c", Some("")).queue(&name("zookeeper")).is_ok());
    }

    proptest! {
        #[test]
        fn every_name_has_a_queue_and_comes_back(text in "[^\\p{Cc}]{1,30}") {
            if let Ok(name) = LockName::new(text) {
                let config = at("", None);
                let path = config.queue(&name).expect("a path");
                prop_assert_eq!(config.name(&path), Some(name));
            }
        }
    }
}
