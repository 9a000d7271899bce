//! The configuration: addresses, completed as PostgreSQL's own programs do.

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use tokio_postgres::config::ChannelBinding;

use super::settings::{Environment, Settings, lines_of, password_from};
use crate::backend::Options;
use crate::backend::sql::tables::Tables;
use crate::net::address::in_any_order;
use crate::net::credentials::{Identity, Secret, Tls};
use crate::net::tls::stays_here;

/// The default port.
const PORT: u16 = 5432;
/// The default directories of sockets.
const SOCKETS: [&str; 2] = ["/var/run/postgresql", "/tmp"];

/// The requirements on encryption and the server's certificate: libpq's `sslmode`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PgMode {
    /// Never encrypted; also `allow`: a server that demands encryption refuses.
    Disable,
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
        match text {
            "disable" | "allow" => Ok(Self::Disable),
            "prefer" => Ok(Self::Prefer),
            "require" => Ok(Self::Require),
            "verify-ca" => Ok(Self::VerifyCa),
            "verify-full" => Ok(Self::VerifyFull),
            _ => Err(format!(
                "{text:?} is not an sslmode; the modes are disable, allow, prefer, require, verify-ca and verify-full"
            )),
        }
    }
}

/// One server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct PgPlace {
    /// A name, an address, or the directory of a socket.
    pub(super) host: String,
    /// The port, which is also part of a socket's name.
    pub(super) port: u16,
    /// The address to connect to instead of looking up the host: libpq's `hostaddr`.
    pub(super) address: Option<IpAddr>,
    /// The password for it, from any source.
    pub(super) password: Option<Secret>,
}

impl PgPlace {
    /// Returns whether the connection stays on this host.
    fn is_here(&self) -> bool {
        let here = |address: IpAddr| address.is_loopback();
        self.socket().is_some() || self.address.map_or_else(|| stays_here(&self.host), here)
    }

