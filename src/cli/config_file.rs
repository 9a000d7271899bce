//! Configuration files: TOML with the options' names as keys, and tables `[profile.NAME]` of the same keys.

use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow, ensure};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::exit_code::Hinted as _;
use super::exposure;
use super::source::Source;
use super::usage::nearest;
use crate::backend::Risk;
use crate::net::passwords::has_password;
use crate::output::sanitise;

/// The kind of value that a key takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Text,
    Texts,
    Length,
    Switch,
}

impl Kind {
    fn expected(self) -> &'static str {
        match self {
            Self::Text => "a text in quotes",
            Self::Texts => "a text in quotes, or a list of them",
            Self::Length => "a duration in quotes, such as \"30s\", or a number of seconds",
            Self::Switch => "true or false",
        }
    }

    /// Returns `value` as the texts of an option, if it is of this kind.
    fn texts(self, value: &DeValue<'_>) -> Option<Vec<String>> {
        match (self, value) {
            (Self::Text | Self::Texts | Self::Length, DeValue::String(text)) => Some(vec![text.to_string()]),
            (Self::Texts, DeValue::Array(texts)) => {
                texts.iter().map(|text| text.get_ref().as_str().map(str::to_owned)).collect()
            }
            (Self::Length, DeValue::Integer(seconds)) => Some(vec![seconds.to_string()]),
            (Self::Length, DeValue::Float(seconds)) => Some(vec![seconds.to_string()]),
            (Self::Switch, DeValue::Boolean(on)) => Some(vec![on.to_string()]),
            _ => None,
        }
    }
}

const KEYS: [(&str, Kind); 20] = [
    ("backend", Kind::Text),
    ("endpoint", Kind::Texts),
    ("prefix", Kind::Text),
    ("allow-network-fs", Kind::Switch),
    ("user", Kind::Text),
    ("password", Kind::Text),
    ("password-file", Kind::Text),
    ("cacert", Kind::Text),
    ("cert", Kind::Text),
    ("key", Kind::Text),
    ("tls-server-name", Kind::Text),
    ("max-ttl", Kind::Length),
    ("zk-layout", Kind::Text),
    ("ttl", Kind::Length),
    ("grace", Kind::Length),
    ("wait", Kind::Length),
    ("label", Kind::Text),
    ("log-format", Kind::Text),
    ("quiet", Kind::Switch),
    ("verbose", Kind::Switch),
];

/// Returns the keys, in the order of the manual.
pub fn keys() -> impl DoubleEndedIterator<Item = &'static str> {
    KEYS.iter().map(|(key, _)| *key)
}

/// The texts of each key, and its line.
type Table = BTreeMap<&'static str, (Vec<String>, usize)>;

/// A configuration file that was read and checked.
#[derive(Clone, Debug)]
pub struct ConfigFile {
    path: PathBuf,
    top: Table,
    profiles: BTreeMap<String, Table>,
}

/// The most bytes of a configuration. A device or a wrong path could have more.
const MOST_BYTES: u64 = 1 << 20;

impl ConfigFile {
    /// Reads `path`. Returns `None` if there is no such file. The file must belong to root or to `uid`.
    pub fn read(path: &Path, uid: u32) -> Result<Option<Self>> {
        let shown = sanitise::os(path.as_os_str());
        let cannot = || format!("cannot read the configuration file {shown}");
        let file = match File::open(path) {
            Ok(file) => file,
            // ENOTDIR: a part of the path is a file, so there is no such file either.
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                return Ok(None);
            }
            Err(error) if error.kind() == ErrorKind::PermissionDenied => return Err(closed(path, &shown)),
            Err(error) => return Err(error).with_context(cannot),
        };
        check_owner(&shown, &file.metadata().with_context(cannot)?, uid, exposure::is_read_only(&file))?;
        let mut bytes = Vec::new();
        file.take(MOST_BYTES + 1).read_to_end(&mut bytes).with_context(cannot)?;
        ensure!(bytes.len() as u64 <= MOST_BYTES, "the configuration file {shown} is longer than a mebibyte");
        let text = String::from_utf8(bytes)
            .map_err(|_| anyhow!("the configuration file {shown} is not valid UTF-8"))?;
        Self::parse(path, &text).map(Some)
    }

    /// Returns the risk that other users can read a password in the file.
    pub fn doubt(&self) -> Option<Risk> {
        let what = "the configuration file has a password";
        self.has_secret().then(|| exposure::doubt(what, &self.path))?
    }

    fn parse(path: &Path, text: &str) -> Result<Self> {
        let place = Place { path: &sanitise::os(path.as_os_str()), text };
        let root = DeTable::parse(text).map_err(|error| {
            // Only the first line of the message is needed.
            let reason = error.message().lines().next().unwrap_or_default();
            place.error(error.span().unwrap_or_default().start, reason)
        })?;
        let mut root = root.into_inner();
        let profiles = root.remove("profile").map(|found| place.table("profile", found)).transpose()?;
        let profiles = profiles.unwrap_or_default().into_iter().map(|(name, found)| {
            let name = name.into_inner().into_owned();
            let table = place.values(place.table(&name, found)?)?;
            Ok((name, table))
        });
        let profiles = profiles.collect::<Result<_>>()?;
        Ok(Self { path: path.to_owned(), top: place.values(root)?, profiles })
    }

    fn has_secret(&self) -> bool {
        self.profiles.values().chain([&self.top]).any(|table| {
            let endpoints = table.get("endpoint").map(|(urls, _)| urls.as_slice()).unwrap_or_default();
            table.contains_key("password") || endpoints.iter().any(|url| has_password(url))
        })
    }

    /// Returns the path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the names of the profiles.
    pub fn profiles(&self) -> impl Iterator<Item = &str> {
        self.profiles.keys().map(String::as_str)
    }

    /// Returns the values at the top level and above them those of `profile`, each table from its last key to its first.
    pub fn values(&self, profile: Option<&str>) -> Vec<(&'static str, Vec<String>, Source)> {
        let profile = profile.and_then(|name| Some((self.profiles.get(name)?, Some(name.to_owned()))));
        let mut values = Vec::new();
        for (table, profile) in std::iter::once((&self.top, None)).chain(profile) {
            for key in keys().rev() {
                let Some((texts, line)) = table.get(key) else { continue };
                let (line, path) = (*line, self.path.clone());
                values.push((key, texts.clone(), Source::File { key, path, line, profile: profile.clone() }));
            }
        }
        values
    }
}

