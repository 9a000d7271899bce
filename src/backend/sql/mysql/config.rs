//! Parsing addresses and other sources of the configuration.
//!
//! A part that is missing in the address is taken from the sources of the databases' own clients: the option files,
//! then `MYSQL_HOST`, `MYSQL_TCP_PORT`, `MYSQL_UNIX_PORT` and `MYSQL_PWD`, then the client's defaults.

use std::path::PathBuf;

use super::option_file::options_in;
use crate::backend::Options;
use crate::backend::sql::database::{Database, Mode, Place, Server};
use crate::backend::sql::settings::{Settings, variable};
use crate::backend::sql::tables::Tables;
use crate::net::address::HostPort;
use crate::net::credentials::Secret;

/// The backend's name.
pub(in crate::backend::sql) const NAME: &str = "mysql";
/// The prefixes of its addresses.
pub(in crate::backend::sql) const SCHEMES: &[&str] = &["mysql://", "mariadb://"];

/// The default port.
const PORT: u16 = 3306;
/// The paths of the socket in distributions.
const SOCKETS: [&str; 3] = ["/run/mysqld/mysqld.sock", "/var/lib/mysql/mysql.sock", "/tmp/mysql.sock"];
/// The option files of the system.
const SYSTEM: [&str; 2] = ["/etc/my.cnf", "/etc/mysql/my.cnf"];

/// The settings that an address may have.
const SETTINGS: [&str; 5] = ["socket", "ssl-mode", "ssl-ca", "ssl-cert", "ssl-key"];
/// Settings that programs put into addresses for their own libraries, in lower case and with dashes. dlock ignores them.
const NEUTRAL: [&str; 24] = [
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
/// The variables with settings.
const VARIABLES: [(&str, &str); 4] = [
    ("host", "MYSQL_HOST"),
    ("port", "MYSQL_TCP_PORT"),
    ("socket", "MYSQL_UNIX_PORT"),
    ("password", "MYSQL_PWD"),
];
/// The names of the modes: the clients' `--ssl-mode`.
const MODES: [&str; 5] = ["disabled", "preferred", "required", "verify_ca", "verify_identity"];

/// A MySQL or MariaDB.
#[derive(Clone, Debug)]
pub(in crate::backend::sql) struct Mysql(pub(super) Database);

impl Mysql {
    /// Parses the connection options, the option files and the environment. An error is one line without secrets.
    pub(in crate::backend::sql) fn parse(options: &Options) -> Result<Self, String> {
        let home = variable("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
        let files = SYSTEM.iter().map(PathBuf::from).chain(home.map(|home| home.join(".my.cnf")));
        Self::within(options, &files.collect::<Vec<_>>(), &variable)
    }

    fn within(
        options: &Options,
        files: &[PathBuf],
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, String> {
        let said = options_in(files);
        let value = |name: &str| said.get(name).filter(|value| !value.is_empty()).cloned();
        let around = |name: &str| {
            let known = || VARIABLES.iter().find(|(setting, _)| *setting == name);
            value(name).or_else(|| variable(known()?.1))
        };
        let known = |name: &str| {
            let name = name.to_ascii_lowercase().replace('_', "-").replace("sslmode", "ssl-mode");
            Some(name).filter(|name| SETTINGS.contains(&name.as_str()) || NEUTRAL.contains(&name.as_str()))
        };
        let settings = Settings::read(options, NAME, SCHEMES, known, &around)?;
        let tables = Tables::under(options.prefix.as_deref(), '`')?;
        let name = settings.get("database").unwrap_or_default();
        if name.is_empty() && !tables.prefix.contains('.') {
            return Err("no database is named; write mysql://USER@HOST/DATABASE".to_owned());
        }
        let other_password = || match settings.given("password") {
            None if value("password").is_some() => Some(password_in(files.to_vec())),
            _ => settings.get("password").map(Secret::new),
        };
        let password = options.password.clone().or_else(other_password);
        let places = places(&settings)?;
        if options.tls.server_name.is_some() {
            let what = "the backend mysql checks the certificate for the host of the address; --tls-server-name \
                        cannot be given";
            return Err(what.to_owned());
        }
        // dlock's options take precedence over the option files.
        let is_given = options.tls.is_given();
        let mode = if is_given { settings.given("ssl-mode").cloned() } else { settings.get("ssl-mode") };
        let is_on = |value: &String| ["", "1", "on", "true"].iter().any(|on| value.eq_ignore_ascii_case(on));
        let flag = |name: &str| said.get(name).is_some_and(is_on);
        let mode = match mode {
            Some(text) => Mode::parse("ssl-mode", MODES, &text)?,
            None if is_given || flag("ssl-verify-server-cert") => Mode::VerifyIdentity,
            None if flag("skip-ssl") => Mode::Disabled,
            None if settings.get("ssl-ca").is_some() => Mode::VerifyCa,
            None if settings.get("ssl-cert").is_some() => Mode::Required,
            None if places.iter().all(Place::is_here) => Mode::Disabled,
            // Without encryption, a server, or an impostor, can request the whole password under a key that it sends
            // itself. So a password is sent over a network without encryption only on request.
            None if password.is_some() => Mode::Required,
            None => Mode::Preferred,
        };
        let tls = settings.tls(mode, ["ssl-ca", "ssl-cert", "ssl-key"])?;
        let servers = places.into_iter().map(|place| Server { place, password: password.clone() }).collect();
        Ok(Self(Database { servers, user: settings.user()?, name, mode, tls, tables }))
    }
}

/// Returns the password in the option files, which are read again for each use.
fn password_in(files: Vec<PathBuf>) -> Secret {
    Secret::read_by(move || {
        let password = options_in(&files).remove("password").filter(|password| !password.is_empty());
        password.ok_or_else(|| "the option files have no password any more".to_owned())
    })
}

fn places(settings: &Settings) -> Result<Vec<Place>, String> {
    if let Some(socket) = settings.given("socket") {
        return Ok(vec![Place::Socket(socket.into())]);
    }
    let is_tcp = settings.get("protocol").is_some_and(|protocol| protocol.eq_ignore_ascii_case("tcp"));
    settings.places(PORT, |host, has_port, port| {
        let host = if host.is_empty() { "localhost" } else { host };
        // A port in the address excludes the socket.
        if host == "localhost" && !has_port && !is_tcp {
            let there = || SOCKETS.iter().map(PathBuf::from).find(|path| path.exists());
            if let Some(socket) = settings.get("socket").map(PathBuf::from).or_else(there) {
                return Place::Socket(socket);
            }
        }
        Place::Tcp(HostPort { host: host.to_owned(), port })
    })
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