    /// Returns the path of its socket, if it has one.
    pub(super) fn socket(&self) -> Option<PathBuf> {
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
pub(in crate::backend::sql) struct PgConfig {
    /// Its servers, of which one accepts writes.
    pub(super) places: Vec<PgPlace>,
    pub(super) user: String,
    pub(super) database: String,
    /// The requirements on encryption and the server's certificate.
    pub(super) mode: PgMode,
    /// Certificates.
    pub(super) tls: Tls,
    /// Whether a login is bound to the encrypted connection: libpq's `channel_binding`.
    pub(super) binding: ChannelBinding,
    /// The options in the startup message, as `-c NAME=VALUE`: libpq's `options`.
    pub(super) options: Option<String>,
    /// Why a password file, which might have had the password, was ignored.
    pub(super) ignored: Option<String>,
    pub(super) tables: Tables,
}

impl PgConfig {
    /// Parses the connection options and libpq's sources. An error is one line without secrets.
    pub(in crate::backend::sql) fn parse(options: &Options) -> Result<Self, String> {
        Self::within(options, &Environment::of_process())
    }

    fn within(options: &Options, around: &Environment) -> Result<Self, String> {
        let mut settings = Settings::new(around);
        for endpoint in &options.endpoints {
            settings.read(endpoint)?;
        }
        settings.check_variables()?;
        let user = options.user.clone().or_else(|| settings.get("user")).or_else(|| around.user.clone());
        let user = user.ok_or("this uid has no name; name the database's user with --user")?;
        let database = settings.get("dbname").unwrap_or_else(|| user.clone());
        let password = options.password.clone().or_else(|| settings.password());
        let mut places = places(&settings, password.as_ref())?;
        let file = settings.password_file().filter(|_| password.is_none());
        let ignored = file.and_then(|file| look_up_passwords(&file, &mut places, &database, &user));
        let binding = match settings.get("channel_binding").as_deref() {
            None | Some("prefer") => ChannelBinding::Prefer,
            Some("disable") => ChannelBinding::Disable,
            Some("require") => ChannelBinding::Require,
            Some(other) => {
                return Err(format!(
                    "{other:?} is not a channel_binding (PGCHANNELBINDING); there are disable, prefer and require"
                ));
            }
        };
        let startup = settings.get("options");
        let (mode, tls) = encryption(&settings, &options.tls, &places)?;
        let tables = Tables::under(options.prefix.as_deref(), '"')?;
        Ok(Self { places, user, database, mode, tls, binding, options: startup, ignored, tables })
    }

    /// Returns a server on another host if the password to it can be intercepted.
    pub(super) fn open_password(&self) -> Option<&PgPlace> {
        let away = self.places.iter().find(|place| place.password.is_some() && !place.is_here());
        away.filter(|_| matches!(self.mode, PgMode::Disable | PgMode::Prefer))
    }

    /// Returns the database as text without secrets, equal for equal databases.
    pub(super) fn identity(&self) -> String {
        format!("postgres://{}/{}", in_any_order(&self.places), self.database)
    }
}

/// Returns the servers, each with its port.
fn places(settings: &Settings, password: Option<&Secret>) -> Result<Vec<PgPlace>, String> {
    let ports: Vec<Option<u16>> = settings.list("port", "port")?;
    let addresses: Vec<Option<IpAddr>> = settings.list("hostaddr", "IP address")?;
    let mut hosts = settings.hosts();
    if hosts.is_empty() {
        hosts = vec![(String::new(), None); addresses.len().max(1)];
    }
    if !addresses.is_empty() && addresses.len() != hosts.len() {
        let (few, many) = (addresses.len(), hosts.len());
        return Err(format!("hostaddr (PGHOSTADDR) has {few} addresses for {many} hosts; give one for each"));
    }
    let place = |(n, (host, port)): (usize, (String, Option<u16>))| {
        let usual = ports.get(n).or(ports.last()).copied().flatten().unwrap_or(PORT);
        let (port, address) = (port.unwrap_or(usual), addresses.get(n).copied().flatten());
        let usual = || address.map_or_else(|| usual_host(port), |address| address.to_string());
        let host = if host.is_empty() { usual() } else { host };
        PgPlace { host, port, address, password: password.cloned() }
    };
    Ok(hosts.into_iter().enumerate().map(place).collect())
}

/// Sets the passwords of the servers that the `file` has. Returns why it was ignored, if it was.
fn look_up_passwords(file: &Path, places: &mut [PgPlace], database: &str, user: &str) -> Option<String> {
    let lines = match lines_of(file) {
        Ok(lines) => lines,
        Err(why) => return Some(why),
    };
    for place in places {
        // libpq uses this name for the default sockets.
        let host = if SOCKETS.contains(&place.host.as_str()) { "localhost" } else { &place.host };
        let asked = [host, &place.port.to_string(), database, user].map(str::to_owned);
        place.password = password_from(file, &lines, asked);
    }
    None
}

/// Returns the directory of this host's socket, if there is one, as psql does.
fn usual_host(port: u16) -> String {
    let has = |directory: &&str| Path::new(directory).join(format!(".s.PGSQL.{port}")).exists();
    SOCKETS.iter().find(|directory| has(directory)).map_or("localhost", |directory| directory).to_owned()
}

/// Returns the mode, and the certificates of `given`, completed from libpq's settings.
fn encryption(settings: &Settings, given: &Tls, places: &[PgPlace]) -> Result<(PgMode, Tls), String> {
    let mut tls = given.clone();
    let old =
        || settings.get("requiressl").filter(|value| value.starts_with('1')).map(|_| "require".to_owned());
    let mode = match settings.get("sslmode").or_else(old) {
        Some(text) => PgMode::parse(&text)?,
        // Certificates or a server's name imply checking.
        None if tls.authority.is_some() || tls.server_name.is_some() => PgMode::VerifyFull,
        None if tls.identity.is_some() => PgMode::Require,
        None => PgMode::Prefer,
    };
    if mode == PgMode::Disable && tls.is_given() {
        return Err("sslmode says not to encrypt, and certificates or a server's name are given".to_owned());
    }
    if mode == PgMode::Disable || places.iter().all(|place| place.socket().is_some()) {
        return Ok((mode, tls));
    }
    if tls.authority.is_none() && settings.get("sslrootcert").as_deref() != Some("system") {
        tls.authority = settings.pem("sslrootcert", "root.crt")?;
    }
    if tls.identity.is_none() {
        let certificate = settings.pem("sslcert", "postgresql.crt")?;
        match (certificate, settings.pem("sslkey", "postgresql.key")?) {
            (Some(certificate), Some(key)) => {
                let identity = Identity::new(certificate, key);
                tls.identity =
                    Some(identity.map_err(|why| format!("the key of the client's certificate {why}"))?);
            }
            (Some(_), None) if settings.get("sslcert").is_some() => {
                return Err("sslcert is given without its key; add sslkey".to_owned());
            }
            _ => {}
        }
    }
    Ok((mode, tls))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::assert_refused;

    fn alone() -> Environment {
        Environment { variable: |_| None, home: None, user: Some("me".into()) }
    }

    /// Returns the value of the variable `name` in `all`.
    fn value(all: &[(&str, &str)], name: &str) -> Option<String> {
        all.iter().find(|(set, _)| *set == name).map(|(_, value)| (*value).to_owned())
    }

    fn parsed(endpoints: &[&str], around: &Environment) -> PgConfig {
        PgConfig::within(&Options::at(endpoints), around).expect("valid")
    }

    #[test]
    fn addresses_are_read_as_documented() {
        for (endpoints, identity) in [
            (&["postgres://h"] as &[&str], "postgres://h:5432/me"),
            (&["postgresql://you@h:7/d"], "postgres://h:7/d"),
            (&["POSTGRES://you@h:7"], "postgres://h:7/you"),
            (&["h:7/d"], "postgres://h:7/d"),
            (&["postgres://b:2,a/d"], "postgres://a:5432,b:2/d"),
            (&["postgres://b:2/d", "postgres://a/d"], "postgres://a:5432,b:2/d"),
            (&["postgres://[::1]:7/d"], "postgres://[::1]:7/d"),
            (&["postgres://%2Frun%2Fpg:7/d"], "postgres:///run/pg/.s.PGSQL.7/d"),
            (&["postgres:///d?host=/run/pg&port=8"], "postgres:///run/pg/.s.PGSQL.8/d"),
        ] {
            assert_eq!(parsed(endpoints, &alone()).identity(), identity, "{endpoints:?}");
        }
    }

    #[test]
    fn missing_settings_come_from_libpq_variables() {
        let variable = |name: &str| {
            let all = [
                ("PGHOST", "a,b"),
                ("PGPORT", "1,2"),
                ("PGUSER", "u"),
                ("PGDATABASE", "d"),
                ("PGPASSWORD", "p"),
                ("PGSSLMODE", "disable"),
            ];
            value(&all, name)
        };
        let around = Environment { variable, ..alone() };
        let config = parsed(&[], &around);
        assert_eq!((config.identity().as_str(), config.user.as_str()), ("postgres://a:1,b:2/d", "u"));
        assert_eq!(config.mode, PgMode::Disable);
        assert_eq!(config.places[1].password, Some(Secret::new("p")));
        let config = parsed(&["postgres://x@h:9/e?sslmode=require"], &around);
        assert_eq!((config.identity().as_str(), config.user.as_str()), ("postgres://h:9/e", "x"));
        assert_eq!(config.mode, PgMode::Require);
    }

    #[test]
    fn numeric_addresses_belong_to_their_hosts() {
        let variable = |name: &str| value(&[("PGHOST", "a,b"), ("PGHOSTADDR", "127.0.0.1,")], name);
        let around = Environment { variable, ..alone() };
        let addresses: Vec<_> = parsed(&[], &around).places.iter().map(|place| place.address).collect();
        assert_eq!(addresses, [Some("127.0.0.1".parse().expect("an address")), None]);
        let one = PgConfig::within(&Options::at(&["postgres://h/d"]), &around);
        assert_refused(one, "hostaddr (PGHOSTADDR) has 2 addresses for 1 hosts");
        let config = parsed(&["postgres:///d?hostaddr=127.0.0.1&options=-c%20x.y=z"], &alone());
        assert_eq!(
            (config.identity().as_str(), config.options.as_deref()),
            ("postgres://127.0.0.1:5432/d", Some("-c x.y=z"))
        );
    }

    #[test]
    fn a_login_is_taken_off_and_stays_secret() {
        let config = parsed(&["postgres://me:p%40ss@h/d"], &alone());
        assert_eq!(config.places[0].password, Some(Secret::new("p@ss")));
        assert!(!format!("{config:?}{}", config.identity()).contains("p@ss"));
        let given = Options { user: Some("you".into()), ..Options::at(&["postgres://me@h"]) };
        assert_eq!(PgConfig::within(&given, &alone()).expect("valid").user, "you");
    }

    #[test]
    fn option_names_an_authority_and_enables_verification() {
        let tls = Tls { server_name: Some("x".into()), ..Tls::default() };
        let given = Options { tls, ..Options::at(&["postgres://h/d"]) };
        assert_eq!(PgConfig::within(&given, &alone()).expect("valid").mode, PgMode::VerifyFull);
        let contradiction = Options { tls: given.tls, ..Options::at(&["postgres://h/d?sslmode=disable"]) };
        assert_refused(PgConfig::within(&contradiction, &alone()), "not to encrypt");
        assert_eq!(parsed(&["postgres://h/d"], &alone()).mode, PgMode::Prefer);
    }

    #[test]
    fn unreadable_authority_is_an_error() {
        let home = std::env::temp_dir().join(format!("dlock-home-{}", std::process::id()));
        let around = Environment { home: Some(home.clone()), ..alone() };
        let config = || PgConfig::within(&Options::at(&["postgres://h/d?sslmode=require"]), &around);
        assert!(config().expect("there is no file").tls.authority.is_none());
        // A directory in its place cannot be read, not even by root.
        std::fs::create_dir_all(home.join(".postgresql/root.crt")).expect("a new directory");
        let found = config();
        std::fs::remove_dir_all(&home).expect("removes");
        assert_refused(found, "root.crt cannot be read");
    }

    #[test]
    fn settings_of_libpq_are_obeyed_taken_or_refused() {
        let config = |settings: &str| {
            PgConfig::within(&Options::at(&[&format!("postgres://h/d?{settings}")]), &alone())
        };
        let taken = "application_name=ci&connect_timeout=10&keepalives_idle=30&gssencmode=prefer&sslcertmode=allow&\
                 target_session_attrs=read-write&requiressl=0&sslsni=1&max_protocol_version=latest&krbsrvname=";
        assert_eq!(config(taken).expect("taken"), config("").expect("plain"));
        assert_eq!(config("ssl=true").expect("JDBC").mode, PgMode::Require);
        assert_eq!(config("requiressl=1").expect("old").mode, PgMode::Require);
        assert_eq!(config("channel_binding=require").expect("obeyed").binding, ChannelBinding::Require);
        let password = config("password=s%20p").expect("obeyed").places[0].password.clone();
        assert_eq!(password, Some(Secret::new("s p")));
        for (settings, part) in [
            (
                "target_session_attrs=read-only",
                "target_session_attrs asks for something that dlock does not do",
            ),
            ("gssencmode=require", "set it to disable or prefer"),
            ("require_auth=scram-sha-256", "leave it out"),
            ("sslpassword=secret", "sslpassword asks"),
            ("channel_binding=on", "disable, prefer and require"),
            ("sslcert=/dev/null", "without its key"),
            ("sslkey=/nonexistent", "sslkey"),
        ] {
            assert_refused(config(settings), part);
        }
    }

    #[test]
    fn invalid_address_is_refused_with_reason() {
        for (endpoint, part) in [
            ("postgres://h:x", "not HOST:PORT"),
            ("postgres://h/d?sslmode=on", "not an sslmode"),
            ("postgres://h/d?slmode=disable", "no setting"),
            ("postgres://%zz@h", "hexadecimal"),
            ("postgres://[::1/d", "not HOST:PORT"),
        ] {
            assert_refused(PgConfig::within(&Options::at(&[endpoint]), &alone()), part);
        }
    }
}
