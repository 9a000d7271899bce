//! Parsing addresses and other sources of the configuration.
//!
//! A part that is missing in the address is taken from the sources of the databases' own clients: the option files,
//! then `MYSQL_HOST`, `MYSQL_TCP_PORT`, `MYSQL_UNIX_PORT` and `MYSQL_PWD`, then the client's defaults.

use std::fmt;
use std::path::{Path, PathBuf};

use super::option_file::Said;
use crate::backend::Options;
use crate::backend::sql::login::login_name;
use crate::backend::sql::tables::Tables;
use crate::net::address::{after, decoded, hosts_and_ports, in_any_order, login, without_line_end};
use crate::net::credentials::{Identity, Pem, Secret, Tls};
use crate::net::tls::stays_here;

/// The default port.
const PORT: u16 = 3306;
/// The paths of the socket in distributions.
const SOCKETS: [&str; 3] = ["/run/mysqld/mysqld.sock", "/var/lib/mysql/mysql.sock", "/tmp/mysql.sock"];

/// The address of a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MysqlPlace {
    /// A port of a host.
    Tcp {
        /// A name or an address, an IPv6 one without brackets.
        host: String,
        /// The port.
        port: u16,
    },
    /// A socket of this host.
    Socket(PathBuf),
}

impl MysqlPlace {
    /// Returns whether the connection stays on this host.
    fn is_here(&self) -> bool {
        match self {
            Self::Tcp { host, .. } => stays_here(host),
            Self::Socket(_) => true,
        }
    }
}

impl fmt::Display for MysqlPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Socket(path) => write!(f, "{}", path.display()),
        }
    }
}

/// The requirements on encryption: the clients' `--ssl-mode`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum MysqlTls {
    /// No encryption.
    Disabled,
    /// Encryption if the server offers it.
    Preferred,
    /// Encryption, without checking the server.
    Required,
    /// Encryption with a certificate of a known authority.
    VerifyCa,
    /// Like `VerifyCa`, and the certificate must be for the host of the address.
    VerifyIdentity,
}

/// The database, and the login.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MysqlConfig {
    /// The servers, in the order in which they are tried.
    pub places: Vec<MysqlPlace>,
    /// The database; `None` if the prefix names one.
    pub database: Option<String>,
    /// The user.
    pub user: String,
    /// The password.
    pub password: Option<Secret>,
    /// The requirements on encryption.
    pub mode: MysqlTls,
    /// The authority to trust in addition to the system's.
    pub authority: Option<Pem>,
    /// The certificate of this client.
    pub identity: Option<Identity>,
    pub(in crate::backend::sql) tables: Tables,
}

/// The other sources: option files, environment, and the user of this process.
struct Around<'a> {
    said: &'a Said,
    variable: &'a dyn Fn(&str) -> Option<String>,
    user: Option<String>,
}

/// A parsed address.
#[derive(Default)]
struct Address {
    /// Hosts and ports as given.
    hosts: Vec<(String, Option<u16>)>,
    socket: Option<PathBuf>,
    database: Option<String>,
    user: Option<String>,
    password: Option<Secret>,
    mode: Option<MysqlTls>,
    /// The files of certificates and keys, by the names in option files.
    files: Vec<(String, String)>,
}

/// Settings in other programs' addresses that dlock ignores, in lower case and with dashes.
const HARMLESS: [&str; 24] = [
    "allowpublickeyretrieval",
    "autoreconnect",
    "characterencoding",
    "charset",
    "collation",
    "compress",
    "compression",
    "connect-timeout",
    "connection-limit",
    "connecttimeout",
    "encoding",
    "get-server-public-key",
    "loc",
    "parsetime",
    "pool",
    "pool-timeout",
    "read-timeout",
    "reconnect",
    "servertimezone",
    "sockettimeout",
    "time-zone",
    "timezone",
    "useunicode",
    "write-timeout",
];

