//! The settings in addresses, completed from the sources of the database's own clients.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::database::{Mode, Place};
use crate::backend::Options;
use crate::net::address::{after, decoded, hosts_and_ports, taken_apart, without_line_end};
use crate::net::credentials::{Identity, Pem, Tls};

pub(super) struct Settings<'a> {
    options: &'a Options,
    /// The hosts in addresses, each with the port that was given with it.
    hosts: Vec<(String, Option<u16>)>,
    /// The other settings in addresses, by their names.
    given: BTreeMap<String, String>,
    /// Returns the value that another source has for a setting, not empty.
    around: &'a dyn Fn(&str) -> Option<String>,
}

impl<'a> Settings<'a> {
    /// Parses the endpoints, each `[SCHEME://][USER[:PASSWORD]@]HOST[:PORT][,…][/DATABASE][?SETTING=VALUE&…]`. `known`
    /// returns the name under which a setting is kept, if an address may have it.
    pub(super) fn read(
        options: &'a Options,
        kind: &str,
        schemes: &[&str],
        known: impl Fn(&str) -> Option<String>,
        around: &'a dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, String> {
        let mut settings = Self { options, hosts: Vec::new(), given: BTreeMap::new(), around };
        for endpoint in &options.endpoints {
            let rest = schemes.iter().find_map(|scheme| after(endpoint, scheme)).unwrap_or(endpoint);
            let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
            // A password may contain a slash, so the login is taken off first.
            let (user, password, rest) = taken_apart(rest).unwrap_or(("", "", rest));
            let (hosts, database) = rest.split_once('/').unwrap_or((rest, ""));
            settings.hosts.extend(hosts_and_ports(hosts)?);
            for (name, value) in [("user", user), ("password", password), ("database", database)] {
                settings.give(name, value)?;
            }
            for pair in query.split('&').filter(|pair| !pair.is_empty()) {
                let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                let unknown =
                    || format!("an address of {kind} has no setting {name:?}; dlock man {kind} lists them");
                settings.give(&known(name).ok_or_else(unknown)?, value)?;
            }
        }
        Ok(settings)
    }

    /// Stores a part of an address. Each may be given once, or repeatedly if it is equal.
    fn give(&mut self, name: &str, value: &str) -> Result<(), String> {
        let value = decoded(value)?;
        if value.is_empty() || *self.given.entry(name.to_owned()).or_insert_with(|| value.clone()) == value {
            return Ok(());
        }
        Err(format!("the endpoints name different {name}s; they are servers of one database"))
    }

    /// Returns the value of the setting `name` in an address.
    pub(super) fn given(&self, name: &str) -> Option<&String> {
        self.given.get(name)
    }

    /// Returns the value of the setting `name` in an address, or else in another source.
    pub(super) fn get(&self, name: &str) -> Option<String> {
        self.given(name).cloned().or_else(|| (self.around)(name))
    }

    pub(super) fn user(&self) -> Result<String, String> {
        let user = self.options.user.clone().or_else(|| self.get("user")).or_else(login_name);
        user.ok_or_else(|| "this uid has no name; name the database's user with --user".to_owned())
    }

    /// Returns the places of the servers. `place` makes each from its host, empty for the usual one, from whether the
    /// address has the port, and from the port.
    pub(super) fn places(
        &self,
        usual: u16,
        place: impl Fn(&str, bool, u16) -> Place,
    ) -> Result<Vec<Place>, String> {
        let mut hosts = self.hosts.clone();
        if self.given.contains_key("host")
            || hosts.iter().all(|(host, port)| host.is_empty() && port.is_none())
        {
            let listed = self.get("host").unwrap_or_default();
            let listed = listed.split(',').filter(|host| !host.is_empty());
            hosts = listed.map(|host| (host.to_owned(), None)).collect();
        }
        if hosts.is_empty() {
            hosts.push((String::new(), None));
        }
        let ports = self.get("port").unwrap_or_default();
        let ports: Vec<&str> = ports.split(',').map(str::trim).collect();
        let each = hosts.iter().enumerate().map(|(n, (host, port))| {
            let said = ports.get(n).or(ports.last()).filter(|port| !["", "0"].contains(*port));
            let parsed = said.map(|text| text.parse().map_err(|_| format!("{text:?} is not a port")));
            Ok(place(host, port.is_some(), port.or(parsed.transpose()?).unwrap_or(usual)))
        });
        each.collect()
    }

    /// Returns the certificates of dlock's options, completed from the files that these settings name: for the
    /// authority, the certificate and its key.
    pub(super) fn tls(&self, mode: Mode, names: [&str; 3]) -> Result<Tls, String> {
        let mut tls = self.options.tls.clone();
        if tls.is_given() && mode < Mode::Required {
            let what = "certificates or a server's name are given, and a setting does without encryption";
            return Err(what.to_owned());
        }
        if mode == Mode::Disabled {
            return Ok(tls);
        }
        let [authority, certificate, key] = names;
        let file = |name: &str| {
            let read = |path: &Path| fs::read(path).map_err(|error| format!("cannot be read: {error}"));
            // libpq's word for the authorities of the system.
            let path = self.get(name).filter(|path| path != "system").map(PathBuf::from);
            let pem = |path: PathBuf| {
                Pem::in_file(&path, read).map_err(|why| format!("{name}: {} {why}", path.display()))
            };
            path.map(pem).transpose()
        };
        if tls.authority.is_none() {
            tls.authority = file(authority)?;
        }
        if tls.identity.is_none() {
            tls.identity = match (file(certificate)?, file(key)?) {
                (Some(certificate), Some(key)) => Some(
                    Identity::new(certificate, key)
                        .map_err(|why| format!("the key of the client's certificate {why}"))?,
                ),
                (None, None) => None,
                _ => return Err(format!("one of {certificate} and {key} is given without the other")),
            };
        }
        Ok(tls)
    }
}

/// Returns the value of an environment variable, without its line end; `None` if it is empty.
pub(super) fn variable(name: &str) -> Option<String> {
    let value = std::env::var(name).ok()?;
    Some(without_line_end(&value)).filter(|value| !value.is_empty()).map(str::to_owned)
}

/// Returns the login name of the effective user of this process.
fn login_name() -> Option<String> {
    let uid = fs::metadata("/proc/self").ok()?.uid().to_string();
    let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let line = passwd.lines().find(|line| line.split(':').nth(2) == Some(uid.as_str()));
    let name = line.and_then(|line| line.split(':').next()).filter(|name| !name.starts_with(['+', '-']));
    name.or((uid == "0").then_some("root")).filter(|name| !name.is_empty()).map(str::to_owned)
}
