//! Parsing addresses and other sources of the configuration.
//!
//! A part that is missing in the address is taken from the sources of the databases' own clients: the option files,
//! then `MYSQL_HOST`, `MYSQL_TCP_PORT`, `MYSQL_UNIX_PORT` and `MYSQL_PWD`, then the client's defaults.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use sqlx::mysql::MySqlSslMode;

use super::option_file::Said;
use crate::backend::Options;
use crate::backend::sql::login::login_name;
use crate::backend::sql::tables::Tables;
use crate::net::address::{HostPort, after, decoded, hosts_and_ports, in_any_order, login, without_line_end};
use crate::net::credentials::{Identity, Pem, Secret, Tls};
use crate::net::tls::stays_here;

/// The default port.
const PORT: u16 = 3306;
/// The paths of the socket in distributions.
const SOCKETS: [&str; 3] = ["/run/mysqld/mysqld.sock", "/var/lib/mysql/mysql.sock", "/tmp/mysql.sock"];

/// The address of a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum MysqlPlace {
    Tcp(HostPort),
    /// A socket of this host.
    Socket(PathBuf),
}

impl MysqlPlace {
    /// Returns whether the connection stays on this host.
    fn is_here(&self) -> bool {
        match self {
            Self::Tcp(place) => stays_here(&place.host),
            Self::Socket(_) => true,
        }
    }
}

impl fmt::Display for MysqlPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(place) => place.fmt(f),
            Self::Socket(path) => path.display().fmt(f),
        }
    }
}

/// The database, and the login.
#[derive(Clone, Debug)]
pub(in crate::backend::sql) struct MysqlConfig {
    /// The servers, in the order in which they are tried.
    pub(super) places: Vec<MysqlPlace>,
    /// The database; `None` if the prefix names one.
    pub(super) database: Option<String>,
    pub(super) user: String,
    pub(super) password: Option<Secret>,
    /// The requirements on encryption: the clients' `--ssl-mode`.
    pub(super) mode: MySqlSslMode,
    /// The authority to trust in addition to the system's.
    pub(super) authority: Option<Pem>,
    /// The certificate of this client.
    pub(super) identity: Option<Identity>,
    pub(super) tables: Tables,
}

/// The other sources: option files, environment, and the user of this process.
struct Around<'a> {
    said: &'a Said,
    variable: &'a dyn Fn(&str) -> Option<String>,
    user: Option<String>,
}

/// The contents of the addresses, and the other sources.
struct Settings<'a> {
    /// Hosts and ports as given.
    hosts: Vec<(String, Option<u16>)>,
    password: Option<Secret>,
    /// The other parts of the addresses, by their names in option files.
    given: BTreeMap<&'static str, String>,
    around: &'a Around<'a>,
}

/// The settings that an address may have.
const SETTINGS: [&str; 5] = ["socket", "ssl-mode", "ssl-ca", "ssl-cert", "ssl-key"];

impl MysqlConfig {
    /// Parses the connection options, the option files and the environment. An error is one line without secrets.
    pub(in crate::backend::sql) fn parse(options: &Options) -> Result<Self, String> {
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
        let mut settings = Settings { hosts: Vec::new(), password: None, given: BTreeMap::new(), around };
        for endpoint in &options.endpoints {
            settings.read(endpoint)?;
        }
        let database = settings.said("database").map(str::to_owned);
        if database.is_none() && tables.bare().0.is_none() {
            return Err("no database is named; write mysql://USER@HOST/DATABASE".to_owned());
        }
        let said = || settings.said("user").map(str::to_owned).or_else(|| around.user.clone());
        let user = options.user.clone().or_else(said);
        let user = user.ok_or("no user is named; write mysql://USER@HOST/DATABASE, or give --user")?;
        let password = options.password.clone().or_else(|| settings.password());
        let places = settings.places()?;
        let (mode, authority, identity) = settings.encryption(&options.tls)?;
        let mode = mode.unwrap_or_else(|| usual(&places, password.is_some()));
        Ok(Self { places, database, user, password, mode, authority, identity, tables })
    }

