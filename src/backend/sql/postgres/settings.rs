//! The settings of libpq, in addresses, in `PG*` variables, in `~/.postgresql` and in `~/.pgpass`.
//!
//! Source: PostgreSQL's documentation, "Parameter Key Words" and "Environment Variables" of libpq.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf, absolute};
use std::str::FromStr;

use crate::backend::sql::login::login_name;
use crate::net::address::{after, decoded, hosts_and_ports, login, without_line_end};
use crate::net::credentials::{Pem, Secret};

/// Any value.
const ANY: &[&str] = &["*"];

/// The name, the variable if there is one, and the values that dlock obeys, or that ask for nothing beyond what it does
/// anyway.
const KNOWN: [(&str, &str, &[&str]); 44] = [
    ("hostaddr", "PGHOSTADDR", ANY),
    ("port", "PGPORT", ANY),
    ("user", "PGUSER", ANY),
    ("password", "PGPASSWORD", ANY),
    ("passfile", "PGPASSFILE", ANY),
    ("dbname", "PGDATABASE", ANY),
    ("options", "PGOPTIONS", ANY),
    ("sslmode", "PGSSLMODE", ANY),
    ("requiressl", "PGREQUIRESSL", ANY),
    ("channel_binding", "PGCHANNELBINDING", ANY),
    ("sslrootcert", "PGSSLROOTCERT", ANY),
    ("sslcert", "PGSSLCERT", ANY),
    ("sslkey", "PGSSLKEY", ANY),
    ("application_name", "PGAPPNAME", ANY),
    ("fallback_application_name", "", ANY),
    ("client_encoding", "PGCLIENTENCODING", ANY),
    // Every request of dlock has its own deadline.
    ("connect_timeout", "PGCONNECT_TIMEOUT", ANY),
    ("keepalives", "", ANY),
    ("keepalives_idle", "", ANY),
    ("keepalives_interval", "", ANY),
    ("keepalives_count", "", ANY),
    ("tcp_user_timeout", "", ANY),
    ("load_balance_hosts", "PGLOADBALANCEHOSTS", ANY),
    ("krbsrvname", "PGKRBSRVNAME", ANY),
    ("gsslib", "PGGSSLIB", ANY),
    ("gssdelegation", "PGGSSDELEGATION", &["0"]),
    ("gssencmode", "PGGSSENCMODE", &["disable", "prefer"]),
    ("target_session_attrs", "PGTARGETSESSIONATTRS", &["any", "read-write", "primary", "prefer-standby"]),
    ("replication", "", &["false", "off", "no", "0"]),
    ("sslcompression", "PGSSLCOMPRESSION", ANY),
    ("sslnegotiation", "PGSSLNEGOTIATION", &["postgres"]),
    ("sslcertmode", "PGSSLCERTMODE", &["allow"]),
    ("sslsni", "PGSSLSNI", &["1"]),
    ("ssl_min_protocol_version", "PGSSLMINPROTOCOLVERSION", &["TLSv1", "TLSv1.1", "TLSv1.2"]),
    ("ssl_max_protocol_version", "PGSSLMAXPROTOCOLVERSION", &["TLSv1.3"]),
    ("min_protocol_version", "PGMINPROTOCOLVERSION", &["3.0"]),
    ("max_protocol_version", "PGMAXPROTOCOLVERSION", ANY),
    ("require_auth", "PGREQUIREAUTH", &[]),
    ("requirepeer", "PGREQUIREPEER", &[]),
    ("sslcrl", "PGSSLCRL", &[]),
    ("sslcrldir", "PGSSLCRLDIR", &[]),
    ("sslpassword", "", &[]),
    ("service", "", &[]),
    ("servicefile", "", &[]),
];

/// The implicit sources.
#[derive(Clone, Debug)]
pub(super) struct Environment {
    /// The value of a variable.
    pub(super) variable: fn(&str) -> Option<String>,
    /// The user's home directory.
    pub(super) home: Option<PathBuf>,
    /// The user's login name.
    pub(super) user: Option<String>,
}

impl Environment {
    /// Returns the environment of this process.
    pub(super) fn of_process() -> Self {
        let home = std::env::var_os("HOME").filter(|home| !home.is_empty()).map(PathBuf::from);
        Self { variable: |name| std::env::var(name).ok(), home, user: login_name() }
    }

    pub(super) fn get(&self, name: &str) -> Option<String> {
        let value = (self.variable)(name)?;
        Some(without_line_end(&value)).filter(|value| !value.is_empty()).map(str::to_owned)
    }
}

