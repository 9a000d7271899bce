//! Parsing addresses, and completing them.

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use tokio_postgres::config::ChannelBinding;

use super::environment::{self, Environment, Passwords};
use super::{binding, settings};
use crate::backend::Options;
use crate::backend::sql::tables::Tables;
use crate::net::address::{after, decoded, hosts_and_ports, in_any_order, login};
use crate::net::credentials::{Identity, Secret, Tls};
use crate::net::tls::stays_here;

/// The default port.
const PORT: u16 = 5432;
/// The default directories of sockets.
const SOCKETS: [&str; 2] = ["/var/run/postgresql", "/tmp"];

/// The requirements on encryption and the server's certificate: libpq's `sslmode`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PgMode {
    /// Never encrypted.
    Disable,
    /// Same as `Disable`: a server that demands encryption refuses.
    Allow,
    /// Encrypted if the server can; the certificate is not checked.
    Prefer,
    /// Encrypted; the authority is checked if one is given.
    Require,
    /// The authority is checked.
    VerifyCa,
    /// The authority and the name are checked.
    VerifyFull,
}

impl PgMode {
    fn parse(text: &str) -> Result<Self, String> {
        Ok(match text {
            "disable" => Self::Disable,
            "allow" => Self::Allow,
            "prefer" => Self::Prefer,
            "require" => Self::Require,
            "verify-ca" => Self::VerifyCa,
            "verify-full" => Self::VerifyFull,
            _ => {
                return Err(format!(
                    "{text:?} is not an sslmode; the modes are disable, allow, prefer, require, verify-ca and verify-full"
                ));
            }
        })
    }
}

/// One server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PgPlace {
    /// A name, an address, or the directory of a socket.
    pub host: String,
    /// The port, which is also part of a socket's name.
    pub port: u16,
    /// The address to connect to instead of looking up the host: libpq's `hostaddr`.
    pub address: Option<IpAddr>,
    /// The password for it, from any source.
    pub password: Option<Secret>,
}

impl PgPlace {
    /// Returns whether the connection stays on this host.
    fn is_here(&self) -> bool {
        let here = |address: IpAddr| address.is_loopback();
        self.socket().is_some() || self.address.map_or_else(|| stays_here(&self.host), here)
    }

    /// Returns the path of its socket, if it has one.
    pub fn socket(&self) -> Option<PathBuf> {
        let is_directory = self.host.starts_with('/') && self.address.is_none();
        is_directory.then(|| Path::new(&self.host).join(format!(".s.PGSQL.{}", self.port)))
    }
}

impl fmt::Display for PgPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.socket() {
            Some(path) => write!(f, "{}", path.display()),
            None if self.host.contains(':') => write!(f, "[{}]:{}", self.host, self.port),
            None => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

/// The address of a PostgreSQL, and the login.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PgConfig {
    /// Its servers, of which one accepts writes.
    pub places: Vec<PgPlace>,
    /// The user.
    pub user: String,
    /// The database.
    pub database: String,
    /// The requirements on encryption and the server's certificate.
    pub mode: PgMode,
    /// Certificates.
    pub tls: Tls,
    /// Whether a login is bound to the encrypted connection: libpq's `channel_binding`.
    pub binding: ChannelBinding,
    /// The options in the startup message, as `-c NAME=VALUE`: libpq's `options`.
    pub options: Option<String>,
    /// Why a password file, which might have had the password, was ignored.
    pub ignored: Option<String>,
    pub(in crate::backend::sql) tables: Tables,
}

/// The contents of the addresses.
#[derive(Default)]
struct Said {
    hosts: Vec<(String, Option<u16>)>,
    addresses: Option<String>,
    options: Option<String>,
    user: Option<String>,
    password: Option<Secret>,
    database: Option<String>,
    mode: Option<String>,
    authority: Option<String>,
    certificate: Option<String>,
    key: Option<String>,
    password_file: Option<String>,
    binding: Option<String>,
    /// Settings that have no effect.
    taken: Vec<&'static str>,
}

impl PgConfig {
    /// Parses the connection options and libpq's sources. An error is one line without secrets.
    pub fn parse(options: &Options) -> Result<Self, String> {
        Self::within(options, &Environment::of_process())
    }

