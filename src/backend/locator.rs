//! The services that there are, and which of them the connection options mean. The only file that names them.

use std::fmt;
use std::path::Path;

#[cfg(feature = "etcd")]
use super::etcd;
#[cfg(feature = "memcached")]
use super::memcached;
#[cfg(feature = "redis")]
use super::redis;
use super::service::{Address, LOGIN, Service, ServiceOption};
#[cfg(feature = "_sql")]
use super::sql;
#[cfg(feature = "zk")]
use super::zookeeper;
use super::{Options, file};
use crate::net::address::{after, is_directory, without_login};
use crate::net::passwords::{has_password, may_be_quoted, without_passwords};

/// The services of this build, in the order of the help.
pub static SERVICES: &[&Service] = &[
    &file::SERVICE,
    #[cfg(feature = "etcd")]
    &etcd::SERVICE,
    #[cfg(feature = "redis")]
    &redis::SERVICE,
    #[cfg(feature = "zk")]
    &zookeeper::SERVICE,
    #[cfg(feature = "mysql")]
    &sql::MYSQL,
    #[cfg(feature = "postgres")]
    &sql::POSTGRES,
    #[cfg(feature = "memcached")]
    &memcached::SERVICE,
];

/// A service that is a feature of the same name, which a build may leave out.
struct Optional {
    name: &'static str,
    schemes: &'static [&'static str],
}

/// What people may ask for though it was left out.
const OPTIONAL: [Optional; 6] = [
    Optional { name: "etcd", schemes: &["http://", "https://", "etcd://"] },
    Optional {
        name: "redis",
        schemes: &["redis://", "rediss://", "unix:", "redis+sentinel://", "redis+cluster://"],
    },
    Optional { name: "zk", schemes: &["zk://"] },
    Optional { name: "mysql", schemes: &["mysql://", "mariadb://"] },
    Optional { name: "postgres", schemes: &["postgres://", "postgresql://"] },
    Optional { name: "memcached", schemes: &["memcached://", "memcacheds://"] },
];

/// What other programs call the schemes of services, where that is not like the name.
const OTHER_NAMES: [(&str, &str); 6] = [
    ("pgsql", "postgres"),
    ("psql", "postgres"),
    ("pg", "postgres"),
    ("valkey", "redis"),
    ("valkeys", "rediss"),
    ("zookeeper", "zk"),
];

/// The one that is meant if nobody names one.
static DEFAULT: &Service = &file::SERVICE;

/// An address that leads nowhere: a usage error. The text is one line without secrets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LocatorError {
    reason: String,
    /// The options that it is about, without dashes.
    pub about: &'static [&'static str],
}

impl LocatorError {
    fn new(about: &'static [&'static str], reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), about }
    }

    /// The same, or how to write the password in an endpoint of which it may quote a piece.
    fn without_password_in(self, endpoints: &[String]) -> Self {
        match endpoints.iter().find(|endpoint| may_be_quoted(endpoint, &self.reason)) {
            None => self,
            Some(endpoint) => {
                let shown = without_passwords(endpoint);
                let reason = format!(
                    "{shown} is not understood: a password stands before the @, with , / ? and # as %2C, %2F, %3F and %23"
                );
                Self::new(&["endpoint"], reason)
            }
        }
    }
}

impl fmt::Display for LocatorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for LocatorError {}

/// Reads the connection options: the service is the one named, else the one that the endpoint's scheme says,
/// else `file`.
pub fn parse(options: &Options) -> Result<Box<dyn Address>, LocatorError> {
    let parse = |service: &Service| {
        (service.parse)(options).map_err(|reason| LocatorError::new(guilty(service, options), reason))
    };
    service_of(options).and_then(parse).map_err(|error| error.without_password_in(&options.endpoints))
}

/// Which of the options `service` did not understand: the prefix, if it understands the others without.
fn guilty(service: &Service, options: &Options) -> &'static [&'static str] {
    let without_prefix = Options { prefix: None, ..options.clone() };
    if options.prefix.is_some() && (service.parse)(&without_prefix).is_ok() {
        &["prefix"]
    } else {
        &["endpoint", "backend"]
    }
}

/// Whether users, passwords and certificates may count at the service that `options` mean. They do if none is named: whoever
/// gives them has forgotten it.
pub fn may_log_in(options: &Options) -> bool {
    let is_named = options.backend.is_some() || !options.endpoints.is_empty();
    !is_named || service_of(options).is_ok_and(|service| service.has_login)
}

