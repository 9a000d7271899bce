//! Configuration files: TOML with the options' names as keys, and tables `[profile.NAME]` of the same keys.

use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow, ensure};
use serde::Deserialize;
use serde::de::IgnoredAny;
use toml::Spanned;
use toml::de::{DeTable, Deserializer, ValueDeserializer};

use super::exit_code::Hinted as _;
use super::exposure;
use super::source::Source;
use super::usage::nearest;
use crate::backend::Risk;
use crate::net::passwords::has_password;
use crate::output::sanitise;

/// A value, as texts in the form in which flags and variables have it.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum Value {
    Text(String),
    Texts(Vec<String>),
    Whole(i64),
    Part(f64),
    Switch(bool),
    Other(IgnoredAny),
}

impl Value {
    fn texts(&self) -> Vec<String> {
        match self {
            // An empty list is refused as an empty text is.
            Self::Texts(texts) if texts.is_empty() => vec![String::new()],
            Self::Texts(texts) => texts.clone(),
            Self::Text(text) => vec![text.clone()],
            Self::Whole(seconds) => vec![seconds.to_string()],
            Self::Part(seconds) => vec![seconds.to_string()],
            Self::Switch(on) => vec![on.to_string()],
            Self::Other(_) => Vec::new(),
        }
    }
}

/// The expected value of a key in words, and the check of a value.
type Kind = (&'static str, fn(&Value) -> bool);
const TEXT: Kind = ("a text in quotes", |value| matches!(value, Value::Text(_)));
const TEXTS: Kind =
    ("a text in quotes, or a list of them", |value| matches!(value, Value::Text(_) | Value::Texts(_)));
const LENGTH: Kind = ("a duration in quotes, such as \"30s\", or a number of seconds", |value| {
    matches!(value, Value::Text(_) | Value::Whole(_) | Value::Part(_))
});
const SWITCH: Kind = ("true or false", |value| matches!(value, Value::Switch(_)));

/// Makes the table of keys, for a file and for each of its profiles.
macro_rules! keys {
    ($($key:literal $field:ident: $kind:ident,)*) => {
        /// The keys, in the order of the manual. Keys of services that this program was built without are valid, so that one
        /// file serves a whole fleet.
        pub const KEYS: &[&str] = &[$($key),*];

        #[derive(Clone, Debug, Default, Deserialize)]
        #[serde(deny_unknown_fields, default, expecting = "a table of options")]
        struct Table {
            $(#[serde(rename = $key)] $field: Option<Spanned<Value>>,)*
        }

        impl Table {
            /// Returns the value of `key`, and what it must be.
            fn get(&self, key: &str) -> Option<(&Spanned<Value>, Kind)> {
                match key {
                    $($key => self.$field.as_ref().map(|found| (found, $kind)),)*
                    _ => None,
                }
            }
        }
    };
}

keys! {
    "backend" backend: TEXT,
    "endpoint" endpoint: TEXTS,
    "prefix" prefix: TEXT,
    "allow-network-fs" allow_network_fs: SWITCH,
    "user" user: TEXT,
    "password" password: TEXT,
    "password-file" password_file: TEXT,
    "cacert" cacert: TEXT,
    "cert" cert: TEXT,
    "key" key: TEXT,
    "tls-server-name" tls_server_name: TEXT,
    "max-ttl" max_ttl: LENGTH,
    "zk-layout" zk_layout: TEXT,
    "ttl" ttl: LENGTH,
    "grace" grace: LENGTH,
    "wait" wait: LENGTH,
    "label" label: TEXT,
    "log-format" log_format: TEXT,
    "quiet" quiet: SWITCH,
    "verbose" verbose: SWITCH,
}

/// A configuration file that was read and checked.
#[derive(Clone, Debug)]
pub struct ConfigFile {
    /// The path.
    pub path: PathBuf,
    text: String,
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
        Self::parse(path, text).map(Some)
    }

    /// Returns the risk that other users can read a password in the file.
    pub fn doubt(&self) -> Option<Risk> {
        let what = "the configuration file has a password";
        self.has_secret().then(|| exposure::doubt(what, &self.path))?
    }

    fn parse(path: &Path, text: String) -> Result<Self> {
        let wrong = |error| fault(path, &text, &error);
        let mut root = DeTable::parse(&text).map_err(wrong)?;
        let profiles = root.get_mut().remove("profile").map(ValueDeserializer::from);
        let top = Table::deserialize(Deserializer::from(root)).map_err(wrong)?;
        let profiles = profiles.map(BTreeMap::deserialize).transpose().map_err(wrong)?.unwrap_or_default();
        for table in profiles.values().chain([&top]) {
            for key in KEYS {
                let Some((found, (wanted, fits))) = table.get(key) else { continue };
                let place = || place_of(path, &text, found.span().start);
                // The message never has the value, which may be a secret.
                ensure!(fits(found.get_ref()), "{}: {key} must be {wanted}", place());
            }
        }
        Ok(Self { path: path.to_owned(), text, top, profiles })
    }

    fn has_secret(&self) -> bool {
        self.profiles.values().chain([&self.top]).any(|table| {
            let endpoints = table.get("endpoint").map(|(urls, _)| urls.get_ref().texts()).unwrap_or_default();
            table.password.is_some() || endpoints.iter().any(|url| has_password(url))
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
            for key in KEYS.iter().rev() {
                let Some((found, _)) = table.get(key) else { continue };
                let (line, path) = (line_of(&self.text, found.span().start), self.path.clone());
                values.push((
                    *key,
                    found.get_ref().texts(),
                    Source::File { key, path, line, profile: profile.clone() },
                ));
            }
        }
        values
    }
}

fn line_of(text: &str, start: usize) -> usize {
    text.as_bytes().iter().take(start).filter(|b| **b == b'\n').count() + 1
}

fn place_of(path: &Path, text: &str, start: usize) -> String {
    format!("{}:{}", sanitise::os(path.as_os_str()), line_of(text, start))
}

/// Returns the error of the file `path`, which has `text`.
fn fault(path: &Path, text: &str, error: &toml::de::Error) -> anyhow::Error {
    let span = error.span().unwrap_or_default();
    let place = place_of(path, text, span.start);
    // Only the first line of the message is needed.
    let reason = error.message().lines().next().unwrap_or_default();
    if reason.starts_with("unknown field ") {
        let word = text.get(span).unwrap_or_default().trim_matches(['"', '\'']);
        let near = nearest(word, KEYS.iter().copied().chain(["profile"]));
        let hint = near.map(|near| format!("did you mean {near}?"));
        return anyhow!("{place}: unknown key {}", sanitise::text(word))
            .hint(hint.unwrap_or_else(|| "the keys are listed in dlock man config".to_owned()));
    }
    // The message may repeat the value, which may be a secret.
    let wanted = reason.rsplit_once(", expected ").map(|(_, wanted)| wanted);
    let key = text.get(..span.start).and_then(|before| before.trim_end().strip_suffix('='));
    let key = key.and_then(|before| before.split_whitespace().last()).map(sanitise::text);
    match (key, wanted) {
        // The parser's word for a value without quotes.
        (Some(key), Some("literal string")) => {
            anyhow!("{place}: the value of {key} is not in quotes").hint(format!("write {key} = \"VALUE\""))
        }
        (Some(key), wanted) => anyhow!("{place}: {key} must be {}", wanted.unwrap_or(reason)),
        (None, Some(wanted)) => {
            anyhow!("{place}: this is not TOML: {wanted} is missing").hint("a line is KEY = \"VALUE\"")
        }
        (None, None) => anyhow!("{place}: {reason}"),
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