    pub(super) fn within(options: &Options, around: &Environment) -> Result<Self, String> {
        let mut said = Said::default();
        for endpoint in &options.endpoints {
            said.endpoint(endpoint)?;
        }
        if said.names_no_host()
            && let Some(service) = around.get("PGSERVICE")
        {
            return Err(format!(
                "PGSERVICE names the service {service:?}, and dlock does not read service files; unset it and give --endpoint"
            ));
        }
        let user = options.user.clone().or(said.user.take()).or_else(|| around.get("PGUSER"));
        let user = user.or_else(|| around.user.clone());
        let user = user.ok_or("this uid has no name; name the database's user with --user")?;
        let database = said.database.take().or_else(|| around.get("PGDATABASE"));
        let database = database.unwrap_or_else(|| user.clone());
        let password = options.password.clone().or(said.password.take());
        let password = password.or_else(|| around.get("PGPASSWORD").map(Secret::new));
        let mut places = said.places(around)?;
        let mut ignored = None;
        if password.is_some() {
            for place in &mut places {
                place.password.clone_from(&password);
            }
        } else {
            let passwords = around.passwords(said.password_file.as_deref());
            ignored = look_up_passwords(&mut places, passwords, &database, &user);
        }
        settings::check_variables(around, &said.taken)?;
        let binding =
            binding::parsed(said.binding.take().or_else(|| around.get("PGCHANNELBINDING")).as_deref())?;
        let startup = said.options.take().or_else(|| around.get("PGOPTIONS"));
        let (mode, tls) = encryption(&said, options, around, &places)?;
        let tables = Tables::under(options.prefix.as_deref(), '"')?;
        Ok(Self { places, user, database, mode, tls, binding, options: startup, ignored, tables })
    }

    /// Returns a server on another host if the password to it can be intercepted.
    pub(super) fn open_password(&self) -> Option<&PgPlace> {
        let is_encrypted = matches!(self.mode, PgMode::Require | PgMode::VerifyCa | PgMode::VerifyFull);
        self.places
            .iter()
            .find(|place| place.password.is_some() && !place.is_here())
            .filter(|_| !is_encrypted)
    }

    /// Returns the database as text without secrets, equal for equal databases.
    pub fn identity(&self) -> String {
        format!("postgres://{}/{}", in_any_order(&self.places), self.database)
    }
}

impl Said {
    fn endpoint(&mut self, endpoint: &str) -> Result<(), String> {
        let rest = after(endpoint, "postgres://").or_else(|| after(endpoint, "postgresql://"));
        let rest = rest.unwrap_or(endpoint);
        let (rest, settings) = rest.split_once('?').unwrap_or((rest, ""));
        let (login, rest) = login(rest)?;
        let (hosts, database) = rest.split_once('/').unwrap_or((rest, ""));
        self.user = login.user.or(self.user.take());
        self.password = login.password.or(self.password.take());
        set(&mut self.database, database)?;
        self.hosts.extend(hosts_and_ports(hosts)?);
        for setting in settings.split('&').filter(|setting| !setting.is_empty()) {
            self.setting(setting)?;
        }
        Ok(())
    }

    fn setting(&mut self, setting: &str) -> Result<(), String> {
        let (name, value) = setting.split_once('=').unwrap_or((setting, ""));
        match name {
            "sslmode" => set(&mut self.mode, value),
            "sslrootcert" => set(&mut self.authority, value),
            "sslcert" => set(&mut self.certificate, value),
            "sslkey" => set(&mut self.key, value),
            "passfile" => set(&mut self.password_file, value),
            "channel_binding" => set(&mut self.binding, value),
            // Older settings of libpq, and that of JDBC.
            "requiressl" if value.starts_with('1') => set(&mut self.mode, "require"),
            "ssl" if value == "true" => set(&mut self.mode, "require"),
            "requiressl" => Ok(()),
            "password" => {
                self.password = Some(Secret::new(decoded(value)?));
                Ok(())
            }
            "hostaddr" => set(&mut self.addresses, value),
            "options" => set(&mut self.options, value),
            "user" => set(&mut self.user, value),
            "dbname" => set(&mut self.database, value),
            "host" => {
                self.hosts.push((decoded(value)?, None));
                Ok(())
            }
            "port" => {
                let port = value.parse().map_err(|_| format!("{value:?} is no port"))?;
                self.hosts.iter_mut().for_each(|(_, own)| *own = own.or(Some(port)));
                Ok(())
            }
            _ => {
                let known = settings::taken(name, &decoded(value)?)?;
                self.taken.push(known.ok_or_else(|| {
                    format!("an address of postgres has no setting {name:?}; dlock man postgres lists those of libpq")
                })?);
                Ok(())
            }
        }
    }

    /// Returns the servers, each with its port.
    fn places(&self, around: &Environment) -> Result<Vec<PgPlace>, String> {
        let ports = around.get("PGPORT").unwrap_or_default();
        let ports: Vec<u16> = ports
            .split(',')
            .filter(|port| !port.is_empty())
            .map(|port| port.trim().parse().map_err(|_| format!("PGPORT: {port:?} is no port")))
            .collect::<Result<_, _>>()?;
        let port_of = |n: usize| ports.get(n).or(ports.last()).copied().unwrap_or(PORT);
        let mut hosts = self.hosts.clone();
        if self.names_no_host() {
            let named = around.get("PGHOST").unwrap_or_default();
            hosts = named.split(',').filter(|host| !host.is_empty()).map(|h| (h.to_owned(), None)).collect();
        }
        let addresses = self.addresses(around)?;
        if hosts.is_empty() {
            hosts = vec![(String::new(), None); addresses.len().max(1)];
        }
        if !addresses.is_empty() && addresses.len() != hosts.len() {
            let (few, many) = (addresses.len(), hosts.len());
            return Err(format!(
                "hostaddr (PGHOSTADDR) has {few} addresses for {many} hosts; give one for each"
            ));
        }
        let place = |(n, (host, port)): (usize, (String, Option<u16>))| {
            let port = port.unwrap_or_else(|| port_of(n));
            let address = addresses.get(n).copied().flatten();
            let usual = || address.map_or_else(|| usual_host(port), |address| address.to_string());
            let host = if host.is_empty() { usual() } else { host };
            PgPlace { host, port, address, password: None }
        };
        Ok(hosts.into_iter().enumerate().map(place).collect())
    }

