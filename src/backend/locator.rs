//! The services of this build, and the choice among them by the connection options. No other file names services.

use std::path::Path;

#[cfg(feature = "etcd")]
use super::etcd;
#[cfg(feature = "memcached")]
use super::memcached;
#[cfg(feature = "redis")]
use super::redis;
use super::service::{Address, LOGIN, Service};
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

/// The service if no option names one.
static DEFAULT: &Service = &file::SERVICE;

/// Reads the connection options. The service is the one named, else that of the endpoint's scheme, else `file`.
///
/// Errors: why dlock cannot use the options, in one line without passwords.
pub fn parse(options: &Options) -> Result<Box<dyn Address>, String> {
    let parsed = service_of(options).and_then(|service| (service.parse)(options));
    parsed.map_err(|reason| without_password_in(&options.endpoints, reason))
}

/// Returns `reason`. If it may quote a fragment of a password in an endpoint, returns instead how to write a password.
fn without_password_in(endpoints: &[String], reason: String) -> String {
    match endpoints.iter().find(|endpoint| may_be_quoted(endpoint, &reason)) {
        None => reason,
        Some(endpoint) => {
            let shown = without_passwords(endpoint);
            format!(
                "{shown} is not understood: a password stands before the @, with , / ? and # as %2C, %2F, %3F and %23"
            )
        }
    }
}

/// Returns whether users, passwords and certificates may apply to the service of `options`. They do if no service is
/// named, because then the option that names it was probably forgotten.
pub fn may_log_in(options: &Options) -> bool {
    let is_named = options.backend.is_some() || !options.endpoints.is_empty();
    !is_named || service_of(options).is_ok_and(|service| service.has_login)
}

/// Returns the options of services that have no effect at `address`.
pub fn useless(address: &dyn Address) -> impl Iterator<Item = &'static str> {
    let (own, has_login) = (address.options(), address.service().has_login);
    let login = LOGIN.iter().filter(move |_| !has_login);
    let others = SERVICES.iter().flat_map(|service| service.options);
    login.chain(others.filter(|option| !own.contains(option))).copied()
}

/// Returns the names of all services, with `word` before the last one: `file, etcd or redis`.
pub fn names(word: &str) -> String {
    let names: Vec<&str> = SERVICES.iter().map(|service| service.name).collect();
    let (last, others) = names.split_last().unwrap_or((&"", &[]));
    format!("{} {word} {last}", others.join(", "))
}

fn service_of(options: &Options) -> Result<&'static Service, String> {
    let said = by_schemes(&options.endpoints)?;
    let Some(name) = &options.backend else { return said.map_or_else(|| by_default(options), Ok) };
    let named = by_name(name)?;
    if let Some(other) = said.filter(|said| said.name != named.name) {
        return Err(format!("an address of {} does not lead to the backend {}", other.name, named.name));
    }
    if named.name != DEFAULT.name
        && let Some(directory) = options.endpoints.iter().find(|endpoint| is_directory(endpoint))
    {
        return Err(format!("{directory} is a directory, not an address of the backend {}", named.name));
    }
    Ok(named)
}

/// Returns the service if no option names one, unless the options may mean another one.
fn by_default(options: &Options) -> Result<&'static Service, String> {
    let Some(endpoint) = options.endpoints.first() else {
        if options.user.is_some() || options.password.is_some() || options.tls.is_given() {
            let reason = "a user, password or certificate is given, and no service; name it with --backend or --endpoint";
            return Err(reason.to_owned());
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
    let directory = if options.endpoints_in.is_some() {
        "the whole path of the directory".to_owned()
    } else {
        format!("./{endpoint}")
    };
    Err(format!(
        "{endpoint} could be a server or a directory: name the service with --backend, or write {directory}"
    ))
}

/// Returns the service named by the schemes of the endpoints, including those in comma lists.
fn by_schemes(endpoints: &[String]) -> Result<Option<&'static Service>, String> {
    let mut said: Option<&'static Service> = None;
    // A path may contain anything.
    let addresses = endpoints.iter().filter(|endpoint| !endpoint.starts_with(['/', '.']));
    for address in addresses.flat_map(|endpoint| endpoint.split(',')).map(str::trim) {
        let starts_with = |scheme: &&str| after(address, scheme).is_some();
        let found = SERVICES.iter().find(|service| service.schemes.iter().any(starts_with));
        let Some(service) = found else {
            refuse_left_out(|_, schemes| schemes.iter().any(starts_with))?;
            refuse_unknown_scheme(address)?;
            continue;
        };
        if let Some(other) = said.filter(|said| said.name != service.name) {
            return Err(format!("endpoints of two services are given, {} and {}", other.name, service.name));
        }
        said = Some(service);
    }
    Ok(said)
}

/// Errors: `address`, which has no scheme of a service, has another one.
fn refuse_unknown_scheme(address: &str) -> Result<(), String> {
    match address.split_once("://") {
        Some((scheme, _)) if !scheme.contains('/') => {
            let schemes = SERVICES.iter().flat_map(|service| service.schemes);
            let near = nearest(scheme, schemes.map(|known| known.trim_end_matches([':', '/'])));
            let hint = near.map(|near| format!("; did you mean {near}?")).unwrap_or_default();
            Err(format!("no backend has addresses with {scheme}://{hint}"))
        }
        _ => Ok(()),
    }
}

/// Errors: `is_meant` returns true for a service, which this build lacks.
fn refuse_left_out(is_meant: impl Fn(&str, &[&str]) -> bool) -> Result<(), String> {
    OPTIONAL.iter().find(|(name, schemes)| is_meant(name, schemes)).map_or(Ok(()), |(name, _)| {
        Err(format!("this dlock was built without {name}: build it with the feature {name}"))
    })
}

/// Returns the service of that name.
pub fn by_name(name: &str) -> Result<&'static Service, String> {
    if let Some(found) = SERVICES.iter().find(|service| service.name == name) {
        return Ok(found);
    }
    refuse_left_out(|optional, _| optional == name)?;
    let hint = match nearest(name, SERVICES.iter().map(|service| service.name)) {
        Some(near) => format!("did you mean {near}?"),
        None => format!("the backends are {}", names("and")),
    };
    Err(format!("there is no backend {name:?}; {hint}"))
}

/// Returns the one of `all` that is most similar to `text`, if one is similar enough.
fn nearest<'a>(text: &str, all: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let scored = all.map(|a| (strsim::jaro_winkler(&text.to_ascii_lowercase(), a), a));
    scored.max_by(|a, b| a.0.total_cmp(&b.0)).filter(|(score, _)| *score > 0.7).map(|(_, a)| a)
}

#[cfg(test)]
#[path = "locator_tests.rs"]
mod tests;
