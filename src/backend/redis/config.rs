//! Parsing addresses.

use std::path::PathBuf;

use crate::backend::Options;
use crate::net::address::{
    self, HostPort, decoded, host_and_port, in_any_order, no_address, no_password_for, without_login,
};
use crate::net::credentials::{Secret, Tls};
use crate::net::tls::stays_here;

/// The default port of a server.
const SERVER_PORT: u16 = 6379;
/// The default port of a sentinel.
const SENTINEL_PORT: u16 = 26_379;

/// The kind of the hosts in an address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Topology {
    /// One server.
    Server,
    /// None: the server is at this socket of this host.
    Socket(PathBuf),
    /// Sentinels, each of which knows the present master of this name.
    Sentinel(String),
    /// Nodes of a cluster, each of which knows the others.
    Cluster,
}

/// The address of a Redis, and the login.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RedisConfig {
    /// The places, any of which is asked.
    pub hosts: Vec<HostPort>,
    /// Their kind.
    pub topology: Topology,
    /// The number of the database.
    pub database: u32,
    /// The user; without one the password is the default user's.
    pub user: Option<String>,
    /// The password.
    pub password: Option<Secret>,
    /// The settings of encryption, if the connection is encrypted.
    pub tls: Option<Tls>,
    /// `--prefix`.
    pub prefix: Option<String>,
}

impl RedisConfig {
    /// Parses the connection options. An error is one line without secrets.
    pub fn parse(options: &Options) -> Result<Self, String> {
        let endpoint = match options.endpoints.as_slice() {
            [] => "redis://localhost",
            [one] => one.as_str(),
            _ => return Err(SEVERAL.to_owned()),
        };
        let mut config = Self {
            hosts: Vec::new(),
            topology: Topology::Server,
            database: 0,
            user: options.user.clone(),
            password: options.password.clone(),
            tls: options.tls.is_given().then(|| options.tls.clone()),
            prefix: options.prefix.clone(),
        };
        let database = match address::after(endpoint, "unix:") {
            Some(rest) => config.socket(rest)?,
            None => config.servers(endpoint, &options.tls)?,
        };
        let wrong =
            |_| format!("{database:?} is not the number of a database; write redis://HOST:PORT/NUMBER");
        config.database = if database.is_empty() { 0 } else { database.parse().map_err(wrong)? };
        if config.is_cluster() && config.database != 0 {
            return Err("a cluster has only database 0; leave out the number".to_owned());
        }
        match &config.user {
            Some(user) if config.password.is_none() => Err(no_password_for(user)),
            _ => Ok(config),
        }
    }

    /// Takes the path of a socket. Returns the text of the database.
    fn socket<'a>(&mut self, rest: &'a str) -> Result<&'a str, String> {
        if self.tls.is_some() {
            return Err("a socket of this host is never encrypted; leave out the TLS options".to_owned());
        }
        let (path, database) = rest.split_once("?db=").unwrap_or((rest, ""));
        let path = path.strip_prefix("//").unwrap_or(path);
        if path.is_empty() {
            return Err("unix: needs the path of a socket; write unix:/run/redis/redis.sock".to_owned());
        }
        // A relative path would fail in the keeper, which changes its working directory and reconnects later.
        self.topology = Topology::Socket(std::path::absolute(path).unwrap_or_else(|_| PathBuf::from(path)));
        Ok(database)
    }

    /// Takes hosts and a login, which the options override. Returns the text of the database.
    fn servers<'a>(&mut self, endpoint: &'a str, tls: &Tls) -> Result<&'a str, String> {
        let after = |scheme: &str| address::after(endpoint, scheme);
        let [sentinel, cluster, encrypted] =
            ["redis+sentinel://", "redis+cluster://", "rediss://"].map(after);
        let rest = sentinel.or(cluster).or(encrypted).or(after("redis://")).unwrap_or(endpoint);
        if encrypted.is_some() {
            self.tls = Some(tls.clone());
        } else if self.tls.is_some() && sentinel.or(cluster).is_none() {
            return Err(format!(
                "redis://{} is not encrypted, and encryption was asked for; write rediss://",
                without_login(rest)
            ));
        }
        let (login, rest) = address::login(rest)?;
        self.user = self.user.take().or(login.user);
        self.password = self.password.take().or(login.password);
        let (hosts, mut database) = rest.split_once('/').unwrap_or((rest, ""));
        if cluster.is_some() {
            self.topology = Topology::Cluster;
        } else if sentinel.is_some() {
            let master;
            (master, database) = database.split_once('/').unwrap_or((database, ""));
            if master.is_empty() {
                return Err("redis+sentinel:// needs the master's name; write \
                            redis+sentinel://HOST:PORT,.../MASTER"
                    .to_owned());
            }
            self.topology = Topology::Sentinel(decoded(master)?);
        } else if hosts.contains(',') {
            return Err(SEVERAL.to_owned());
        }
        let hosts = if hosts.is_empty() { "localhost" } else { hosts };
        let port = if sentinel.is_some() { SENTINEL_PORT } else { SERVER_PORT };
        self.hosts = hosts.split(',').map(|host| host_of(host.trim(), port)).collect::<Result<_, _>>()?;
        Ok(database)
    }

    /// Returns whether the keys are distributed over nodes.
    pub fn is_cluster(&self) -> bool {
        self.topology == Topology::Cluster
    }

    /// Returns whether another server may take over: by sentinels, or in a cluster.
    pub(super) fn fails_over(&self) -> bool {
        matches!(self.topology, Topology::Sentinel(_) | Topology::Cluster)
    }

    /// Returns the same service by this host alone.
    pub(super) fn at(&self, host: HostPort) -> Self {
        Self { hosts: vec![host], ..self.clone() }
    }

    /// Returns a place on another host to which the password is sent unencrypted, if there is one.
    pub(super) fn open_password(&self) -> Option<String> {
        self.password.as_ref().filter(|_| self.tls.is_none())?;
        self.hosts.iter().find(|place| !stays_here(&place.host)).map(ToString::to_string)
    }

    /// Returns the service as text without secrets, equal for equal services.
    pub fn identity(&self) -> String {
        let scheme = if self.tls.is_some() { "rediss" } else { "redis" };
        let (hosts, database) = (in_any_order(&self.hosts), self.database);
        match &self.topology {
            Topology::Server => format!("{scheme}://{hosts}/{database}"),
            Topology::Socket(path) => format!("unix:{}?db={database}", path.display()),
            Topology::Sentinel(master) => format!("{scheme}+sentinel://{hosts}/{master}/{database}"),
            Topology::Cluster => format!("{scheme}+cluster://{hosts}"),
        }
    }
}

