//! Configuration files: TOML with the options' names as keys, and tables `[profile.NAME]` of the same keys.

use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow, ensure};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use toml::Spanned;
use toml::de::{DeTable, Deserializer, ValueDeserializer};

use super::exit_code::Hinted as _;
use super::exposure;
use super::source::Source;
use super::usage::nearest;
use crate::backend::Risk;
use crate::net::passwords::has_password;
use crate::output::sanitise;

// What a key's value may be. The errors name what is wanted and repeat nothing: a value may be a secret.

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(untagged, expecting = "a text in quotes")]
enum Text {
    One(String),
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(untagged, expecting = "a text in quotes, or a list of them")]
enum Texts {
    One(String),
    Many(Vec<String>),
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(untagged, expecting = "a duration in quotes, such as \"30s\", or a number of seconds")]
enum Length {
    Text(String),
    Whole(i64),
    Part(f64),
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(untagged, expecting = "true or false")]
enum Switch {
    Is(bool),
}

/// What a value comes to: a text, or several.
fn texts(value: &impl Serialize) -> Vec<String> {
    match serde_json::to_value(value) {
        Ok(Value::Array(texts)) => texts.iter().map(text_of).collect(),
        Ok(one) => vec![text_of(&one)],
        Err(_) => Vec::new(),
    }
}

fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Makes the table of the keys, which are those of a file and of each of its profiles.
macro_rules! keys {
    ($($key:literal $field:ident: $type:ty,)*) => {
        /// The keys, in the order of the manual. Those of services that this program was built without are accepted, so
        /// that one file serves a whole fleet.
        pub const KEYS: &[&str] = &[$($key),*];

        #[derive(Clone, Debug, Default, Deserialize)]
        #[serde(deny_unknown_fields, default, expecting = "a table of options")]
        struct Table {
            $(#[serde(rename = $key)] $field: Option<Spanned<$type>>,)*
        }

        impl Table {
            /// The value of `key`, and where in the file it stands.
            fn get(&self, key: &str) -> Option<(Vec<String>, usize)> {
                match key {
                    $($key => self.$field.as_ref().map(|found| (texts(found.get_ref()), found.span().start)),)*
                    _ => None,
                }
            }
        }
    };
}

keys! {
    "backend" backend: Text,
    "endpoint" endpoint: Texts,
    "prefix" prefix: Text,
    "allow-network-fs" allow_network_fs: Switch,
    "user" user: Text,
    "password" password: Text,
    "password-file" password_file: Text,
    "cacert" cacert: Text,
    "cert" cert: Text,
    "key" key: Text,
    "tls-server-name" tls_server_name: Text,
    "max-ttl" max_ttl: Length,
    "zk-layout" zk_layout: Text,
    "ttl" ttl: Length,
    "grace" grace: Length,
    "wait" wait: Length,
    "label" label: Text,
    "log-format" log_format: Text,
    "quiet" quiet: Switch,
    "verbose" verbose: Switch,
}

/// A configuration file that was read and checked.
#[derive(Clone, Debug)]
pub struct ConfigFile {
    path: PathBuf,
    text: String,
    top: Table,
    profiles: BTreeMap<String, Table>,
}

/// No configuration is longer; a device or a wrong path could be.
const MOST_BYTES: u64 = 1 << 20;

impl ConfigFile {
    /// Reads `path`; `None` if there is no such file. `uid` is the user that it may belong to, beside root.
    pub fn read(path: &Path, uid: u32) -> Result<Option<Self>> {
        let shown = sanitise::os(path.as_os_str());
        let cannot = || format!("cannot read the configuration file {shown}");
        let file = match File::open(path) {
            Ok(file) => file,
            // ENOTDIR: something on the way is a file; then there is no such file either.
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

    /// That others may be able to read a password in it.
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
        Ok(Self { path: path.to_owned(), text, top, profiles })
    }

    fn has_secret(&self) -> bool {
        self.profiles.values().chain([&self.top]).any(|table| {
            let endpoints = table.get("endpoint").map(|(urls, _)| urls).unwrap_or_default();
            table.password.is_some() || endpoints.iter().any(|url| has_password(url))
        })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The names of its profiles.
    pub fn profiles(&self) -> impl Iterator<Item = &str> {
        self.profiles.keys().map(String::as_str)
    }

    /// The value of `key` and where it stands: in `profile` if it is there, else at the top level.
    pub fn get(&self, key: &'static str, profile: Option<&str>) -> Option<(Vec<String>, Source)> {
        let in_profile =
            profile.and_then(|name| Some((self.profiles.get(name)?.get(key)?, Some(name.to_owned()))));
        let ((texts, start), profile) = in_profile.or_else(|| Some((self.top.get(key)?, None)))?;
        let line = line_of(&self.text, start);
        Some((texts, Source::File { key, path: self.path.clone(), line, profile }))
    }
}

fn line_of(text: &str, start: usize) -> usize {
    text.as_bytes().iter().take(start).filter(|b| **b == b'\n').count() + 1
}

/// What is wrong with the file `path`, which has `text`.
fn fault(path: &Path, text: &str, error: &toml::de::Error) -> anyhow::Error {
    let span = error.span().unwrap_or_default();
    let place = format!("{}:{}", sanitise::os(path.as_os_str()), line_of(text, span.start));
    // The message may go over several lines; what matters is in the first.
    let reason = error.message().lines().next().unwrap_or_default();
    if reason.starts_with("unknown field ") {
        let word = text.get(span).unwrap_or_default().trim_matches(['"', '\'']);
        let near = nearest(word, KEYS.iter().copied().chain(["profile"]));
        let hint = near.map(|near| format!("did you mean {near}?"));
        return anyhow!("{place}: unknown key {}", sanitise::text(word))
            .hint(hint.unwrap_or_else(|| "the keys are listed under FILES in dlock man run".to_owned()));
    }
    // What was found instead may be a secret.
    let wanted = reason.rsplit_once(", expected ").map(|(_, wanted)| wanted);
    let key = text.get(..span.start).and_then(|before| before.trim_end().strip_suffix('='));
    match (key.and_then(|before| before.split_whitespace().last()), wanted.unwrap_or(reason)) {
        (Some(key), wanted) => anyhow!("{place}: {} must be {wanted}", sanitise::text(key)),
        (None, reason) => anyhow!("{place}: {reason}"),
    }
}

fn check_owner(shown: &str, meta: &Metadata, uid: u32, is_read_only: bool) -> Result<()> {
    // Nothing can be put into a device such as /dev/null, which is a way to say "no configuration".
    if meta.file_type().is_char_device() {
        return Ok(());
    }
    if meta.is_dir() {
        return Err(anyhow!("the configuration file {shown} is a directory")
            .hint("name a file in it with --config or DLOCK_CONFIG"));
    }
    // Nobody can change what a read-only mount shows, whatever the modes are that it shows.
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

/// That this user may not read the file, and who may.
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
            "let everybody read it and keep its password in a file of its own, which password-file names; or {out}"
        ))
}

#[cfg(test)]
#[path = "config_file_tests.rs"]
mod tests;
