//! The configuration: addresses, completed as PostgreSQL's own programs do.
//!
//! Source: PostgreSQL's documentation, "Parameter Key Words" and "Environment Variables" of libpq.

use std::fs;
use std::path::{Path, PathBuf};

use super::password_file::filed;
use crate::backend::Options;
use crate::backend::sql::database::{Database, Mode, Place, Server};
use crate::backend::sql::settings::{Settings, variable};
use crate::backend::sql::tables::Tables;
use crate::net::address::HostPort;
use crate::net::credentials::Secret;

/// The backend's name.
pub(in crate::backend::sql) const NAME: &str = "postgres";
/// The prefixes of its addresses.
pub(in crate::backend::sql) const SCHEMES: &[&str] = &["postgres://", "postgresql://"];

/// The default port.
const PORT: u16 = 5432;
/// The default directories of sockets.
const SOCKETS: [&str; 2] = ["/var/run/postgresql", "/tmp"];
/// The names of the modes.
const MODES: [&str; 5] = ["disable", "prefer", "require", "verify-ca", "verify-full"];

/// The settings that an address may have, apart from those of the encryption.
const SETTINGS: [&str; 8] = ["host", "hostaddr", "port", "dbname", "user", "password", "passfile", "options"];
/// The settings of the encryption.
const ENCRYPTION: [&str; 4] = ["sslmode", "sslrootcert", "sslcert", "sslkey"];
/// Settings that do not matter: every request of dlock has its own deadline.
const NEUTRAL: [&str; 13] = [
    "application_name",
    "client_encoding",
    "connect_timeout",
    "fallback_application_name",
    "gsslib",
    "keepalives",
    "keepalives_count",
    "keepalives_idle",
    "keepalives_interval",
    "krbsrvname",
    "load_balance_hosts",
    "sslcompression",
    "tcp_user_timeout",
];
/// Settings that dlock does not obey, with the values that ask for nothing beyond what it does anyway.
const DEMANDS: [(&str, &[&str]); 12] = [
    ("channel_binding", &["prefer", "disable"]),
    ("gssencmode", &["prefer", "disable"]),
    ("requirepeer", &[]),
    ("requiressl", &["0"]),
    ("require_auth", &[]),
    ("service", &[]),
    ("sslcertmode", &["allow"]),
    ("sslcrl", &[]),
    ("sslcrldir", &[]),
    ("sslnegotiation", &["postgres"]),
    ("ssl_min_protocol_version", &["TLSv1", "TLSv1.1", "TLSv1.2"]),
    ("target_session_attrs", &["any", "read-write", "primary", "prefer-standby"]),
];

/// Files in the user's home directory with settings, if they are there.
const FILES: [(&str, &str); 4] = [
    ("passfile", ".pgpass"),
    ("sslrootcert", ".postgresql/root.crt"),
    ("sslcert", ".postgresql/postgresql.crt"),
    ("sslkey", ".postgresql/postgresql.key"),
];

/// A PostgreSQL.
#[derive(Clone, Debug)]
pub(in crate::backend::sql) struct Postgres {
    pub(super) database: Database,
    /// The options in the startup message, as `-c NAME=VALUE`: libpq's `options`.
    pub(super) options: Option<String>,
}

/// Returns the variable for a setting.
fn variable_of(setting: &str) -> String {
    format!("PG{}", setting.replace('_', "").to_uppercase())
}

impl Postgres {
    /// Parses the connection options and libpq's sources. An error is one line without secrets.
    pub(in crate::backend::sql) fn parse(options: &Options) -> Result<Self, String> {
        Self::within(options, variable("HOME").as_deref().map(Path::new), &variable)
    }

