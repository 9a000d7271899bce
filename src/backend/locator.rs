//! From an address to a backend; the only file that names the concrete ones.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::etcd::{EtcdBackend, EtcdConfig};
use super::file::{FileBackend, FileConfig};
use super::redis::redlock::{RedlockBackend, RedlockConfig};
use super::redis::{RedisBackend, RedisConfig};
use super::sql::{SqlBackend, SqlConfig};
use super::zookeeper::{ZkBackend, ZkConfig};
use super::{Backend, Options};
use crate::lock::Result;

/// Where a lock service is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Address {
    /// A directory of this host.
    File(FileConfig),
    /// A ZooKeeper ensemble.
    Zk(ZkConfig),
    /// An etcd cluster.
    Etcd(EtcdConfig),
    /// A Redis.
    Redis(RedisConfig),
    /// Several independent Redis servers.
    Redlock(RedlockConfig),
    /// A SQL database.
    Sql(SqlConfig),
}

impl Address {
    /// The backend's name, as given to `--backend`.
    pub fn backend(&self) -> &'static str {
        match self {
            Self::File(_) => "file",
            Self::Zk(_) => "zk",
            Self::Etcd(_) => "etcd",
            Self::Redis(_) | Self::Redlock(_) => "redis",
            Self::Sql(config) => config.backend(),
        }
    }

    /// The statements that make the tables, if the service has tables.
    pub fn schema(&self) -> Option<String> {
        match self {
            Self::Sql(config) => Some(config.schema()),
            _ => None,
        }
    }
}

/// An address that leads nowhere: a usage error. The text is one line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LocatorError(String);

impl LocatorError {
    /// One that says `reason`, without secrets.
    pub fn new(reason: impl Into<String>) -> Self {
        Self(reason.into())
    }
}

impl fmt::Display for LocatorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for LocatorError {}

/// The names of backends and what their addresses start with.
const BACKENDS: [(&str, &[&str]); 6] = [
    ("file", &["file:"]),
    ("etcd", &["http://", "https://", "etcd://"]),
    ("redis", &["redis://", "rediss://", "unix:", "redis+sentinel://", "redis+cluster://"]),
    ("zk", &["zk://"]),
    ("mysql", &["mysql://", "mariadb://"]),
    ("postgres", &["postgres://", "postgresql://"]),
];

/// Those that this build has.
const BUILT_IN: [&str; 6] = ["file", "etcd", "redis", "zk", "mysql", "postgres"];

/// Opens the backend at `address`.
///
/// Errors: as the backend's own opening.
pub fn open(address: &Address) -> Result<Arc<dyn Backend>> {
    match address {
        Address::File(config) => Ok(Arc::new(FileBackend::open(config)?)),
        Address::Zk(config) => Ok(Arc::new(ZkBackend::open(config))),
        Address::Etcd(config) => Ok(Arc::new(EtcdBackend::open(config))),
        Address::Redis(config) => Ok(Arc::new(RedisBackend::open(config.clone()))),
        Address::Redlock(config) => Ok(Arc::new(RedlockBackend::open(config.clone()))),
        Address::Sql(config) => Ok(Arc::new(SqlBackend::open(config))),
    }
}

/// Reads the connection options: the backend is the one named, else the one that the endpoint's scheme says,
/// else `file`.
pub fn parse(options: &Options) -> std::result::Result<Address, LocatorError> {
    match backend_of(options)? {
        "file" => file(options),
        "redis" => redis(options).map_err(LocatorError),
        "etcd" => {
            EtcdConfig::parse(options).map(Address::Etcd).map_err(|error| LocatorError(error.to_string()))
        }
        "zk" => ZkConfig::parse(options).map(Address::Zk).map_err(LocatorError),
        name if BUILT_IN.contains(&name) => {
            SqlConfig::parse(name, options).map(Address::Sql).map_err(LocatorError)
        }
        name => Err(LocatorError(format!(
            "the backend {name} is not part of this build, which has {}",
            BUILT_IN.join(", ")
        ))),
    }
}

fn backend_of(options: &Options) -> std::result::Result<&'static str, LocatorError> {
    let said = options.endpoints.iter().map(|e| scheme_of(e)).collect::<std::result::Result<Vec<_>, _>>()?;
    let said = said.into_iter().flatten().next();
    let Some(name) = &options.backend else { return Ok(said.unwrap_or("file")) };
    let name = known(name)?;
    match said.filter(|s| *s != name) {
        None => Ok(name),
        Some(other) => {
            Err(LocatorError(format!("an address of {other} does not lead to the backend {name}")))
        }
    }
}

fn redis(options: &Options) -> std::result::Result<Address, String> {
    Ok(match RedlockConfig::parse(options)? {
        Some(several) => Address::Redlock(several),
        None => Address::Redis(RedisConfig::parse(options)?),
    })
}

fn file(options: &Options) -> std::result::Result<Address, LocatorError> {
    if options.endpoints.len() > 1 {
        return Err(LocatorError("the backend file takes one directory as its endpoint".to_owned()));
    }
    if options.backend.is_none()
        && options.endpoints.is_empty()
        && (options.user.is_some() || options.password.is_some() || options.tls.is_given())
    {
        let reason = "a user, password or certificate is given, and no service; say which with --backend or --endpoint";
        return Err(LocatorError(reason.to_owned()));
    }
    if let (None, Some(endpoint)) = (&options.backend, options.endpoints.first())
        && endpoint.split(',').all(is_host_and_port)
        && !Path::new(endpoint).exists()
    {
        return Err(LocatorError(format!(
            "{endpoint} could be a server or a directory; say which service with --backend, or ./{endpoint}"
        )));
    }
    let directory = options.endpoints.first().map(|endpoint| directory_of(endpoint)).transpose()?;
    let (prefix, allow_network_fs) = (options.prefix.clone(), options.allow_network_fs);
    Ok(Address::File(FileConfig { directory, prefix, allow_network_fs }))
}