/// The options of services that count for nothing at `address`.
pub fn useless(address: &dyn Address) -> impl Iterator<Item = &'static ServiceOption> {
    let (own, has_login) = (address.options(), address.service().has_login);
    let login = LOGIN.iter().filter(move |_| !has_login);
    let others = SERVICES.iter().flat_map(|service| service.options);
    login.chain(others.filter(|option| !own.iter().any(|used| used.name == option.name)))
}

/// The names of all services, with `word` before the last one: `file, etcd or redis`.
pub fn names(word: &str) -> String {
    let names: Vec<&str> = SERVICES.iter().map(|service| service.name).collect();
    let (last, others) = names.split_last().unwrap_or((&"", &[]));
    format!("{} {word} {last}", others.join(", "))
}

fn service_of(options: &Options) -> Result<&'static Service, LocatorError> {
    let said = by_schemes(&options.endpoints)?;
    let Some(name) = &options.backend else { return said.map_or_else(|| by_default(options), Ok) };
    let named = by_name(name)?;
    let wrong = |reason: String| Err(LocatorError::new(&["endpoint", "backend"], reason));
    if let Some(other) = said.filter(|said| said.name != named.name) {
        return wrong(format!("an address of {} does not lead to the backend {}", other.name, named.name));
    }
    if named.name != DEFAULT.name
        && let Some(directory) = options.endpoints.iter().find(|endpoint| is_directory(endpoint))
    {
        return wrong(format!("{directory} is a directory, not an address of the backend {}", named.name));
    }
    Ok(named)
}

/// The service that is meant if nothing names one, unless another may be meant.
fn by_default(options: &Options) -> Result<&'static Service, LocatorError> {
    let Some(endpoint) = options.endpoints.first() else {
        if options.user.is_some() || options.password.is_some() || options.tls.is_given() {
            let reason = "a user, password or certificate is given, and no service; say which with --backend or --endpoint";
            return Err(LocatorError::new(&[], reason));
        }
        return Ok(DEFAULT);
    };
    // A lock directory named like a server would hide a forgotten scheme, and lock this host alone.
    // One with a password in it is no directory's.
    let is_path = endpoint.contains('/') && !has_password(endpoint);
    if endpoint.is_empty() || is_path || Path::new(endpoint).is_dir() {
        return Ok(DEFAULT);
    }
    // What stands before the host may be a password.
    let endpoint = without_login(endpoint);
    let remote = SERVICES.iter().find(|service| service.has_login && endpoint.starts_with(service.name));
    let directory = if options.endpoints_in.is_some() {
        "the whole path of the directory".to_owned()
    } else {
        format!("./{endpoint}")
    };
    let remedy = match remote {
        Some(service) => format!("write {}://{endpoint}, or {directory}", service.name),
        None => format!("say which service with --backend, or write {directory}"),
    };
    let reason = format!("{endpoint} could be a server or a directory: {remedy}");
    Err(LocatorError::new(&["endpoint"], reason))
}

/// The service that the endpoints name by how they start, those of comma lists too.
fn by_schemes(endpoints: &[String]) -> Result<Option<&'static Service>, LocatorError> {
    let mut said: Option<&'static Service> = None;
    // A path may contain anything.
    let addresses = endpoints.iter().filter(|endpoint| !endpoint.starts_with(['/', '.']));
    for address in addresses.flat_map(|endpoint| endpoint.split(',')).map(str::trim) {
        refuse_left_out(
            SERVICES,
            |optional| optional.schemes.iter().any(|scheme| after(address, scheme).is_some()),
            &["endpoint"],
        )?;
        refuse_unknown_scheme(address)?;
        let Some(service) = by_scheme(address) else { continue };
        if let Some(other) = said.filter(|said| said.name != service.name) {
            let reason = format!("endpoints of two services are given, {} and {}", other.name, service.name);
            return Err(LocatorError::new(&["endpoint"], reason));
        }
        said = Some(service);
    }
    Ok(said)
}

fn by_scheme(endpoint: &str) -> Option<&'static Service> {
    let starts_with = |scheme: &&str| after(endpoint, scheme).is_some();
    SERVICES.iter().find(|service| service.schemes.iter().any(starts_with)).copied()
}