    fn within(
        options: &Options,
        home: Option<&Path>,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, String> {
        let file = |name: &str| {
            let (_, usual) = FILES.iter().find(|(setting, _)| *setting == name)?;
            let path = home?.join(usual);
            fs::metadata(&path).is_ok().then(|| path.display().to_string())
        };
        let around = |name: &str| {
            // An address instead of a host that would have to be looked up.
            let address = if name == "host" { variable("PGHOSTADDR") } else { None };
            address.or_else(|| variable(&variable_of(name))).or_else(|| file(name))
        };
        let known = |name: &str| {
            let obeyed = [&SETTINGS[..], &ENCRYPTION, &NEUTRAL].concat();
            let is_known = obeyed.contains(&name) || DEMANDS.iter().any(|(demand, _)| *demand == name);
            let name = match name {
                "dbname" => "database",
                "hostaddr" => "host",
                other => other,
            };
            is_known.then(|| name.to_owned())
        };
        let settings = Settings::read(options, NAME, SCHEMES, known, &around)?;
        for (name, values) in DEMANDS {
            if let Some(value) = settings.get(name).filter(|value| !values.contains(&value.as_str())) {
                let variable = variable_of(name);
                return Err(format!(
                    "{name}={value} ({variable}) asks for something that dlock does not do with postgres; leave it out"
                ));
            }
        }
        let user = settings.user()?;
        let name = settings.get("database").unwrap_or_else(|| user.clone());
        let password = options.password.clone().or_else(|| settings.get("password").map(Secret::new));
        let passwords = settings.get("passfile").map(PathBuf::from);
        let server = |place: Place| {
            let [host, port] = called(&place);
            let in_file = || filed(passwords.as_deref()?, [host, port, name.clone(), user.clone()]);
            Server { password: password.clone().or_else(in_file), place }
        };
        let servers = settings.places(PORT, place)?.into_iter().map(server).collect();
        let given = &options.tls;
        // Any server can have a certificate of an authority that the system trusts.
        let is_system =
            given.authority.is_none() && settings.get("sslrootcert").is_some_and(|path| path == "system");
        let mode = match settings.get("sslmode") {
            Some(text) => Mode::parse("sslmode", MODES, &text)?,
            // Certificates or a server's name imply checking.
            None if is_system || given.authority.is_some() || given.server_name.is_some() => {
                Mode::VerifyIdentity
            }
            None if given.identity.is_some() => Mode::Required,
            None => Mode::Preferred,
        };
        if is_system && mode < Mode::VerifyIdentity {
            let what = "sslrootcert=system (PGSSLROOTCERT) requires verify-full, and a weaker sslmode \
                        (PGSSLMODE) is set; leave it out";
            return Err(what.to_owned());
        }
        let tls = settings.tls(mode, ["sslrootcert", "sslcert", "sslkey"])?;
        let tables = Tables::under(options.prefix.as_deref(), '"')?;
        let database = Database { servers, user, name, mode, tls, tables };
        Ok(Self { database, options: settings.get("options") })
    }
}

/// Returns the place of a server. Its host may be the directory of a socket; without a host it is that of this host's
/// socket, if there is one, as for psql.
fn place(host: &str, _: bool, port: u16) -> Place {
    let socket = |directory: &str| Path::new(directory).join(format!(".s.PGSQL.{port}"));
    let directory = match host {
        "" => SOCKETS.into_iter().find(|directory| socket(directory).exists()),
        host => Some(host).filter(|host| host.starts_with('/')),
    };
    let host = if host.is_empty() { "localhost" } else { host };
    let tcp = || Place::Tcp(HostPort { host: host.to_owned(), port });
    directory.map_or_else(tcp, |directory| Place::Socket(socket(directory)))
}

/// Returns the host and the port of a server in files with passwords.
fn called(place: &Place) -> [String; 2] {
    match place {
        Place::Tcp(at) => [at.host.clone(), at.port.to_string()],
        Place::Socket(path) => {
            let path = path.to_string_lossy();
            let (directory, port) = path.rsplit_once("/.s.PGSQL.").unwrap_or((&path, ""));
            // libpq uses this name for the default sockets.
            let host = if SOCKETS.contains(&directory) { "localhost" } else { directory };
            [host, port].map(str::to_owned)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::assert_refused;
    use crate::backend::sql::dialect::Dialect as _;
    use crate::net::credentials::{Pem, Tls};

    fn within(options: &Options, variables: &[(&str, &str)]) -> Result<Postgres, String> {
        let variable = |name: &str| {
            let found = variables.iter().find(|(set, _)| *set == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        Postgres::within(options, None, &variable)
    }

    fn parsed(endpoints: &[&str], variables: &[(&str, &str)]) -> Postgres {
        within(&Options::at(endpoints), variables).expect("valid")
    }

    fn password(config: &Postgres) -> Option<Secret> {
        config.database.servers[0].password.clone()
    }

    #[test]
    fn addresses_are_read_as_documented() {
        for (endpoints, identity) in [
            (&["postgres://you@h"] as &[&str], "postgres://h:5432/you"),
            (&["postgresql://you@h:7/d"], "postgres://h:7/d"),
            (&["POSTGRES://you@h:7"], "postgres://h:7/you"),
            (&["h:7/d"], "postgres://h:7/d"),
            (&["postgres://b:2,a/d"], "postgres://a:5432,b:2/d"),
            (&["postgres://b:2/d", "postgres://a/d"], "postgres://a:5432,b:2/d"),
            (&["postgres://[::1]:7/d"], "postgres://[::1]:7/d"),
            (&["postgres://%2Frun%2Fpg:7/d"], "postgres:///run/pg/.s.PGSQL.7/d"),
            (&["postgres:///d?host=/run/pg&port=8"], "postgres:///run/pg/.s.PGSQL.8/d"),
            (&["postgres:///?hostaddr=::1&dbname=d"], "postgres://[::1]:5432/d"),
        ] {
            assert_eq!(parsed(endpoints, &[]).identity(), identity, "{endpoints:?}");
        }
    }

    #[test]
    fn missing_settings_come_from_libpq_variables() {
        let variables = [
            ("PGHOST", "a,b"),
            ("PGPORT", "1,2"),
            ("PGUSER", "u"),
            ("PGDATABASE", "d"),
            ("PGPASSWORD", "p"),
            ("PGSSLMODE", "disable"),
        ];
        let config = parsed(&[], &variables);
        assert_eq!(
            (config.identity().as_str(), config.database.user.as_str()),
            ("postgres://a:1,b:2/d", "u")
        );
        assert_eq!(config.database.mode, Mode::Disabled);
        assert_eq!(config.database.servers[1].password, Some(Secret::new("p")));
        let config = parsed(&["postgres://x@h:9/e?sslmode=require&options=-c%20x.y=z"], &variables);
        assert_eq!((config.identity().as_str(), config.database.user.as_str()), ("postgres://h:9/e", "x"));
        assert_eq!((config.database.mode, config.options.as_deref()), (Mode::Required, Some("-c x.y=z")));
        let numeric = [&variables[..], &[("PGHOSTADDR", "127.0.0.1")]].concat();
        assert_eq!(parsed(&[], &numeric).identity(), "postgres://127.0.0.1:1/d");
    }

    #[test]
    fn a_login_is_taken_off_and_stays_secret() {
        let config = parsed(&["postgres://me:p%40ss@h/d"], &[]);
        assert_eq!(password(&config), Some(Secret::new("p@ss")));
        assert!(!format!("{config:?}{}", config.identity()).contains("p@ss"));
        assert_eq!(password(&parsed(&["postgres://h/d?password=s%20p"], &[])), Some(Secret::new("s p")));
        let given = Options { user: Some("you".into()), ..Options::at(&["postgres://me@h"]) };
        assert_eq!(within(&given, &[]).expect("valid").database.user, "you");
    }

    #[test]
    fn servers_have_names_in_files_with_passwords() {
        let name = |endpoint: &str| called(&parsed(&[endpoint], &[]).database.servers[0].place).join(" ");
        assert_eq!(name("postgres://h:7/d"), "h 7");
        assert_eq!(name("postgres:///d?host=/run/pg"), "/run/pg 5432");
        assert_eq!(name("postgres:///d?host=/var/run/postgresql"), "localhost 5432");
    }

    #[test]
    fn option_names_an_authority_and_enables_verification() {
        let tls = Tls { server_name: Some("x".into()), ..Tls::default() };
        let at = |endpoint: &str| within(&Options { tls: tls.clone(), ..Options::at(&[endpoint]) }, &[]);
        assert_eq!(at("postgres://h/d").expect("valid").database.mode, Mode::VerifyIdentity);
        assert_refused(at("postgres://h/d?sslmode=disable"), "does without encryption");
        assert_eq!(parsed(&["postgres://h/d"], &[]).database.mode, Mode::Preferred);
    }

    #[test]
    fn authorities_of_the_system_are_for_full_verification() {
        let variables = [("PGSSLROOTCERT", "system")];
        let mode = |endpoint: &str| parsed(&[endpoint], &variables).database.mode;
        assert_eq!(mode("postgres://h/d"), Mode::VerifyIdentity);
        assert_eq!(mode("postgres://h/d?sslmode=verify-full"), Mode::VerifyIdentity);
        for weaker in ["disable", "prefer", "require", "verify-ca"] {
            let at = Options::at(&[&format!("postgres://h/d?sslmode={weaker}")]);
            let found = within(&at, &variables);
            assert_refused(found, "sslrootcert=system (PGSSLROOTCERT) requires verify-full");
        }
        // An option takes the place of the setting.
        let authority = Some(Pem::new(Vec::new()));
        let tls = Tls { authority, ..Tls::default() };
        let at = Options { tls, ..Options::at(&["postgres://h/d?sslmode=verify-ca"]) };
        assert_eq!(within(&at, &variables).expect("valid").database.mode, Mode::VerifyCa);
    }

    #[test]
    fn unreadable_authority_is_an_error() {
        let home = std::env::temp_dir().join(format!("dlock-home-{}", std::process::id()));
        let at = Options::at(&["postgres://h/d?sslmode=require"]);
        let config = || Postgres::within(&at, Some(&home), &|_| None);
        assert!(config().expect("there is no file").database.tls.authority.is_none());
        // A directory in its place cannot be read, not even by root.
        std::fs::create_dir_all(home.join(".postgresql/root.crt")).expect("a new directory");
        let found = config();
        std::fs::remove_dir_all(&home).expect("removes");
        assert_refused(found, "root.crt cannot be read");
    }

    #[test]
    fn settings_of_libpq_are_taken_or_refused() {
        let config = |settings: &str| within(&Options::at(&[&format!("postgres://h/d?{settings}")]), &[]);
        let taken = "application_name=ci&connect_timeout=10&gssencmode=prefer&sslcertmode=allow&\
                     channel_binding=prefer&target_session_attrs=read-write&requiressl=0";
        assert_eq!(config(taken).expect("taken").database, config("").expect("plain").database);
        for (settings, part) in [
            (
                "target_session_attrs=read-only",
                "target_session_attrs=read-only (PGTARGETSESSIONATTRS) asks for",
            ),
            ("channel_binding=require", "leave it out"),
            ("require_auth=scram-sha-256", "leave it out"),
            ("slmode=disable", "no setting"),
            ("sslmode=on", "not an sslmode"),
            ("sslcert=/dev/null", "without the other"),
            ("sslkey=/nonexistent", "sslkey"),
        ] {
            assert_refused(config(settings), part);
        }
        assert_refused(within(&Options::at(&["h/d"]), &[("PGSERVICE", "ops")]), "service=ops (PGSERVICE)");
    }

    #[test]
    fn invalid_address_is_refused_with_reason() {
        for (endpoint, part) in [
            ("postgres://h:x", "not HOST:PORT"),
            ("postgres://%zz@h", "hexadecimal"),
            ("postgres://[::1/d", "not HOST:PORT"),
        ] {
            assert_refused(within(&Options::at(&[endpoint]), &[]), part);
        }
    }
}