const SEVERAL: &str =
    "one address cannot name several Redis servers (Redlock); pass each as its own endpoint";

fn host_of(text: &str, port: u16) -> Result<HostPort, String> {
    match host_and_port(text)? {
        ("", _) => Err(no_address(text)),
        (host, own) => Ok(HostPort { host: host.to_owned(), port: own.unwrap_or(port) }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::assert_refused;

    fn parse(endpoint: &str) -> Result<RedisConfig, String> {
        RedisConfig::parse(&Options::at(&[endpoint]))
    }

    fn identity(endpoint: &str) -> String {
        parse(endpoint).expect("valid").identity()
    }

    #[test]
    fn addresses_are_read_as_documented() {
        for (endpoint, expected) in [
            ("redis://h", "redis://h:6379/0"),
            ("h:7", "redis://h:7/0"),
            ("REDIS://h:7/3", "redis://h:7/3"),
            ("redis://[::1]:7", "redis://[::1]:7/0"),
            ("rediss://h", "rediss://h:6379/0"),
            ("redis://", "redis://localhost:6379/0"),
            ("unix:/run/r.sock", "unix:/run/r.sock?db=0"),
            ("unix:///run/r.sock?db=2", "unix:/run/r.sock?db=2"),
            ("redis+sentinel://b:1,a/m/2", "redis+sentinel://a:26379,b:1/m/2"),
            ("redis+cluster://a,b:2", "redis+cluster://a:6379,b:2"),
        ] {
            assert_eq!(identity(endpoint), expected, "{endpoint}");
        }
        assert_eq!(
            RedisConfig::parse(&Options::default()).expect("valid").identity(),
            "redis://localhost:6379/0"
        );
    }

    #[test]
    fn a_login_is_taken_off_and_stays_secret() {
        let config = parse("redis://me:p%40ss:w@h/1").expect("valid");
        assert_eq!(config.user.as_deref(), Some("me"));
        assert_eq!(config.password, Some(Secret::new("p@ss:w")));
        assert!(!format!("{config:?}{}", config.identity()).contains("p@ss"));
        let given = Options { user: Some("you".into()), ..Options::at(&["redis://me:p@h"]) };
        assert_eq!(RedisConfig::parse(&given).expect("valid").user.as_deref(), Some("you"));
    }

    #[test]
    fn invalid_address_is_refused_with_reason() {
        for (endpoint, part) in [
            ("redis://h:x", "not HOST:PORT"),
            ("redis://h/a", "not the number of a database"),
            ("redis://:p@h,i", "Redlock"),
            ("unix:", "path of a socket"),
            ("redis+sentinel://h:1", "master's name"),
            ("redis+cluster://h/3", "only database 0"),
            ("redis://h/0?protocol=3", "not the number of a database"),
            ("redis://h?db=3", "not HOST:PORT"),
            ("redis://%zz@h", "hexadecimal"),
            ("redis://[::1", "not HOST:PORT"),
            ("redis://u@h", "no password for the user u"),
            ("redis+cluster://u@h", "no password for the user u"),
            ("redis+sentinel://u@h/m", "no password for the user u"),
        ] {
            assert_refused(parse(endpoint), part);
        }
        let tls = Tls { server_name: Some("x".into()), ..Tls::default() };
        let open = Options { tls, ..Options::at(&["redis://u:secret@h"]) };
        assert_refused(RedisConfig::parse(&open), "rediss://");
    }
}
