//! The services of this build, and the choice among them by the connection options. No other file names services.

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

/// The services that users may ask for although the build left them out, each a feature of its name, and the schemes of
/// their addresses.
const OPTIONAL: [(&str, &[&str]); 6] = [
    ("etcd", &["http://", "https://", "etcd://"]),
    ("redis", &["redis://", "rediss://", "unix:", "redis+sentinel://", "redis+cluster://"]),
    ("zk", &["zk://"]),
    ("mysql", &["mysql://", "mariadb://"]),
    ("postgres", &["postgres://", "postgresql://"]),
    ("memcached", &["memcached://", "memcacheds://"]),
];

/// Names that other programs use for the schemes of services.
const OTHER_NAMES: [(&str, &str); 6] = [
    ("pgsql", "postgres"),
    ("psql", "postgres"),
    ("pg", "postgres"),
    ("valkey", "redis"),
    ("valkeys", "rediss"),
    ("zookeeper", "zk"),
];

/// The service if no option names one.
static DEFAULT: &Service = &file::SERVICE;

/// An address that dlock cannot use: a usage error. The text is one line without secrets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LocatorError {
    reason: String,
    /// The options at fault, without dashes.
    pub about: &'static [&'static str],
}

impl LocatorError {
    fn new(about: &'static [&'static str], reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), about }
    }

    /// Returns this error. If it may quote a fragment of a password in an endpoint, returns instead how to write a
    /// password.
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

/// Reads the connection options. The service is the one named, else that of the endpoint's scheme, else `file`.
///
/// Errors: why dlock cannot use the options, without passwords.
pub fn parse(options: &Options) -> Result<Box<dyn Address>, LocatorError> {
    let parse = |service: &Service| {
        (service.parse)(options).map_err(|reason| LocatorError::new(guilty(service, options), reason))
    };
    service_of(options).and_then(parse).map_err(|error| error.without_password_in(&options.endpoints))
}

/// Returns the options that `service` did not understand: the prefix, if it understands the others without it.
fn guilty(service: &Service, options: &Options) -> &'static [&'static str] {
    let without_prefix = Options { prefix: None, ..options.clone() };
    if options.prefix.is_some() && (service.parse)(&without_prefix).is_ok() {
        &["prefix"]
    } else {
        &["endpoint", "backend"]
    }
}

/// Returns whether users, passwords and certificates may apply to the service of `options`. They do if no service is
/// named, because then the option that names it was probably forgotten.
pub fn may_log_in(options: &Options) -> bool {
    let is_named = options.backend.is_some() || !options.endpoints.is_empty();
    !is_named || service_of(options).is_ok_and(|service| service.has_login)
}

/// Returns the options of services that have no effect at `address`.
pub fn useless(address: &dyn Address) -> impl Iterator<Item = &'static ServiceOption> {
    let (own, has_login) = (address.options(), address.service().has_login);
    let login = LOGIN.iter().filter(move |_| !has_login);
    let others = SERVICES.iter().flat_map(|service| service.options);
    login.chain(others.filter(|option| !own.iter().any(|used| used.name == option.name)))
}

/// Returns the names of all services, with `word` before the last one: `file, etcd or redis`.
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

/// Returns the service if no option names one, unless the options may mean another one.
fn by_default(options: &Options) -> Result<&'static Service, LocatorError> {
    let Some(endpoint) = options.endpoints.first() else {
        if options.user.is_some() || options.password.is_some() || options.tls.is_given() {
            let reason = "a user, password or certificate is given, and no service; name it with --backend or --endpoint";
            return Err(LocatorError::new(&[], reason));
        }
        return Ok(DEFAULT);
    };
    // A lock directory named like a server would hide a forgotten scheme, and would lock only on this host. A text that
    // contains a password is not a directory.
    let is_path = endpoint.contains('/') && !has_password(endpoint);
    if endpoint.is_empty() || is_path || Path::new(endpoint).is_dir() {
        return Ok(DEFAULT);
    }
    // The text before the host may be a password.
    let endpoint = without_login(endpoint);
    let remote = SERVICES.iter().find(|service| service.has_login && endpoint.starts_with(service.name));
    let directory = if options.endpoints_in.is_some() {
        "the whole path of the directory".to_owned()
    } else {
        format!("./{endpoint}")
    };
    let remedy = match remote {
        Some(service) => format!("write {}://{endpoint}, or {directory}", service.name),
        None => format!("name the service with --backend, or write {directory}"),
    };
    let reason = format!("{endpoint} could be a server or a directory: {remedy}");
    Err(LocatorError::new(&["endpoint"], reason))
}

/// Returns the service named by the schemes of the endpoints, including those in comma lists.
fn by_schemes(endpoints: &[String]) -> Result<Option<&'static Service>, LocatorError> {
    let mut said: Option<&'static Service> = None;
    // A path may contain anything.
    let addresses = endpoints.iter().filter(|endpoint| !endpoint.starts_with(['/', '.']));
    for address in addresses.flat_map(|endpoint| endpoint.split(',')).map(str::trim) {
        refuse_left_out(
            SERVICES,
            |_, schemes| schemes.iter().any(|scheme| after(address, scheme).is_some()),
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
            // Some libraries append the name of their driver after a plus sign.
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

/// Errors: `services`, those of this build, lack the one for which `is_meant` returns true.
fn refuse_left_out(
    services: &[&Service],
    is_meant: impl Fn(&str, &[&str]) -> bool,
    about: &'static [&'static str],
) -> Result<(), LocatorError> {
    let is_here = |name: &str| services.iter().any(|service| service.name == name);
    match OPTIONAL.iter().find(|(name, schemes)| is_meant(name, schemes) && !is_here(name)) {
        None => Ok(()),
        Some((name, _)) => {
            let reason = format!("this dlock was built without {name}: build it with the feature {name}");
            Err(LocatorError::new(about, reason))
        }
    }
}

fn by_name(name: &str) -> Result<&'static Service, LocatorError> {
    refuse_left_out(SERVICES, |optional, _| optional == name, &["backend"])?;
    let found = SERVICES.iter().find(|service| service.name == name);
    found.copied().ok_or_else(|| {
        let hint = match nearest(name, SERVICES.iter().map(|service| service.name)) {
            Some(near) => format!("did you mean {near}?"),
            None => format!("the backends are {}", names("and")),
        };
        LocatorError::new(&["backend"], format!("there is no backend {name:?}; {hint}"))
    })
}

/// Returns the one of `all` that is most similar to `text`, if one is similar enough.
fn nearest<'a>(text: &str, all: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let scored = all.map(|a| (strsim::jaro_winkler(&text.to_ascii_lowercase(), a), a));
    scored.max_by(|a, b| a.0.total_cmp(&b.0)).filter(|(score, _)| *score > 0.7).map(|(_, a)| a)
}

#[cfg(test)]
#[path = "locator_tests.rs"]
mod tests;