/// The contents of the addresses, and the implicit sources.
pub(super) struct Settings<'a> {
    hosts: Vec<(String, Option<u16>)>,
    password: Option<Secret>,
    /// The other settings in addresses.
    said: BTreeMap<&'static str, String>,
    around: &'a Environment,
}

impl<'a> Settings<'a> {
    pub(super) fn new(around: &'a Environment) -> Self {
        Self { hosts: Vec::new(), password: None, said: BTreeMap::new(), around }
    }

    /// Parses one address.
    pub(super) fn read(&mut self, endpoint: &str) -> Result<(), String> {
        let rest = after(endpoint, "postgres://").or_else(|| after(endpoint, "postgresql://"));
        let rest = rest.unwrap_or(endpoint);
        let (rest, settings) = rest.split_once('?').unwrap_or((rest, ""));
        let (login, rest) = login(rest)?;
        let (hosts, database) = rest.split_once('/').unwrap_or((rest, ""));
        self.say("user", login.user.unwrap_or_default())?;
        self.password = login.password.or(self.password.take());
        self.say("dbname", decoded(database)?)?;
        self.hosts.extend(hosts_and_ports(hosts)?);
        for setting in settings.split('&').filter(|setting| !setting.is_empty()) {
            let (name, value) = setting.split_once('=').unwrap_or((setting, ""));
            let value = decoded(value)?;
            match name {
                // Older settings of libpq, and that of JDBC.
                "requiressl" if value.starts_with('1') => self.say("sslmode", "require".to_owned())?,
                "ssl" if value == "true" => self.say("sslmode", "require".to_owned())?,
                "password" => self.password = Some(Secret::new(value)),
                "host" => self.hosts = of_list(&value),
                _ => self.say(name, value)?,
            }
        }
        Ok(())
    }

    fn say(&mut self, name: &str, value: String) -> Result<(), String> {
        let known = KNOWN.iter().find(|(known, ..)| *known == name);
        let (name, _, values) = known.ok_or_else(|| {
            format!("an address of postgres has no setting {name:?}; dlock man postgres lists those of libpq")
        })?;
        if !value.is_empty() {
            check(name, &value, values)?;
            self.said.insert(name, value);
        }
        Ok(())
    }

    /// Checks the variables of settings that are in no address.
    pub(super) fn check_variables(&self) -> Result<(), String> {
        for (name, variable, values) in KNOWN.iter().filter(|(name, ..)| !self.said.contains_key(name)) {
            if let Some(value) = self.around.get(variable) {
                check(variable, &value, values).map_err(|why| format!("{why} (the setting {name})"))?;
            }
        }
        if let Some(service) = self.around.get("PGSERVICE").filter(|_| self.names_no_host()) {
            return Err(format!(
                "PGSERVICE names the service {service:?}, and dlock does not read service files; unset it and give --endpoint"
            ));
        }
        Ok(())
    }

    /// Returns the value of the setting `name` in an address, or else in its variable.
    pub(super) fn get(&self, name: &str) -> Option<String> {
        self.said.get(name).cloned().or_else(|| self.around.get(variable(name)))
    }

    /// Returns the values in the list of the setting `name`, some of which may be missing.
    pub(super) fn list<T: FromStr>(&self, name: &str, what: &str) -> Result<Vec<Option<T>>, String> {
        let text = self.get(name).unwrap_or_default();
        let parsed = |text: &str| match text.trim() {
            "" => Ok(None),
            text => text.parse().map(Some).map_err(|_| {
                format!("{name} ({variable}): {text:?} is no {what}", variable = variable(name))
            }),
        };
        if text.is_empty() { Ok(Vec::new()) } else { text.split(',').map(parsed).collect() }
    }

    /// Returns the hosts, each with the port that was given with it.
    pub(super) fn hosts(&self) -> Vec<(String, Option<u16>)> {
        if self.names_no_host() {
            of_list(&self.around.get("PGHOST").unwrap_or_default())
        } else {
            self.hosts.clone()
        }
    }

    fn names_no_host(&self) -> bool {
        self.hosts.iter().all(|(host, port)| host.is_empty() && port.is_none())
    }

    pub(super) fn password(&self) -> Option<Secret> {
        self.password.clone().or_else(|| self.get("password").map(Secret::new))
    }

    pub(super) fn password_file(&self) -> Option<PathBuf> {
        let usual = || Some(self.around.home.as_ref()?.join(".pgpass"));
        self.get("passfile").map(PathBuf::from).or_else(usual)
    }