impl MysqlConfig {
    /// Parses the connection options, the option files and the environment. An error is one line without secrets.
    pub fn parse(options: &Options) -> Result<Self, String> {
        let variable = |name: &str| {
            let value = std::env::var(name).ok()?;
            Some(without_line_end(&value)).filter(|value| !value.is_empty()).map(str::to_owned)
        };
        let home = variable("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
        let said = Said::of_user(home.as_deref())?;
        let user = login_name().or_else(|| ["USER", "LOGNAME", "LOGIN"].into_iter().find_map(variable));
        Self::gather(options, &Around { said: &said, variable: &variable, user })
    }

    fn gather(options: &Options, around: &Around) -> Result<Self, String> {
        let tables = Tables::under(options.prefix.as_deref(), '`')?;
        let mut address = Address::default();
        for endpoint in &options.endpoints {
            address.read(endpoint)?;
        }
        let said =
            |option: &str| around.said.get(option).filter(|value| !value.is_empty()).map(str::to_owned);
        let database = address.database.take().or_else(|| said("database"));
        if database.is_none() && !options.prefix.as_deref().is_some_and(|prefix| prefix.contains('.')) {
            return Err("no database is named; write mysql://USER@HOST/DATABASE".to_owned());
        }
        let user =
            options.user.clone().or(address.user.take()).or_else(|| said("user")).or(around.user.clone());
        let user = user.ok_or("no user is named; write mysql://USER@HOST/DATABASE, or give --user")?;
        let password = options.password.clone().or(address.password.take());
        let password = password
            .or_else(|| said("password").map(|_| around.said.password()))
            .or_else(|| (around.variable)("MYSQL_PWD").map(Secret::new));
        let places = address.places(around)?;
        let (mode, authority, identity) = encryption(&options.tls, &address, around.said)?;
        let mode = mode.unwrap_or_else(|| usual(&places, password.is_some()));
        Ok(Self { places, database, user, password, mode, authority, identity, tables })
    }

    /// Returns a server on another host if the password to it can be intercepted.
    pub(super) fn open_password(&self) -> Option<&MysqlPlace> {
        let away = self.places.iter().find(|place| !place.is_here());
        away.filter(|_| self.password.is_some() && self.mode < MysqlTls::Required)
    }

    /// Returns the database as text without secrets, equal for equal databases.
    pub fn identity(&self) -> String {
        let database = self.database.as_deref().unwrap_or_default();
        format!("mysql://{}/{database}", in_any_order(&self.places))
    }
}

impl Address {
    /// Parses one endpoint: `[mysql://][USER[:PASSWORD]@]HOST[:PORT][,…][/DATABASE][?OPTION=VALUE&…]`.
    fn read(&mut self, endpoint: &str) -> Result<(), String> {
        let rest = after(endpoint, "mysql://").or_else(|| after(endpoint, "mariadb://")).unwrap_or(endpoint);
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        // A password may contain a slash, so the login is taken off first.
        let (login, rest) = login(rest)?;
        let (hosts, database) = rest.split_once('/').unwrap_or((rest, ""));
        once(&mut self.user, login.user, "users")?;
        once(&mut self.password, login.password, "passwords")?;
        once(&mut self.database, Some(decoded(database)?).filter(|name| !name.is_empty()), "databases")?;
        self.hosts.extend(hosts_and_ports(hosts)?);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            self.option(name, &decoded(value)?)?;
        }
        Ok(())
    }

    fn option(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name.to_ascii_lowercase().replace('_', "-").as_str() {
            "socket" => self.socket = Some(PathBuf::from(value)),
            "ssl-mode" | "sslmode" => self.mode = Some(mode_of(value)?),
            file @ ("ssl-ca" | "ssl-cert" | "ssl-key") => {
                self.files.push((file.to_owned(), value.to_owned()));
            }
            known if HARMLESS.contains(&known) => {}
            _ => {
                return Err(format!(
                    "{name} is not an option of a mysql address; the options are socket, ssl-mode, ssl-ca, ssl-cert and ssl-key"
                ));
            }
        }
        Ok(())
    }

    /// Returns the servers, completed from the other sources.
    fn places(&self, around: &Around) -> Result<Vec<MysqlPlace>, String> {
        let first = |option: &str, variable: &str| {
            let said = around.said.get(option).filter(|value| !value.is_empty()).map(str::to_owned);
            said.or_else(|| (around.variable)(variable))
        };
        let usual_host = first("host", "MYSQL_HOST").unwrap_or_else(|| "localhost".to_owned());
        let usual_port = match first("port", "MYSQL_TCP_PORT").as_deref() {
            None | Some("0") => None,
            Some(text) => Some(text.parse::<u16>().map_err(|_| format!("{text:?} is not a port"))?),
        };
        let tcp = around.said.get("protocol").is_some_and(|protocol| protocol.eq_ignore_ascii_case("tcp"));
        let usual_socket = || first("socket", "MYSQL_UNIX_PORT").map(PathBuf::from);
        if let Some(socket) = self.socket.clone() {
            return Ok(vec![MysqlPlace::Socket(socket)]);
        }
        let none = [(String::new(), None)];
        let hosts = if self.hosts.is_empty() { &none[..] } else { &self.hosts };
        let place = |(host, port): &(String, Option<u16>)| {
            let host = if host.is_empty() { usual_host.clone() } else { host.clone() };
            // A port in the address excludes the socket.
            if host == "localhost" && port.is_none() && !tcp {
                let there = || SOCKETS.iter().map(PathBuf::from).find(|path| path.exists());
                if let Some(socket) = usual_socket().or_else(there) {
                    return MysqlPlace::Socket(socket);
                }
            }
            MysqlPlace::Tcp { host, port: port.or(usual_port).unwrap_or(PORT) }
        };
        Ok(hosts.iter().map(place).collect())
    }
}

