//! The services that there are, and which of them the connection options mean. The only file that names them.

use std::fmt;
use std::path::Path;

use super::service::{Address, LOGIN, Service, ServiceOption};
use super::{Options, etcd, file, redis, sql, zookeeper};

/// The services, in the order of the help.
pub static SERVICES: [&Service; 6] =
    [&file::SERVICE, &etcd::SERVICE, &redis::SERVICE, &zookeeper::SERVICE, &sql::MYSQL, &sql::POSTGRES];

/// The one that is meant if nobody names one.
static DEFAULT: &Service = &file::SERVICE;

/// An address that leads nowhere: a usage error. The text is one line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LocatorError(String);

impl fmt::Display for LocatorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for LocatorError {}

/// Reads the connection options: the service is the one named, else the one that the endpoint's scheme says,
/// else `file`.
pub fn parse(options: &Options) -> Result<Box<dyn Address>, LocatorError> {
    (service_of(options)?.parse)(options).map_err(LocatorError)
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
    let names = SERVICES.map(|service| service.name);
    let (last, others) = names.split_last().unwrap_or((&"", &[]));
    format!("{} {word} {last}", others.join(", "))
}

fn service_of(options: &Options) -> Result<&'static Service, LocatorError> {
    let said = options.endpoints.iter().map(|e| by_scheme(e)).collect::<Result<Vec<_>, _>>()?;
    let said = said.into_iter().flatten().next();
    let Some(name) = &options.backend else { return said.map_or_else(|| by_default(options), Ok) };
    let named = by_name(name)?;
    match said.filter(|said| said.name != named.name) {
        None => Ok(named),
        Some(other) => Err(LocatorError(format!(
            "an address of {} does not lead to the backend {}",
            other.name, named.name
        ))),
    }
}

/// The service that is meant if nothing names one, unless another may be meant.
fn by_default(options: &Options) -> Result<&'static Service, LocatorError> {
    let Some(endpoint) = options.endpoints.first() else {
        if options.user.is_some() || options.password.is_some() || options.tls.is_given() {
            let reason = "a user, password or certificate is given, and no service; say which with --backend or --endpoint";
            return Err(LocatorError(reason.to_owned()));
        }
        return Ok(DEFAULT);
    };
    if endpoint.split(',').all(is_host_and_port) && !Path::new(endpoint).exists() {
        return Err(LocatorError(format!(
            "{endpoint} could be a server or a directory; say which service with --backend, or ./{endpoint}"
        )));
    }
    Ok(DEFAULT)
}

/// The service that `endpoint` names by how it starts.
fn by_scheme(endpoint: &str) -> Result<Option<&'static Service>, LocatorError> {
    let lower = endpoint.to_ascii_lowercase();
    let found =
        SERVICES.iter().find(|service| service.schemes.iter().any(|scheme| lower.starts_with(scheme)));
    match (found, endpoint.split_once("://")) {
        (None, Some((scheme, _))) if !scheme.contains('/') => {
            let schemes = SERVICES.iter().flat_map(|service| service.schemes);
            let near = hint(scheme, schemes.map(|known| known.trim_end_matches([':', '/'])));
            Err(LocatorError(format!("no backend has addresses with {scheme}://{near}")))
        }
        _ => Ok(found.copied()),
    }
}

fn by_name(name: &str) -> Result<&'static Service, LocatorError> {
    let found = SERVICES.iter().find(|service| service.name == name);
    found.copied().ok_or_else(|| {
        let names = SERVICES.iter().map(|service| service.name);
        LocatorError(format!("there is no backend {name:?}{}", hint(name, names)))
    })
}

/// The nearest of `all`, as a question.
fn hint<'a>(text: &str, all: impl Iterator<Item = &'a str>) -> String {
    let scored = all.map(|a| (strsim::jaro_winkler(&text.to_ascii_lowercase(), a), a));
    let best = scored.max_by(|a, b| a.0.total_cmp(&b.0)).filter(|(score, _)| *score > 0.6);
    best.map(|(_, a)| format!("; did you mean {a}?")).unwrap_or_default()
}

/// Whether `text` reads as HOST:PORT. A lock directory of that name would hide a forgotten `--backend`.
fn is_host_and_port(text: &str) -> bool {
    text.rsplit_once(':')
        .is_some_and(|(host, port)| !host.is_empty() && !host.contains('/') && port.parse::<u16>().is_ok())
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
            let endpoints = endpoints.iter().map(|e| (*e).to_owned()).collect();
            let options = Options { backend: Some(backend.to_owned()), endpoints, ..Options::default() };
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
            (Some("etcd"), &["h:1/x"] as &[&str], "no address of an etcd server"),
            (None, &["redis://h:x"], "no HOST:PORT"),
            (None, &["mariadb://u@h"], "no database is named"),
            (None, &["h:1"], "could be a server or a directory"),
            (None, &["10.0.0.1:2379,10.0.0.2:2379"], "say which service with --backend"),
            (Some("fil"), &[], "did you mean file?"),
            (None, &["rediz://h"], "did you mean redis?"),
            (Some("file"), &["http://h:1"], "an address of etcd does not lead to the backend file"),
            (None, &["zk://h:x"], "is no server"),
        ] {
            let error = said(backend, endpoints).expect_err("an error");
            assert!(error.contains(part) && !error.contains('\n'), "{error}");
        }
    }
}