fn refuse_unknown_scheme(endpoint: &str) -> Result<(), LocatorError> {
    match endpoint.split_once("://") {
        Some((scheme, _)) if !scheme.contains('/') && by_scheme(endpoint).is_none() => {
            let schemes = SERVICES.iter().flat_map(|service| service.schemes);
            // Some libraries put the name of their driver behind a plus sign.
            let plain = scheme.split('+').next().unwrap_or_default().to_ascii_lowercase();
            let same = OTHER_NAMES.iter().find(|(name, _)| *name == plain).map(|(_, own)| *own);
            let near =
                same.or_else(|| nearest(&plain, schemes.map(|known| known.trim_end_matches([':', '/']))));
            let hint = near.map(|near| format!("; did you mean {near}?")).unwrap_or_default();
            let reason = format!("no backend has addresses with {scheme}://{hint}");
            Err(LocatorError::new(&["endpoint"], reason))
        }
        _ => Ok(()),
    }
}

/// An error if `services`, those of this build, lack the one of which `is_meant` says that it is meant.
fn refuse_left_out(
    services: &[&Service],
    is_meant: impl Fn(&Optional) -> bool,
    about: &'static [&'static str],
) -> Result<(), LocatorError> {
    let is_here = |optional: &Optional| services.iter().any(|service| service.name == optional.name);
    match OPTIONAL.iter().find(|optional| is_meant(optional) && !is_here(optional)) {
        None => Ok(()),
        Some(Optional { name, .. }) => {
            let reason = format!("this dlock was built without {name}: build it with the feature {name}");
            Err(LocatorError::new(about, reason))
        }
    }
}

fn by_name(name: &str) -> Result<&'static Service, LocatorError> {
    refuse_left_out(SERVICES, |optional| optional.name == name, &["backend"])?;
    let found = SERVICES.iter().find(|service| service.name == name);
    found.copied().ok_or_else(|| {
        let hint = match nearest(name, SERVICES.iter().map(|service| service.name)) {
            Some(near) => format!("did you mean {near}?"),
            None => format!("the backends are {}", names("and")),
        };
        LocatorError::new(&["backend"], format!("there is no backend {name:?}; {hint}"))
    })
}