    fn names_no_host(&self) -> bool {
        self.hosts.iter().all(|(host, port)| host.is_empty() && port.is_none())
    }

    /// Returns the address to connect to for each host; some may be missing.
    fn addresses(&self, around: &Environment) -> Result<Vec<Option<IpAddr>>, String> {
        let Some(text) = self.addresses.clone().or_else(|| around.get("PGHOSTADDR")) else {
            return Ok(Vec::new());
        };
        let address = |text: &str| match text.trim() {
            "" => Ok(None),
            text => text
                .parse()
                .map(Some)
                .map_err(|_| format!("hostaddr (PGHOSTADDR): {text:?} is no IP address")),
        };
        text.split(',').map(address).collect()
    }
}

/// Returns the directory of this host's socket, if there is one, as psql does.
fn usual_host(port: u16) -> String {
    let has = |directory: &&str| Path::new(directory).join(format!(".s.PGSQL.{port}")).exists();
    SOCKETS.iter().find(|directory| has(directory)).map_or("localhost", |directory| directory).to_owned()
}

fn set(place: &mut Option<String>, text: &str) -> Result<(), String> {
    if !text.is_empty() {
        *place = Some(decoded(text)?);
    }
    Ok(())
}

/// Sets the passwords of the servers. Returns why the password file was ignored, if it was.
fn look_up_passwords(
    places: &mut [PgPlace],
    passwords: Passwords,
    database: &str,
    user: &str,
) -> Option<String> {
    for place in places {
        // libpq uses this name for the default sockets.
        let usual = SOCKETS.contains(&place.host.as_str());
        let host = if usual { "localhost" } else { place.host.as_str() };
        place.password = passwords.password(host, place.port, database, user);
    }
    passwords.skipped
}

fn encryption(
    said: &Said,
    options: &Options,
    around: &Environment,
    places: &[PgPlace],
) -> Result<(PgMode, Tls), String> {
    let mut tls = options.tls.clone();
    let old =
        || around.get("PGREQUIRESSL").filter(|value| value.starts_with('1')).map(|_| "require".to_owned());
    let mode = match said.mode.clone().or_else(|| around.get("PGSSLMODE")).or_else(old) {
        Some(text) => PgMode::parse(&text)?,
        // Certificates or a server's name imply checking.
        None if tls.authority.is_some() || tls.server_name.is_some() => PgMode::VerifyFull,
        None if tls.identity.is_some() => PgMode::Require,
        None => PgMode::Prefer,
    };
    if matches!(mode, PgMode::Disable | PgMode::Allow) {
        if tls.is_given() {
            return Err(
                "sslmode says not to encrypt, and certificates or a server's name are given".to_owned()
            );
        }
        return Ok((mode, tls));
    }
    if places.iter().all(|place| place.socket().is_some()) {
        return Ok((mode, tls));
    }
    if tls.authority.is_none() {
        tls.authority = match &said.authority {
            Some(path) if path == "system" => None,
            Some(path) => Some(environment::read(Path::new(path), "sslrootcert")?),
            None if around.get("PGSSLROOTCERT").as_deref() == Some("system") => None,
            None => around.pem("PGSSLROOTCERT", "root.crt")?,
        };
    }
    if tls.identity.is_none() {
        let file = |said: &Option<String>, name: &str, variable: &str, usual: &str| match said {
            Some(path) => environment::read(Path::new(path), name).map(Some),
            None => around.pem(variable, usual),
        };
        let certificate = file(&said.certificate, "sslcert", "PGSSLCERT", "postgresql.crt")?;
        match (certificate, file(&said.key, "sslkey", "PGSSLKEY", "postgresql.key")?) {
            (Some(certificate), Some(key)) => {
                let identity = Identity::new(certificate, key);
                tls.identity =
                    Some(identity.map_err(|why| format!("the key of the client's certificate {why}"))?);
            }
            (Some(_), None) if said.certificate.is_some() => {
                return Err("sslcert is given without its key; add sslkey".to_owned());
            }
            _ => {}
        }
    }
    Ok((mode, tls))
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