    /// Returns the PEM file that the setting `name` names, or else the `usual` one in the user's home directory, if it is
    /// there.
    ///
    /// Errors: a file that is there cannot be used. Without it a server might go unchecked.
    pub(super) fn pem(&self, name: &str, usual: &str) -> Result<Option<Pem>, String> {
        let read = |path: &Path| fs::read(path).map_err(|error| format!("cannot be read: {error}"));
        if let Some(path) = self.get(name).map(PathBuf::from) {
            let of = |why| format!("{name} ({}): {} {why}", variable(name), path.display());
            return Pem::in_file(&path, read).map(Some).map_err(of);
        }
        let Some(home) = &self.around.home else { return Ok(None) };
        let path = home.join(".postgresql").join(usual);
        if fs::metadata(&path).is_err() {
            return Ok(None);
        }
        Pem::in_file(&path, read).map(Some).map_err(|why| format!("{} {why}", path.display()))
    }
}

fn variable(name: &str) -> &'static str {
    KNOWN.iter().find(|(known, ..)| *known == name).map_or("", |(_, variable, _)| variable)
}

fn of_list(hosts: &str) -> Vec<(String, Option<u16>)> {
    hosts.split(',').filter(|host| !host.is_empty()).map(|host| (host.to_owned(), None)).collect()
}

fn check(whose: &str, value: &str, values: &[&str]) -> Result<(), String> {
    if values == ANY || values.contains(&value) {
        return Ok(());
    }
    let or =
        if values.is_empty() { String::new() } else { format!(", or set it to {}", values.join(" or ")) };
    Err(format!("{whose} asks for something that dlock does not do with postgres; leave it out{or}"))
}

/// A host, a port, a database, a user and the password.
pub(super) type Line = [String; 5];

/// Reads the file at `path`, which may be missing. An error is why it is ignored: like libpq, if other users may access
/// it.
pub(super) fn lines_of(path: &Path) -> Result<Vec<Line>, String> {
    let Ok(meta) = fs::metadata(path) else { return Ok(Vec::new()) };
    let ignored = |why: &str| Err(format!("the password file {} was ignored: {why}", path.display()));
    if !meta.is_file() {
        return ignored("it is not a plain file");
    }
    if meta.mode().trailing_zeros() < 6 {
        return ignored("others may access it (chmod 600 makes it private)");
    }
    let Ok(text) = fs::read_to_string(path) else { return ignored("it cannot be read") };
    Ok(text.lines().filter(|line| !line.starts_with('#')).filter_map(line_of).collect())
}

/// Returns the password that the `lines` of the file at `path` have for the host, port, database and user in `asked`. It
/// is read again for each use.
pub(super) fn password_from(path: &Path, lines: &[Line], asked: [String; 4]) -> Option<Secret> {
    password_in(lines, &asked)?;
    let path = absolute(path).unwrap_or_else(|_| path.to_owned());
    Some(Secret::read_by(move || {
        let found = lines_of(&path).ok().and_then(|lines| password_in(&lines, &asked));
        found.ok_or_else(|| {
            format!("the password file {} has no password for this server now", path.display())
        })
    }))
}

/// Parses `host:port:database:user:password`; a backslash makes the next character literal.
fn line_of(line: &str) -> Option<Line> {
    let mut fields = vec![String::new()];
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => fields.last_mut()?.extend(chars.next()),
            // The password may contain colons without a backslash.
            ':' if fields.len() < 5 => fields.push(String::new()),
            _ => fields.last_mut()?.push(c),
        }
    }
    fields.try_into().ok()
}

/// Returns the password of the first line for the host, port, database and user in `asked`.
fn password_in(lines: &[Line], asked: &[String; 4]) -> Option<String> {
    let fits = |(pattern, text): (&String, &String)| pattern == "*" || pattern == text;
    let found = lines.iter().find(|line| line.iter().zip(asked).all(fits))?;
    found.last().cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_libpq_reads_them() {
        let found = |line: &str, asked: [&str; 4]| password_in(&[line_of(line)?], &asked.map(str::to_owned));
        let line = r"h:5432:*:me:pa\:ss:w\\";
        assert_eq!(found(line, ["h", "5432", "any", "me"]).expect("fits"), r"pa:ss:w\");
        assert_eq!(found(line, ["h", "5433", "any", "me"]), None);
        assert_eq!(found(line, ["h", "5432", "any", "you"]), None);
        assert_eq!(line_of("h:5432:x"), None);
        assert!(found(r"\:\:1:*:*:*:x", ["::1", "1", "d", "u"]).is_some());
    }
}