/// The backend that `endpoint` names by how it starts.
fn scheme_of(endpoint: &str) -> std::result::Result<Option<&'static str>, LocatorError> {
    let lower = endpoint.to_ascii_lowercase();
    for (name, schemes) in BACKENDS {
        if schemes.iter().any(|s| lower.starts_with(s)) {
            return Ok(Some(name));
        }
    }
    match endpoint.split_once("://") {
        Some((scheme, _)) if !scheme.contains('/') => {
            let schemes = BACKENDS.iter().flat_map(|(_, s)| *s).map(|s| s.trim_end_matches([':', '/']));
            Err(LocatorError(format!("no backend has addresses with {scheme}://{}", hint(scheme, schemes))))
        }
        _ => Ok(None),
    }
}

fn known(name: &str) -> std::result::Result<&'static str, LocatorError> {
    let found = BACKENDS.iter().find(|(n, _)| *n == name).map(|(n, _)| *n);
    found.ok_or_else(|| {
        let names = BACKENDS.iter().map(|(n, _)| *n);
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

fn directory_of(endpoint: &str) -> std::result::Result<PathBuf, LocatorError> {
    let path = match endpoint.get(..5) {
        Some(scheme) if scheme.eq_ignore_ascii_case("file:") => &endpoint[5..],
        _ => endpoint,
    };
    let path = match path.strip_prefix("//") {
        // file:///DIR; file://HOST/DIR would be another host's.
        Some(rest) if endpoint.len() != path.len() => {
            if !rest.starts_with('/') {
                return Err(LocatorError(format!("{endpoint} names a host; write file:/DIRECTORY")));
            }
            rest
        }
        _ => path,
    };
    if path.is_empty() {
        return Err(LocatorError("the lock directory cannot be empty".to_owned()));
    }
    Ok(PathBuf::from(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(backend: Option<&str>, endpoints: &[&str]) -> std::result::Result<Option<PathBuf>, String> {
        let endpoints: Vec<String> = endpoints.iter().map(|e| (*e).to_owned()).collect();
        let backend = backend.map(str::to_owned);
        match parse(&Options { backend, endpoints, ..Options::default() }) {
            Ok(Address::File(config)) => Ok(config.directory),
            Ok(Address::Etcd(config)) => Ok(Some(config.endpoints.join(",").into())),
            Ok(Address::Redis(config)) => Ok(Some(config.identity().into())),
            Ok(Address::Redlock(config)) => Ok(Some(config.identity().into())),
            Ok(Address::Zk(config)) => Ok(Some(config.address().into())),
            Ok(Address::Sql(config)) => Ok(Some(config.identity().into())),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn directories_are_file() {
        assert_eq!(said(None, &[]), Ok(None));
        for (endpoint, path) in [
            ("/run/locks", "/run/locks"),
            ("locks", "locks"),
            ("file:/run/locks", "/run/locks"),
            ("FILE:///run/locks", "/run/locks"),
            ("file:locks", "locks"),
        ] {
            assert_eq!(said(None, &[endpoint]), Ok(Some(PathBuf::from(path))), "{endpoint}");
            assert_eq!(said(Some("file"), &[endpoint]), Ok(Some(PathBuf::from(path))), "{endpoint}");
        }
    }

    #[test]
    fn web_addresses_are_etcd() {
        for (backend, endpoints, urls) in [
            (None, &["https://h"] as &[&str], "https://h:2379"),
            (Some("etcd"), &[], "http://127.0.0.1:2379"),
            (Some("etcd"), &["a:1,b"], "http://a:1,http://b:2379"),
        ] {
            assert_eq!(said(backend, endpoints), Ok(Some(urls.into())));
        }
    }

    #[test]
    fn ensembles_are_zk() {
        for (backend, endpoints, servers) in [
            (None, &["zk://h:1"] as &[&str], "h:1"),
            (Some("zk"), &["a,b/c"], "a:2181,b:2181/c"),
            (Some("zk"), &[], "localhost:2181"),
        ] {
            assert_eq!(said(backend, endpoints), Ok(Some(servers.into())));
        }
    }

    #[test]
    fn databases_are_found_by_their_scheme() {
        for (backend, endpoint, found) in [
            (None, "postgresql://u@h/d", "postgres://h:5432/d"),
            (Some("postgres"), "u@h:7/d", "postgres://h:7/d"),
        ] {
            assert_eq!(said(backend, &[endpoint]), Ok(Some(found.into())));
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
            (Some("etcd"), &["h:1/x"] as &[&str], "no address of an etcd server"),
            (None, &["redis://h:x"], "no HOST:PORT"),
            (None, &["mariadb://u@h"], "no database is named"),
            (None, &["h:1"], "could be a server or a directory"),
            (None, &["10.0.0.1:2379,10.0.0.2:2379"], "say which service with --backend"),
            (Some("fil"), &[], "did you mean file?"),
            (None, &["rediz://h"], "did you mean redis?"),
            (Some("file"), &["http://h:1"], "an address of etcd does not lead to the backend file"),
            (None, &["/a", "/b"], "takes one directory"),
            (None, &["file://host/a"], "names a host"),
            (None, &["file:"], "cannot be empty"),
            (None, &["zk://h:x"], "is no server"),
        ] {
            let error = said(backend, endpoints).expect_err("an error");
            assert!(error.contains(part) && !error.contains('\n'), "{error}");
        }
    }
}