/// A file that is being checked, for errors.
struct Place<'a> {
    path: &'a str,
    text: &'a str,
}

impl Place<'_> {
    fn line(&self, start: usize) -> usize {
        self.text.as_bytes().iter().take(start).filter(|b| **b == b'\n').count() + 1
    }

    fn error(&self, start: usize, reason: &str) -> anyhow::Error {
        anyhow!("{}:{}: {reason}", self.path, self.line(start))
    }

    fn table<'i>(&self, key: &str, found: Spanned<DeValue<'i>>) -> Result<DeTable<'i>> {
        let start = found.span().start;
        let reason = || format!("{} must be a table of options", sanitise::text(key));
        match found.into_inner() {
            DeValue::Table(table) => Ok(table),
            _ => Err(self.error(start, &reason())),
        }
    }

    fn values(&self, table: DeTable<'_>) -> Result<Table> {
        let value = |(key, value): (Spanned<_>, Spanned<DeValue<'_>>)| {
            let (start, word): (usize, std::borrow::Cow<'_, str>) = (key.span().start, key.into_inner());
            let Some((known, kind)) = KEYS.iter().find(|(known, _)| *known == word) else {
                let near = nearest(&word, keys().chain(["profile"]));
                let hint = near.map(|near| format!("did you mean {near}?"));
                return Err(self.error(start, &format!("unknown key {}", sanitise::text(&word))).hint(
                    hint.unwrap_or_else(|| "the keys are listed under FILES in dlock man run".to_owned()),
                ));
            };
            // The value may be a secret.
            let reason = || format!("{known} must be {}", kind.expected());
            let texts = kind.texts(value.get_ref()).ok_or_else(|| self.error(start, &reason()))?;
            Ok((*known, (texts, self.line(start))))
        };
        table.into_iter().map(value).collect()
    }
}

fn check_owner(shown: &str, meta: &Metadata, uid: u32, is_read_only: bool) -> Result<()> {
    // A device such as /dev/null means "no configuration".
    if meta.file_type().is_char_device() {
        return Ok(());
    }
    if meta.is_dir() {
        return Err(anyhow!("the configuration file {shown} is a directory")
            .hint("name a file in it with --config or DLOCK_CONFIG"));
    }
    // On a read-only mount no user can change the file, whatever its mode is.
    if is_read_only {
        return Ok(());
    }
    if meta.uid() != 0 && meta.uid() != uid && exposure::nameless() != Some(meta.uid()) {
        return Err(anyhow!("the configuration file {shown} belongs to uid {}, who could change what dlock does; it must belong \
             to root or you",
            meta.uid())
        .hint(format!("sudo chown {uid} {shown}, or leave every file out with --config /dev/null")));
    }
    if meta.mode() & 0o022 != 0 {
        return Err(anyhow!(
            "the configuration file {shown} can be written by others, who could change what dlock does"
        )
        .hint(format!("chmod go-w {shown}")));
    }
    Ok(())
}

/// Returns the error of a file that this user may not read, and names the users that may.
fn closed(path: &Path, shown: &str) -> anyhow::Error {
    let out = "leave every file out with --config /dev/null";
    let Ok(meta) = std::fs::metadata(path) else {
        let reason =
            format!("the configuration file {shown} lies in a directory that this user may not enter");
        return anyhow!(reason).hint(format!("let this user enter it, or {out}"));
    };
    let (owner, group, mode) = (meta.uid(), meta.gid(), meta.mode() & 0o7777);
    let group = if mode & 0o040 == 0 { String::new() } else { format!(" and the members of gid {group}") };
    anyhow!("the configuration file {shown} may be read only by uid {owner}{group} (mode {mode:04o})")
        .hint(format!(
            "let all users read it and keep its password in a file of its own, which password-file names; or {out}"
        ))
}

#[cfg(test)]
#[path = "config_file_tests.rs"]
mod tests;
