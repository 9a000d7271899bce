//! Configuration files: TOML with the options' names as keys, and tables `[profile.NAME]` of the same keys.

use std::fs::{File, Metadata};
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::exit_code::Failure;
use super::exposure;
use super::source::Source;
use super::usage::nearest;
use crate::backend::Risk;
use crate::net::passwords::has_password;
use crate::output::sanitise;

/// What a key's value must be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A text.
    Text,
    /// A text or a list of texts.
    Texts,
    /// A text such as `30s` or a number of seconds.
    Length,
    /// `true` or `false`.
    Switch,
    /// A text that others must not read.
    Secret,
}

/// The keys, in the order of the manual. Those of services that this program was built without are accepted, so
/// that one file serves a whole fleet.
pub const KEYS: [(&str, Kind); 20] = [
    ("backend", Kind::Text),
    ("endpoint", Kind::Texts),
    ("prefix", Kind::Text),
    ("allow-network-fs", Kind::Switch),
    ("user", Kind::Text),
    ("password", Kind::Secret),
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

/// A value, with its line.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Setting {
    key: &'static str,
    texts: Vec<String>,
    line: usize,
}

/// A configuration file that was read and checked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfigFile {
    path: PathBuf,
    top: Vec<Setting>,
    profiles: Vec<(String, Vec<Setting>)>,
}

/// No configuration is longer; a device or a wrong path could be.
const MOST_BYTES: u64 = 1 << 20;

impl ConfigFile {
    /// Reads `path`; `None` if there is no such file. `uid` is the user that it may belong to, beside root.
    pub fn read(path: &Path, uid: u32) -> Result<Option<Self>, Failure> {
        let shown = sanitise::os(path.as_os_str());
        let cannot = |error: &std::io::Error| match error.kind() {
            ErrorKind::PermissionDenied => closed(path, &shown),
            _ => Failure::usage(format!("cannot read the configuration file {shown}: {error}")),
        };
        let file = match File::open(path) {
            Ok(file) => file,
            // ENOTDIR: something on the way is a file; then there is no such file either.
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                return Ok(None);
            }
            Err(error) => return Err(cannot(&error)),
        };
        let meta = file.metadata().map_err(|error| cannot(&error))?;
        check_owner(&shown, &meta, uid, exposure::is_read_only(&file))?;
        let mut bytes = Vec::new();
        file.take(MOST_BYTES + 1).read_to_end(&mut bytes).map_err(|error| cannot(&error))?;
        if bytes.len() as u64 > MOST_BYTES {
            return Err(Failure::usage(format!("the configuration file {shown} is longer than a mebibyte")));
        }
        let text = String::from_utf8(bytes)
            .map_err(|_| Failure::usage(format!("the configuration file {shown} is not valid UTF-8")))?;
        Self::parse(path, &text).map(Some)
    }

    /// That others may be able to read a password in it.
    pub fn doubt(&self) -> Option<Risk> {
        let what = "the configuration file has a password";
        self.has_secret().then(|| exposure::doubt(what, &self.path))?
    }

    fn parse(path: &Path, text: &str) -> Result<Self, Failure> {
        let at = |start: usize| format!("{}:{}", sanitise::os(path.as_os_str()), line_of(text, start));
        let table = DeTable::parse(text).map_err(|error| {
            let start = error.span().map_or(0, |span| span.start);
            // The message may go over several lines; what matters is in the first.
            let reason = error.message().lines().next().unwrap_or_default().to_owned();
            Failure::usage(format!("{}: {reason}", at(start)))
        })?;
        let mut config = Self { path: path.to_owned(), top: Vec::new(), profiles: Vec::new() };
        for (key, value) in table.get_ref() {
            match (key.get_ref().as_ref(), value.get_ref()) {
                ("profile", DeValue::Table(profiles)) => {
                    for (name, body) in profiles {
                        let DeValue::Table(body) = body.get_ref() else {
                            let place = at(name.span().start);
                            return Err(Failure::usage(format!(
                                "{place}: a profile is a table: [profile.{}]",
                                name.get_ref()
                            )));
                        };
                        let settings = body
                            .iter()
                            .map(|(key, value)| setting(text, key, value, &at))
                            .collect::<Result<_, _>>()?;
                        config.profiles.push((name.get_ref().to_string(), settings));
                    }
                }
                _ => config.top.push(setting(text, key, value, &at)?),
            }
        }
        Ok(config)
    }

    fn has_secret(&self) -> bool {
        let all = self.profiles.iter().map(|(_, settings)| settings).chain([&self.top]);
        all.flatten().any(|setting| {
            KEYS.contains(&(setting.key, Kind::Secret))
                || (setting.key == "endpoint" && setting.texts.iter().any(|url| has_password(url)))
        })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it has the profile `name`.
    pub fn has_profile(&self, name: &str) -> bool {
        self.profiles.iter().any(|(known, _)| known == name)
    }

    /// The names of its profiles.
    pub fn profiles(&self) -> impl Iterator<Item = &str> {
        self.profiles.iter().map(|(name, _)| name.as_str())
    }

    /// The value of `key` and where it stands: in `profile` if it is there, else at the top level.
    pub fn get(&self, key: &'static str, profile: Option<&str>) -> Option<(&[String], Source)> {
        let in_profile = profile.and_then(|name| self.profiles.iter().find(|(known, _)| known == name));
        let settings =
            in_profile.map(|(name, settings)| (Some(name), settings)).into_iter().chain([(None, &self.top)]);
        settings.flat_map(|(name, all)| all.iter().map(move |s| (name, s))).find(|(_, s)| s.key == key).map(
            |(name, setting)| {
                let source =
                    Source::File { key, path: self.path.clone(), line: setting.line, profile: name.cloned() };
                (setting.texts.as_slice(), source)
            },
        )
    }
}