/// The one of `all` that `text` is most like, if it is like one.
fn nearest<'a>(text: &str, all: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let scored = all.map(|a| (strsim::jaro_winkler(&text.to_ascii_lowercase(), a), a));
    scored.max_by(|a, b| a.0.total_cmp(&b.0)).filter(|(score, _)| *score > 0.7).map(|(_, a)| a)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The service and the place that the options mean.
    fn said(backend: Option<&str>, endpoints: &[&str]) -> Result<(&'static str, String), String> {
        let endpoints: Vec<String> = endpoints.iter().map(|e| (*e).to_owned()).collect();
        let backend = backend.map(str::to_owned);
        match parse(&Options { backend, endpoints, ..Options::default() }) {
            Ok(address) => Ok((address.service().name, address.place())),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn a_scheme_or_a_name_leads_to_the_service() {
        for (backend, endpoints, service, place) in [
            (None, &["/run/locks"] as &[&str], "file", "/run/locks"),
            (None, &["FILE:///run/locks"], "file", "/run/locks"),
            (Some("file"), &["file:/run/locks"], "file", "/run/locks"),
            (None, &["https://h"], "etcd", "https://h:2379"),
            (Some("etcd"), &[], "etcd", "http://127.0.0.1:2379"),
            (Some("etcd"), &["a:1,b"], "etcd", "http://a:1,http://b:2379"),
            (None, &["REDIS://h/3"], "redis", "redis://h:6379/3"),
            (
                None,
                &["redis://a,redis://b", "redis://c"],
                "redis",
                "redis://a:6379/0,redis://b:6379/0,redis://c:6379/0",
            ),
            (None, &["zk://h:1"], "zk", "zk://h:1"),
            (Some("zk"), &["a,b/c"], "zk", "zk://a:2181,b:2181/c"),
            (Some("zk"), &[], "zk", "zk://localhost:2181"),
            (None, &["postgresql://u@h/d"], "postgres", "postgres://h:5432/d"),
            (Some("postgres"), &["u@h:7/d"], "postgres", "postgres://h:7/d"),
        ] {
            assert_eq!(said(backend, endpoints), Ok((service, place.to_owned())), "{endpoints:?}");
        }
        assert_eq!(said(None, &[]).map(|(service, _)| service), Ok("file"));
    }

    #[test]
    fn schemes_of_other_programs_are_answered_with_the_one_to_write() {
        for (endpoint, near) in [
            ("postgresql+psycopg2://h/d", "did you mean postgresql?"),
            ("mysql+pymysql://h/d", "did you mean mysql?"),
            ("PGSQL://h/d", "did you mean postgres?"),
            ("valkeys://h", "did you mean rediss?"),
            ("zookeeper://h", "did you mean zk?"),
        ] {
            let error = said(None, &[endpoint]).expect_err("refused");
            assert!(error.contains(near), "{error}");
        }
    }

    #[test]
    fn service_that_was_left_out_is_named() {
        let refused = |services| refuse_left_out(services, |optional| optional.name == "etcd", &["backend"]);
        let error = refused(&SERVICES[..1]).expect_err("left out").to_string();
        assert_eq!(error, "this dlock was built without etcd: build it with the feature etcd");
        assert!(refused(SERVICES).is_ok());
    }

    #[test]
    fn what_may_be_left_out_is_called_as_its_folder_says() {
        let optional = OPTIONAL.iter().map(|optional| (optional.name, optional.schemes));
        assert!(SERVICES[1..].iter().map(|service| (service.name, service.schemes)).eq(optional));
    }

    #[test]
    fn no_two_services_have_one_name_or_scheme() {
        let names: Vec<&str> = SERVICES.iter().map(|service| service.name).collect();
        let schemes: Vec<&str> = SERVICES.iter().flat_map(|service| service.schemes).copied().collect();
        for all in [names, schemes] {
            for (at, one) in all.iter().enumerate() {
                let clash = |other: &&str| other.starts_with(one) || one.starts_with(*other);
                assert!(!all[..at].iter().any(clash) && *one == one.to_ascii_lowercase(), "{one}");
            }
        }
    }

    #[test]
    fn options_of_other_services_are_useless() {
        let names = |backend: &str, endpoints: &[&str]| -> Vec<&'static str> {
            let options = Options { backend: Some(backend.to_owned()), ..Options::at(endpoints) };
            let address = parse(&options).expect("an address");
            useless(&*address).map(|option| option.name).collect()
        };
        let login = ["user", "password-file", "cacert", "cert", "key", "tls-server-name"];
        assert_eq!(names("file", &[]), [&login as &[_], &["max-ttl", "zk-layout"]].concat());
        assert_eq!(names("etcd", &[]), ["allow-network-fs", "max-ttl", "zk-layout"]);
        assert_eq!(names("redis", &[]), ["allow-network-fs", "max-ttl", "zk-layout"]);
        assert_eq!(names("redis", &["a,b,c"]), ["allow-network-fs", "zk-layout"]);
        assert_eq!(names("zk", &[]), ["allow-network-fs", "max-ttl"]);
        assert_eq!(names("mysql", &["h/d"]), ["allow-network-fs", "max-ttl", "zk-layout"]);
    }

    #[test]
    fn what_may_be_a_database_is_no_directory() {
        assert_eq!(said(Some("redis"), &["/3"]), Ok(("redis", "redis://localhost:6379/3".to_owned())));
        for (endpoint, is) in
            [("/no-such-database", false), ("h/d", false), ("/d?host=/run", false), ("/a/b", true)]
        {
            assert_eq!(is_directory(endpoint), is, "{endpoint}");
        }
    }

    #[test]
    fn what_is_read_in_any_directory_means_one_directory() {
        for (backend, endpoint, part) in [
            (None, "redis1", "write redis://redis1, or the whole path"),
            (
                None,
                "./locks",
                "./locks in the attic means another directory wherever dlock is started; write the whole path",
            ),
            (Some("file"), "locks", "write the whole path"),
            (Some("file"), "etcd1:2379", "etcd1:2379 in the attic"),
            (Some("file"), "u:secret@h", "u:***@h in the attic"),
            (None, "file:locks", "write the whole path"),
        ] {
            let (backend, endpoints) = (backend.map(str::to_owned), vec![endpoint.to_owned()]);
            let options =
                Options { backend, endpoints, endpoints_in: Some("the attic"), ..Options::default() };
            let error = parse(&options).expect_err("relative").to_string();
            assert!(error.contains(part) && !error.contains("secret"), "{error}");
        }
        let endpoints = vec!["/run/locks".to_owned()];
        assert!(parse(&Options { endpoints, endpoints_in: Some("the attic"), ..Options::default() }).is_ok());
    }

    #[test]
    fn an_error_says_which_options_it_is_about() {
        for (backend, endpoint, about) in [
            (Some("consul"), "redis://h", &["backend"] as &[&str]),
            (None, "redis1", &["endpoint"]),
            (Some("redis"), "./locks", &["endpoint", "backend"]),
            (None, "redis://h:x", &["endpoint", "backend"]),
        ] {
            let (backend, endpoints) = (backend.map(str::to_owned), vec![endpoint.to_owned()]);
            let error = parse(&Options { backend, endpoints, ..Options::default() }).expect_err("an error");
            assert_eq!(error.about, about, "{error}");
        }
        for (endpoint, about) in
            [("mysql://u@h/d", &["prefix"] as &[&str]), ("mysql://u@h", &["endpoint", "backend"])]
        {
            let options = Options { prefix: Some("a-b".to_owned()), ..Options::at(&[endpoint]) };
            let error = parse(&options).expect_err("an error");
            assert_eq!(error.about, about, "{error}");
        }
    }

    #[test]
    fn every_address_in_the_readme_leads_to_a_service() {
        let text = include_str!("../../README.md");
        let in_table = text.lines().filter_map(|line| line.strip_prefix("| `"));
        let in_table = in_table.filter_map(|row| row.split('`').next()).filter(|cell| cell.contains(':'));
        let exported = text.lines().filter_map(|line| line.strip_prefix("export DLOCK_ENDPOINT="));
        let exported =
            exported.flat_map(str::split_ascii_whitespace).map(|word| word.trim_end_matches([',', ';']));
        let exported = exported.filter(|word| word.contains(':') && !word.contains('…'));
        let said = text.split("--endpoint ").skip(1).filter_map(|rest| rest.split_ascii_whitespace().next());
        let said =
            said.filter(|word| word.contains([':', '/'])).map(|word| word.trim_end_matches(['`', '.']));
        let (in_table, exported, said): (Vec<_>, Vec<_>, Vec<_>) =
            (in_table.collect(), exported.collect(), said.collect());
        assert!(
            in_table.len() > 5 && exported.len() > 1 && said.len() > 1,
            "{in_table:?} {exported:?} {said:?}"
        );
        for address in [in_table, exported, said].concat() {
            let options = Options { endpoints_in: Some("the environment"), ..Options::at(&[address]) };
            assert_eq!(parse(&options).map(|_| ()), Ok(()), "{address}");
        }
    }

    #[test]
    fn credentials_without_a_service_do_not_lead_to_a_directory() {
        let given = Options { user: Some("u".to_owned()), ..Options::default() };
        let error = parse(&given).expect_err("a forgotten service");
        assert!(error.to_string().contains("no service"), "{error}");
        let backend = Some("file".to_owned());
        assert!(parse(&Options { backend, ..given }).is_ok(), "one file may serve a whole fleet");
    }

    #[test]
    fn what_leads_nowhere_says_why() {
        for (backend, endpoints, part) in [
            (Some("etcd"), &["h:1/x"] as &[&str], "not the address of an etcd server"),
            (None, &["redis://h:x"], "not HOST:PORT"),
            (None, &["mariadb://u@h"], "no database is named"),
            (
                None,
                &["h:1"],
                "h:1 could be a server or a directory: say which service with --backend, or write ./h:1",
            ),
            (None, &["10.0.0.1:2379,10.0.0.2:2379"], "say which service with --backend"),
            (None, &["u:secret@h"], "h could be a server or a directory"),
            (None, &["redis1"], "redis1 could be a server or a directory: write redis://redis1, or ./redis1"),
            (None, &["zk1:2181,zk2:2181"], "write zk://zk1:2181,zk2:2181"),
            (Some("fil"), &[], "did you mean file?"),
            (Some("consul"), &[], "; the backends are file, etcd, redis, zk, mysql, postgres and memcached"),
            (
                Some("redis"),
                &["/run/locks"],
                "/run/locks is a directory, not an address of the backend redis",
            ),
            (Some("etcd"), &["./locks"], "./locks is a directory"),
            (Some("mysql"), &["/"], "/ is a directory"),
            (None, &["redis://a,http://b"], "endpoints of two services are given, redis and etcd"),
            (None, &["zk://a", "b,mysql://b/d"], "endpoints of two services are given, zk and mysql"),
            (None, &["rediz://h"], "did you mean redis?"),
            (None, &["redis://h,rediz://h"], "no backend has addresses with rediz://"),
            (Some("file"), &["http://h:1"], "an address of etcd does not lead to the backend file"),
            (None, &["zk://h:x"], "is not a server"),
        ] {
            let error = said(backend, endpoints).expect_err("an error");
            assert!(error.contains(part) && !error.contains('\n') && !error.contains("secret"), "{error}");
        }
    }
}