/// Sets a value that may be given once, or repeatedly if it is equal.
fn once<T: PartialEq>(slot: &mut Option<T>, value: Option<T>, what: &str) -> Result<(), String> {
    if value.is_some() && slot.is_some() && *slot != value {
        return Err(format!("the endpoints name different {what}; they are servers of one database"));
    }
    *slot = value.or(slot.take());
    Ok(())
}

fn mode_of(text: &str) -> Result<MysqlTls, String> {
    match text.to_ascii_lowercase().replace('-', "_").as_str() {
        "disabled" => Ok(MysqlTls::Disabled),
        "preferred" => Ok(MysqlTls::Preferred),
        "required" => Ok(MysqlTls::Required),
        "verify_ca" => Ok(MysqlTls::VerifyCa),
        "verify_identity" => Ok(MysqlTls::VerifyIdentity),
        _ => Err("an ssl-mode is disabled, preferred, required, verify_ca or verify_identity".to_owned()),
    }
}

type Encryption = (Option<MysqlTls>, Option<Pem>, Option<Identity>);

/// Returns the encryption. dlock's options take precedence over the address, and the address over the option files.
fn encryption(given: &Tls, address: &Address, said: &Said) -> Result<Encryption, String> {
    let mode = address.mode;
    if given.server_name.is_some() {
        return Err(
            "the backend mysql checks the certificate for the host of the address; --tls-server-name \
                    cannot be given"
                .to_owned(),
        );
    }
    if given.is_given() {
        let least = MysqlTls::VerifyIdentity;
        if mode.is_some_and(|mode| mode < MysqlTls::Required) {
            return Err("certificates are given, and an ssl-mode that does without encryption".to_owned());
        }
        return Ok((Some(mode.unwrap_or(least)), given.authority.clone(), given.identity.clone()));
    }
    let named =
        |option: &str| address.files.iter().find(|(name, _)| name == option).map(|(_, path)| path.as_str());
    let file = |option: &str| {
        let path = named(option).or_else(|| said.get(option));
        path.filter(|path| !path.is_empty()).map(|path| pem(Path::new(path)))
    };
    let authority = file("ssl-ca").transpose()?;
    let identity = match (file("ssl-cert").transpose()?, file("ssl-key").transpose()?) {
        (Some(certificate), Some(key)) => Some(
            Identity::new(certificate, key)
                .map_err(|why| format!("the key of the client's certificate {why}"))?,
        ),
        (None, None) => None,
        _ => return Err("one of ssl-cert and ssl-key is given without the other".to_owned()),
    };
    let flag = |option: &str| {
        said.get(option).map(|value| !matches!(value, "0" | "OFF" | "off" | "FALSE" | "false"))
    };
    let said_mode = match said.get("ssl-mode") {
        Some(text) => Some(mode_of(text)?),
        None if flag("skip-ssl") == Some(true) || flag("ssl") == Some(false) => Some(MysqlTls::Disabled),
        None if flag("ssl-verify-server-cert") == Some(true) => Some(MysqlTls::VerifyIdentity),
        None if authority.is_some() => Some(MysqlTls::VerifyCa),
        None if identity.is_some() || flag("ssl") == Some(true) => Some(MysqlTls::Required),
        None => None,
    };
    Ok((mode.or(said_mode), authority, identity))
}

/// Returns the default mode. Without encryption, a server, or an impostor, can request the whole password under a key
/// that it sends itself. So a password is sent over a network without encryption only on request.
fn usual(places: &[MysqlPlace], password: bool) -> MysqlTls {
    match password {
        _ if places.iter().all(MysqlPlace::is_here) => MysqlTls::Disabled,
        true => MysqlTls::Required,
        false => MysqlTls::Preferred,
    }
}

fn pem(path: &Path) -> Result<Pem, String> {
    let read = |path: &Path| std::fs::read(path).map_err(|error| format!("cannot be read: {error}"));
    let named = |why| format!("{}, which the address or an option file names, {why}", path.display());
    Pem::in_file(path, read).map_err(named)
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