    /// Returns a server on another host if the password to it can be intercepted.
    pub(super) fn open_password(&self) -> Option<&MysqlPlace> {
        let away = self.places.iter().find(|place| !place.is_here());
        away.filter(|_| self.password.is_some() && may_be_plain(self.mode))
    }

    /// Returns the database as text without secrets, equal for equal databases.
    pub(super) fn identity(&self) -> String {
        let database = self.database.as_deref().unwrap_or_default();
        format!("mysql://{}/{database}", in_any_order(&self.places))
    }
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

impl Settings<'_> {
    /// Parses one endpoint: `[mysql://][USER[:PASSWORD]@]HOST[:PORT][,…][/DATABASE][?OPTION=VALUE&…]`.
    fn read(&mut self, endpoint: &str) -> Result<(), String> {
        let rest = after(endpoint, "mysql://").or_else(|| after(endpoint, "mariadb://")).unwrap_or(endpoint);
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        // A password may contain a slash, so the login is taken off first.
        let (login, rest) = login(rest)?;
        let (hosts, database) = rest.split_once('/').unwrap_or((rest, ""));
        self.give("user", &login.user.unwrap_or_default())?;
        self.give("database", &decoded(database)?)?;
        if let Some(password) = login.password
            && self.password.replace(password.clone()).is_some_and(|other| other != password)
        {
            return Err(differ("password"));
        }
        self.hosts.extend(hosts_and_ports(hosts)?);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let known = name.to_ascii_lowercase().replace('_', "-").replace("sslmode", "ssl-mode");
            if HARMLESS.contains(&known.as_str()) {
                continue;
            }
            let setting = SETTINGS.into_iter().find(|setting| *setting == known).ok_or_else(|| {
                format!("{name} is not an option of a mysql address; the options are {}", SETTINGS.join(", "))
            })?;
            self.give(setting, &decoded(value)?)?;
        }
        Ok(())
    }

    /// Stores a part of an address. Each may be given once, or repeatedly if it is equal.
    fn give(&mut self, name: &'static str, value: &str) -> Result<(), String> {
        if value.is_empty() {
            return Ok(());
        }
        let known = self.given.entry(name).or_insert_with(|| value.to_owned());
        if *known == value { Ok(()) } else { Err(differ(name)) }
    }

    /// Returns the value in an address, or else in an option file.
    fn said(&self, option: &str) -> Option<&str> {
        let given = self.given.get(option).map(String::as_str);
        given.or_else(|| self.around.said.get(option)).filter(|value| !value.is_empty())
    }

    fn said_or(&self, option: &str, variable: &str) -> Option<String> {
        self.said(option).map(str::to_owned).or_else(|| (self.around.variable)(variable))
    }

    fn password(&self) -> Option<Secret> {
        let filed = || self.said("password").map(|_| self.around.said.password());
        let variable = || (self.around.variable)("MYSQL_PWD").map(Secret::new);
        self.password.clone().or_else(filed).or_else(variable)
    }

    /// Returns the servers.
    fn places(&self) -> Result<Vec<MysqlPlace>, String> {
        if let Some(socket) = self.given.get("socket") {
            return Ok(vec![MysqlPlace::Socket(socket.into())]);
        }
        let usual_host = self.said_or("host", "MYSQL_HOST").unwrap_or_else(|| "localhost".to_owned());
        let usual_port = match self.said_or("port", "MYSQL_TCP_PORT").as_deref() {
            None | Some("0") => None,
            Some(text) => Some(text.parse::<u16>().map_err(|_| format!("{text:?} is not a port"))?),
        };
        let tcp = self.said("protocol").is_some_and(|protocol| protocol.eq_ignore_ascii_case("tcp"));
        let none = [(String::new(), None)];
        let hosts = if self.hosts.is_empty() { &none[..] } else { &self.hosts };
        let place = |(host, port): &(String, Option<u16>)| {
            let host = if host.is_empty() { usual_host.clone() } else { host.clone() };
            // A port in the address excludes the socket.
            if host == "localhost" && port.is_none() && !tcp {
                let there = || SOCKETS.iter().map(PathBuf::from).find(|path| path.exists());
                let socket = self.said_or("socket", "MYSQL_UNIX_PORT").map(PathBuf::from);
                if let Some(socket) = socket.or_else(there) {
                    return MysqlPlace::Socket(socket);
                }
            }
            MysqlPlace::Tcp(HostPort { host, port: port.or(usual_port).unwrap_or(PORT) })
        };
        Ok(hosts.iter().map(place).collect())
    }

    /// Returns the encryption. dlock's options take precedence over the address, and the address over the option files.
    fn encryption(&self, given: &Tls) -> Result<Encryption, String> {
        if given.server_name.is_some() {
            return Err(
                "the backend mysql checks the certificate for the host of the address; --tls-server-name \
                        cannot be given"
                    .to_owned(),
            );
        }
        if given.is_given() {
            let mode = self.given.get("ssl-mode").map(|text| mode_of(text)).transpose()?;
            if mode.is_some_and(may_be_plain) {
                return Err("certificates are given, and an ssl-mode that does without encryption".to_owned());
            }
            let mode = mode.unwrap_or(MySqlSslMode::VerifyIdentity);
            return Ok((Some(mode), given.authority.clone(), given.identity.clone()));
        }
        let file = |option: &str| self.said(option).map(|path| pem(Path::new(path))).transpose();
        let authority = file("ssl-ca")?;
        let identity = match (file("ssl-cert")?, file("ssl-key")?) {
            (Some(certificate), Some(key)) => Some(
                Identity::new(certificate, key)
                    .map_err(|why| format!("the key of the client's certificate {why}"))?,
            ),
            (None, None) => None,
            _ => return Err("one of ssl-cert and ssl-key is given without the other".to_owned()),
        };
        let flag = |option: &str| {
            let value = self.around.said.get(option);
            value.map(|value| !matches!(value, "0" | "OFF" | "off" | "FALSE" | "false"))
        };
        let mode = match self.said("ssl-mode") {
            Some(text) => Some(mode_of(text)?),
            None if flag("skip-ssl") == Some(true) || flag("ssl") == Some(false) => {
                Some(MySqlSslMode::Disabled)
            }
            None if flag("ssl-verify-server-cert") == Some(true) => Some(MySqlSslMode::VerifyIdentity),
            None if authority.is_some() => Some(MySqlSslMode::VerifyCa),
            None if identity.is_some() || flag("ssl") == Some(true) => Some(MySqlSslMode::Required),
            None => None,
        };
        Ok((mode, authority, identity))
    }
}

type Encryption = (Option<MySqlSslMode>, Option<Pem>, Option<Identity>);

fn differ(what: &str) -> String {
    format!("the endpoints name different {what}s; they are servers of one database")
}

fn mode_of(text: &str) -> Result<MySqlSslMode, String> {
    let mode = text.replace('-', "_").parse();
    mode.map_err(|_| "an ssl-mode is disabled, preferred, required, verify_ca or verify_identity".to_owned())
}

/// Returns whether a connection may be without encryption.
fn may_be_plain(mode: MySqlSslMode) -> bool {
    matches!(mode, MySqlSslMode::Disabled | MySqlSslMode::Preferred)
}

/// Returns the default mode. Without encryption, a server, or an impostor, can request the whole password under a key
/// that it sends itself. So a password is sent over a network without encryption only on request.
fn usual(places: &[MysqlPlace], password: bool) -> MySqlSslMode {
    match password {
        _ if places.iter().all(MysqlPlace::is_here) => MySqlSslMode::Disabled,
        true => MySqlSslMode::Required,
        false => MySqlSslMode::Preferred,
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
