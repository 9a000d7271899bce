//! The ensemble, the path, and the login.

use crate::backend::Options;
use crate::backend::ZkLayout;
use crate::net::address::{HostPort, after, host_and_port, in_any_order};
use crate::net::credentials::{Secret, Tls};
use crate::net::tls::stays_here_at;

const PORT: u16 = 2181;

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
        if let Some(prefix) = &options.prefix {
            check_prefix(prefix)?;
        }
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
        let open = |server: &&String| !stays_here_at(server);
        let is_said = self.user.is_some() && self.tls.is_none();
        self.servers.iter().find(open).filter(|_| is_said).map(String::as_str)
    }

    /// Returns a text that is equal for configurations with the same queues.
    pub fn identity(&self) -> String {
        let prefix = self.prefix.as_ref().map_or_else(String::new, |p| format!("?{p}"));
        let layout = if self.layout == ZkLayout::Kazoo { "#kazoo" } else { "" };
        format!("zk://{}{}{prefix}{layout}", in_any_order(&self.servers), self.chroot)
    }
}

/// Returns the servers and the chroot of all endpoints together. A chroot is at the end of an endpoint; several must
/// agree.
fn endpoints(given: &[String]) -> Result<(Vec<String>, String), String> {
    let mut servers = Vec::new();
    let mut chroot: Option<String> = None;
    for endpoint in given {
        let rest = after(endpoint, "zk://").unwrap_or(endpoint);
        let (hosts, path) = rest.split_once('/').map_or((rest, ""), |(hosts, path)| (hosts, path));
        if !path.is_empty() {
            let path = check_path(&format!("/{path}"))?;
            match &chroot {
                Some(other) if *other != path => {
                    return Err(format!("the endpoints have different chroots, {other} and {path}"));
                }
                _ => chroot = Some(path),
            }
        }
        for host in hosts.split(',').map(str::trim).filter(|host| !host.is_empty()) {
            servers.push(server(host)?);
        }
    }
    if servers.is_empty() {
        if !given.is_empty() {
            return Err("the address of zk names no server; write zk://HOST:PORT".to_owned());
        }
        servers.push(format!("localhost:{PORT}"));
    }
    Ok((servers, chroot.unwrap_or_default()))
}

/// Parses `HOST`, `HOST:PORT` or `[IPV6]:PORT`, and returns `HOST:PORT`.
fn server(text: &str) -> Result<String, String> {
    if text.contains('@') {
        return Err("an address of zk has no user in it; use --user and a password file".to_owned());
    }
    let bad = || format!("{text:?} is not a server; write HOST:PORT");
    let (host, port) = host_and_port(text).map_err(|_| bad())?;
    let port = port.unwrap_or(PORT);
    let is_odd = |c: char| c.is_whitespace() || c.is_control() || c == '/';
    if host.is_empty() || host.contains(is_odd) || port == 0 {
        return Err(bad());
    }
    Ok(HostPort { host: host.to_owned(), port }.to_string())
}

fn check_path(path: &str) -> Result<String, String> {
    let path = path.trim_end_matches('/');
    super::paths::check(path).map_err(|why| format!("the chroot {path:?} is not a path: {why}"))?;
    Ok(path.to_owned())
}

/// Checks only the complete parts of the prefix, because the name that follows is not known yet.
fn check_prefix(prefix: &str) -> Result<(), String> {
    let whole = prefix.rfind('/').map_or("", |at| &prefix[..at]);
    let whole =
        if whole.is_empty() || whole.starts_with('/') { whole.to_owned() } else { format!("/{whole}") };
    if whole.is_empty() {
        return Ok(());
    }
    super::paths::check(&whole).map_err(|why| format!("the prefix {prefix:?} is not a path: {why}"))
}

fn user(options: &Options) -> Result<Option<(String, Secret)>, String> {
    match (&options.user, &options.password) {
        (None, None) => Ok(None),
        (Some(user), Some(_)) if user.is_empty() || user.contains(':') => {
            Err("the name of a zk user cannot contain a colon".to_owned())
        }
        (Some(user), Some(password)) => Ok(Some((user.clone(), password.clone()))),
        (Some(_), None) => Err("zk wants a password for --user; use --password-file".to_owned()),
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

#[cfg(test)]
mod tests {
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
            (&["h:x"], "is not a server"),
            (&["h:"], "is not a server"),
            (&["h:0"], "is not a server"),
            (&["[::1"], "is not a server"),
            (&["u:secret@h:1"], "no user in it"),
            (&["h:1/a", "i:1/b"], "different chroots"),
            (&["h:1/a//b"], "is not a path"),
            (&["h:1/../b"], "is not a path"),
        ] {
            assert_refused(parsed(given), part);
        }
    }

    #[test]
    fn incomplete_option_pair_is_refused() {
        let base = Options::default();
        let password = Some(Secret::new("secret"));
        for (options, part) in [
            (Options { user: Some("u".into()), ..base.clone() }, "wants a password"),
            (Options { password: password.clone(), ..base.clone() }, "wants --user"),
            (Options { user: Some("u:v".into()), password, ..base.clone() }, "cannot contain a colon"),
            (
                Options { tls: Tls { server_name: Some("n".into()), ..Tls::default() }, ..base.clone() },
                "--tls-server-name does not apply",
            ),
            (Options { prefix: Some("/a//".into()), ..base }, "the prefix"),
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
}
