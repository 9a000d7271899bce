//! The implicit sources of PostgreSQL's own programs: `PG*` variables, `~/.pgpass`, `~/.postgresql`.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf, absolute};

use crate::backend::sql::login::login_name;
use crate::net::address::without_line_end;
use crate::net::credentials::{Pem, Secret};

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

    /// Returns the file in the variable, else the one in the user's home directory if it exists.
    pub(super) fn pem(&self, variable: &str, usual: &str) -> Result<Option<Pem>, String> {
        if let Some(path) = self.get(variable) {
            return read(Path::new(&path), variable).map(Some);
        }
        let Some(home) = &self.home else { return Ok(None) };
        Ok(Pem::in_file(&home.join(".postgresql").join(usual), text_of).ok())
    }

    /// Reads the password file, `named` or the default one. Like libpq, ignores it if other users may access it.
    pub(super) fn passwords(&self, named: Option<&str>) -> Passwords {
        let usual = || self.home.as_ref().map(|home| home.join(".pgpass"));
        let named = named.map(str::to_owned).or_else(|| self.get("PGPASSFILE"));
        let Some(path) = named.map(PathBuf::from).or_else(usual) else {
            return Passwords::default();
        };
        Passwords::of(&path)
    }
}

/// Reads a PEM file; `whose` is the setting that names it.
pub(super) fn read(path: &Path, whose: &str) -> Result<Pem, String> {
    Pem::in_file(path, text_of).map_err(|why| format!("{whose}: {} {why}", path.display()))
}

fn text_of(path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|error| format!("cannot be read: {error}"))
}

/// The contents of a password file.
#[derive(Default)]
pub(super) struct Passwords {
    path: PathBuf,
    lines: Vec<Line>,
    /// Why it was ignored.
    pub(super) skipped: Option<String>,
}

impl Passwords {
    /// Reads the file at `path`.
    fn of(path: &Path) -> Self {
        let Ok(meta) = fs::metadata(path) else { return Self::default() };
        let skipped = |why: &str| Self {
            skipped: Some(format!("the password file {} was ignored: {why}", path.display())),
            ..Self::default()
        };
        if !meta.is_file() {
            return skipped("it is not a plain file");
        }
        if meta.mode().trailing_zeros() < 6 {
            return skipped("others may access it (chmod 600 makes it private)");
        }
        let Ok(text) = fs::read_to_string(path) else { return skipped("it cannot be read") };
        let lines = text.lines().filter(|line| !line.starts_with('#')).filter_map(Line::parse);
        let path = absolute(path).unwrap_or_else(|_| path.to_owned());
        Self { path, lines: lines.collect(), skipped: None }
    }

    /// Returns the password in the first matching line; it is read again for each use.
    pub(super) fn password(&self, host: &str, port: u16, database: &str, user: &str) -> Option<Secret> {
        let found = move |passwords: &Self, asked: &[String; 3]| {
            let [host, database, user] = asked;
            passwords.lines.iter().find_map(|line| line.password(host, port, database, user))
        };
        let asked = [host, database, user].map(str::to_owned);
        found(self, &asked)?;
        let path = self.path.clone();
        Some(Secret::read_by(move || {
            let found = found(&Self::of(&path), &asked);
            found.ok_or_else(|| {
                format!("the password file {} has no password for this server now", path.display())
            })
        }))
    }
}

/// One line of a password file.
#[cfg_attr(test, derive(PartialEq, Eq, Debug))]
struct Line {
    host: String,
    port: String,
    database: String,
    user: String,
    password: String,
}

impl Line {
    /// Parses `host:port:database:user:password`; a backslash makes the next character literal.
    fn parse(line: &str) -> Option<Self> {
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
        let [host, port, database, user, password] = <[String; 5]>::try_from(fields).ok()?;
        Some(Self { host, port, database, user, password })
    }

    /// Returns the password, if the line matches.
    fn password(&self, host: &str, port: u16, database: &str, user: &str) -> Option<String> {
        let fits = |pattern: &str, text: &str| pattern == "*" || pattern == text;
        let all = fits(&self.host, host)
            && fits(&self.port, &port.to_string())
            && fits(&self.database, database)
            && fits(&self.user, user);
        all.then(|| self.password.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_libpq_reads_them() {
        let line = Line::parse(r"h:5432:*:me:pa\:ss:w\\").expect("a line");
        let found = line.password("h", 5432, "any", "me").expect("fits");
        assert_eq!(found, r"pa:ss:w\");
        assert_eq!(line.password("h", 5433, "any", "me"), None);
        assert_eq!(line.password("h", 5432, "any", "you"), None);
        assert_eq!(Line::parse("h:5432:x"), None);
        let six = Line::parse(r"\:\:1:*:*:*:x").expect("a line");
        assert!(six.password("::1", 1, "d", "u").is_some());
    }
}