fn line_of(text: &str, start: usize) -> usize {
    text.as_bytes().iter().take(start).filter(|b| **b == b'\n').count() + 1
}

fn setting(
    text: &str,
    key: &Spanned<std::borrow::Cow<'_, str>>,
    value: &Spanned<DeValue<'_>>,
    at: &dyn Fn(usize) -> String,
) -> Result<Setting, Failure> {
    let place = at(key.span().start);
    let word = key.get_ref().as_ref();
    let Some((known, kind)) = KEYS.iter().find(|(known, _)| *known == word) else {
        let failure = Failure::usage(format!("{place}: unknown key {}", sanitise::text(word)));
        let near = nearest(word, KEYS.iter().map(|(known, _)| *known).chain(["profile"]));
        return Err(match near {
            Some(near) => failure.hint(format!("did you mean {near}?")),
            None => failure.hint("the keys are listed under FILES in dlock man run"),
        });
    };
    let wanted = match kind {
        Kind::Text | Kind::Secret => "a text in quotes",
        Kind::Texts => "a text in quotes, or a list of them",
        Kind::Length => "a duration in quotes, such as \"30s\", or a number of seconds",
        Kind::Switch => "true or false",
    };
    let texts = match (kind, value.get_ref()) {
        (Kind::Text | Kind::Secret | Kind::Texts | Kind::Length, DeValue::String(text)) => {
            Some(vec![text.to_string()])
        }
        (Kind::Texts, DeValue::Array(items)) => items
            .iter()
            .map(
                |item| if let DeValue::String(text) = item.get_ref() { Some(text.to_string()) } else { None },
            )
            .collect(),
        (Kind::Length, DeValue::Integer(number)) => Some(vec![number.to_string()]),
        (Kind::Length, DeValue::Float(number)) => Some(vec![number.to_string()]),
        (Kind::Switch, DeValue::Boolean(on)) => Some(vec![on.to_string()]),
        _ => None,
    };
    match texts {
        Some(texts) => Ok(Setting { key: known, texts, line: line_of(text, key.span().start) }),
        None => Err(Failure::usage(format!("{place}: {known} must be {wanted}"))),
    }
}

fn check_owner(shown: &str, meta: &Metadata, uid: u32, is_read_only: bool) -> Result<(), Failure> {
    // Nothing can be put into a device such as /dev/null, which is a way to say "no configuration".
    if meta.file_type().is_char_device() {
        return Ok(());
    }
    if meta.is_dir() {
        return Err(Failure::usage(format!("the configuration file {shown} is a directory"))
            .hint("name a file in it with --config or DLOCK_CONFIG"));
    }
    // Nobody can change what a read-only mount shows, whatever the modes are that it shows.
    if is_read_only {
        return Ok(());
    }
    if meta.uid() != 0 && meta.uid() != uid && exposure::nameless() != Some(meta.uid()) {
        return Err(Failure::usage(format!(
            "the configuration file {shown} belongs to uid {}, who could change what dlock does; it must belong \
             to root or you",
            meta.uid()
        ))
        .hint(format!("sudo chown {uid} {shown}, or leave every file out with --config /dev/null")));
    }
    if meta.mode() & 0o022 != 0 {
        return Err(Failure::usage(format!(
            "the configuration file {shown} can be written by others, who could change what dlock does"
        ))
        .hint(format!("chmod go-w {shown}")));
    }
    Ok(())
}

/// That this user may not read the file, and who may.
fn closed(path: &Path, shown: &str) -> Failure {
    let out = "leave every file out with --config /dev/null";
    let Ok(meta) = std::fs::metadata(path) else {
        let reason =
            format!("the configuration file {shown} lies in a directory that this user may not enter");
        return Failure::usage(reason).hint(format!("let this user enter it, or {out}"));
    };
    let (owner, group, mode) = (meta.uid(), meta.gid(), meta.mode() & 0o7777);
    let group = if mode & 0o040 == 0 { String::new() } else { format!(" and the members of gid {group}") };
    Failure::usage(format!("the configuration file {shown} may be read only by uid {owner}{group} (mode {mode:04o})"))
        .hint(format!(
            "let everybody read it and keep its password in a file of its own, which password-file names; or {out}"
        ))
}

#[cfg(test)]
#[path = "config_file_tests.rs"]
mod tests;
