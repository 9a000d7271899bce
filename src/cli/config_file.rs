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

/// The kinds of values, as an error names them. It does not show the value itself, which may be a secret.
const TEXT: &str = "a text in quotes";
const TEXTS: &str = "a text in quotes, or a list of them";
const LENGTH: &str = "a duration in quotes, such as \"30s\", or a number of seconds";
const SWITCH: &str = "true or false";

/// The keys, in the order of the manual. Keys of services that this program was built without are valid, so that one
/// file serves a whole fleet.
const KEYS: &[(&str, &str)] = &[
    ("backend", TEXT),
    ("endpoint", TEXTS),
    ("prefix", TEXT),
    ("allow-network-fs", SWITCH),
    ("user", TEXT),
    ("password", TEXT),
    ("password-file", TEXT),
    ("cacert", TEXT),
    ("cert", TEXT),
    ("key", TEXT),
    ("tls-server-name", TEXT),
    ("max-ttl", LENGTH),
    ("zk-layout", TEXT),
    ("ttl", LENGTH),
    ("grace", LENGTH),
    ("wait", LENGTH),
    ("label", TEXT),
    ("log-format", TEXT),
    ("quiet", SWITCH),
    ("verbose", SWITCH),
];

/// Returns the keys, in the order of the manual.
pub fn keys() -> impl DoubleEndedIterator<Item = &'static str> {
    KEYS.iter().map(|(key, _)| *key)
}

/// The values of a file or of one of its profiles, each with its line.
type Table = BTreeMap<&'static str, (Vec<String>, usize)>;

/// A configuration file that was read and checked.
#[derive(Clone, Debug)]
pub struct ConfigFile {
    /// The path.
    pub path: PathBuf,
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
        let mut root = DeTable::parse(text).map_err(|error| broken(path, text, &error))?.into_inner();
        let found = root.remove("profile");
        let top = table(path, text, &root)?;
        let mut profiles = BTreeMap::new();
        if let Some(found) = &found {
            let DeValue::Table(tables) = found.get_ref() else {
                return Err(wrong(path, text, found, "profile", "a map"));
            };
            for (name, value) in tables {
                let DeValue::Table(entries) = value.get_ref() else {
                    return Err(wrong(path, text, value, name.get_ref(), "a table of options"));
                };
                profiles.insert(name.get_ref().to_string(), table(path, text, entries)?);
            }
        }
        Ok(Self { path: path.to_owned(), top, profiles })
    }

    fn has_secret(&self) -> bool {
        self.profiles.values().chain([&self.top]).any(|table| {
            let mut endpoints = table.get("endpoint").into_iter().flat_map(|(urls, _)| urls);
            table.contains_key("password") || endpoints.any(|url| has_password(url))
        })
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
                let (path, line, profile) = (self.path.clone(), *line, profile.clone());
                values.push((key, texts.clone(), Source::File { key, path, line, profile }));
            }
        }
        values
    }
}

/// Returns the options in `entries`, a table of the file `path`, which has `text`.
fn table(path: &Path, text: &str, entries: &DeTable<'_>) -> Result<Table> {
    let mut table = Table::new();
    for (word, value) in entries {
        let Some((key, kind)) = KEYS.iter().find(|(key, _)| key == word.get_ref()) else {
            let near = nearest(word.get_ref(), keys().chain(["profile"]));
            let listed = || "the keys are listed under FILES in dlock man run".to_owned();
            let hint = near.map_or_else(listed, |near| format!("did you mean {near}?"));
            let (place, word) = (place(path, text, word.span().start), sanitise::text(word.get_ref()));
            return Err(anyhow!("{place}: unknown key {word}").hint(hint));
        };
        let texts = texts(kind, value.get_ref()).ok_or_else(|| wrong(path, text, value, key, kind))?;
        table.insert(*key, (texts, line_of(text, value.span().start)));
    }
    Ok(table)
}

/// Returns `value` as texts, the form in which flags and variables have it, if it is of this kind.
fn texts(kind: &str, value: &DeValue<'_>) -> Option<Vec<String>> {
    let one = match (kind, value) {
        (TEXTS, DeValue::Array(items)) => {
            return items.iter().map(|item| item.get_ref().as_str().map(str::to_owned)).collect();
        }
        (TEXT | TEXTS | LENGTH, DeValue::String(text)) => text.to_string(),
        (LENGTH, DeValue::Integer(seconds)) => {
            i64::from_str_radix(seconds.as_str(), seconds.radix()).ok()?.to_string()
        }
        (LENGTH, DeValue::Float(seconds)) => seconds.as_str().parse::<f64>().ok()?.to_string(),
        (SWITCH, DeValue::Boolean(on)) => on.to_string(),
        _ => return None,
    };
    Some(vec![one])
}

/// Returns the error of a `value` that is not of this kind.
fn wrong(path: &Path, text: &str, value: &Spanned<DeValue<'_>>, key: &str, kind: &str) -> anyhow::Error {
    anyhow!("{}: {} must be {kind}", place(path, text, value.span().start), sanitise::text(key))
}

fn line_of(text: &str, start: usize) -> usize {
    text.as_bytes().iter().take(start).filter(|b| **b == b'\n').count() + 1
}

fn place(path: &Path, text: &str, start: usize) -> String {
    format!("{}:{}", sanitise::os(path.as_os_str()), line_of(text, start))
}

/// Returns the error of the file `path`, whose `text` is no TOML.
fn broken(path: &Path, text: &str, error: &toml::de::Error) -> anyhow::Error {
    let start = error.span().unwrap_or_default().start;
    let place = place(path, text, start);
    // Only the first line of the message is needed.
    let reason = error.message().lines().next().unwrap_or_default();
    // The message may repeat the value, which may be a secret.
    let wanted = reason.rsplit_once(", expected ").map(|(_, wanted)| wanted);
    let key = text.get(..start).and_then(|before| before.trim_end().strip_suffix('='));
    match (key.and_then(|before| before.split_whitespace().last()), wanted.unwrap_or(reason)) {
        (Some(key), wanted) => anyhow!("{place}: {} must be {wanted}", sanitise::text(key)),
        (None, reason) => anyhow!("{place}: {reason}"),
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
