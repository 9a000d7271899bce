//! Flags over environment over the user's file over the system's file.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail};

use super::args::ConnectionArgs;
use super::config_file::ConfigFile;
use super::exit_code::Hinted as _;
use super::source::{Source, SourcedText, Sources};
use super::usage::nearest;
use super::values;
use crate::backend::Risk;
use crate::output::sanitise;

/// The options that an environment variable can set: `DLOCK_` and the name. All other variables that start so are
/// ignored: a Kubernetes service may be called dlock, and brings variables of its own.
pub const VARIABLES: [&str; 17] = [
    "backend",
    "endpoint",
    "prefix",
    "user",
    "password",
    "password-file",
    "cacert",
    "cert",
    "key",
    "tls-server-name",
    "zk-layout",
    "max-ttl",
    "config",
    "profile",
    "ttl",
    "grace",
    "log-format",
];

/// Reads an environment variable.
pub type Variables = Box<dyn Fn(&str) -> Option<OsString>>;

/// What settings depend on beside the command line.
pub struct Environment {
    /// Reads an environment variable.
    pub variable: Variables,
    /// The file for all users.
    pub system_file: PathBuf,
    /// The user.
    pub uid: u32,
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Environment")
            .field("system_file", &self.system_file)
            .field("uid", &self.uid)
            .finish_non_exhaustive()
    }
}

impl Environment {
    /// Those of this process.
    pub fn real() -> Self {
        Self {
            variable: Box::new(|name| std::env::var_os(name)),
            system_file: PathBuf::from("/etc/dlock/config.toml"),
            uid: rustix::process::geteuid().as_raw(),
        }
    }

    /// The user's file, unless nobody knows where that would be.
    fn user_file(&self) -> Option<PathBuf> {
        // A relative path would depend on the working directory: somebody else's, perhaps.
        let absolute = |name| (self.variable)(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let base =
            absolute("XDG_CONFIG_HOME").or_else(|| absolute("HOME").map(|home| home.join(".config")))?;
        Some(base.join("dlock/config.toml"))
    }
}

/// The configuration file that leaves every file out.
const NO_FILE: &str = "/dev/null";

/// All places where a value can be said.
#[derive(Debug)]
pub struct Layers<'a> {
    around: &'a Environment,
    files: Vec<ConfigFile>,
    profile: Option<String>,
    /// Options for which another one counts.
    overruled: Vec<&'static str>,
    /// Where the values asked for so far came from.
    pub sources: Sources,
    /// Secrets that others may be able to read.
    pub doubts: Vec<Risk>,
}

/// `DLOCK_LOG_FORMAT` for `log-format`.
fn variable_name(option: &str) -> String {
    format!("DLOCK_{}", option.to_ascii_uppercase().replace('-', "_"))
}

/// The user's file. One in a folder that the user may not enter is not the user's: HOME is another's, as under
/// sudo -u with the environment kept.
fn user_config(path: &Path, uid: u32) -> Result<Option<ConfigFile>> {
    ConfigFile::read(path, uid).or_else(|failure| match std::fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Ok(None),
        _ => Err(failure),
    })
}

/// Whether this user may not read the file, or not enter a directory before it.
fn is_closed(path: &Path) -> bool {
    std::fs::File::open(path).is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)
}

impl<'a> Layers<'a> {
    /// Reads the configuration files that there are.
    ///
    /// Errors: also for a file that this user may not read, since without it another lock could be meant.
    pub fn load(args: &ConnectionArgs, around: &'a Environment) -> Result<Self> {
        let (layers, unread) = Self::load_readable(args, around)?;
        unread.map_or(Ok(layers), Err)
    }

    /// Reads the configuration files that this user may read, and says what is wrong with another.
    pub fn load_readable(
        args: &ConnectionArgs,
        around: &'a Environment,
    ) -> Result<(Self, Option<anyhow::Error>)> {
        let mut layers = Self {
            around,
            files: Vec::new(),
            profile: None,
            overruled: Vec::new(),
            sources: Sources::default(),
            doubts: Vec::new(),
        };
        let mut unread = None;
        let mut readable = |path: &Path, found: Result<Option<ConfigFile>>| match found {
            Err(failure) if is_closed(path) => {
                unread = Some(failure);
                Ok(None)
            }
            found => found,
        };
        let explicit = layers.text("config", args.config.as_deref())?;
        let mut files = Vec::new();
        if let Some(SourcedText { text, source }) = &explicit {
            let path = Path::new(text);
            match readable(path, ConfigFile::read(path, around.uid))? {
                Some(file) => files.push(file),
                None if is_closed(path) => {}
                None => {
                    let shown = sanitise::text(text);
                    bail!("{source}: there is no file {shown}");
                }
            }
        } else if let Some(path) = around.user_file() {
            files.extend(readable(&path, user_config(&path, around.uid))?);
        }
        if explicit.is_none_or(|found| found.text != NO_FILE) {
            let path = &around.system_file;
            files.extend(readable(path, ConfigFile::read(path, around.uid))?);
        }
        layers.doubts.extend(files.iter().filter_map(ConfigFile::doubt));
        layers.files = files;
        let chosen = layers.choose_profile(args.profile.as_deref());
        match unread {
            // The profile may stand in the file that could not be read.
            Some(failure) => Ok((layers, Some(failure))),
            None => chosen.map(|()| (layers, None)),
        }
    }

    fn choose_profile(&mut self, flag: Option<&OsStr>) -> Result<()> {
        let Some(SourcedText { text: name, source }) = self.text("profile", flag)? else { return Ok(()) };
        if !self.profiles().contains(name.as_str()) {
            let called = if name.is_empty() { "without a name".into() } else { sanitise::text(&name) };
            let failure = anyhow!("{source}: no configuration file has a profile {called}");
            let known = self.profiles();
            return Err(match nearest(&name, known.iter().copied()) {
                Some(near) => failure.hint(format!("did you mean {}?", sanitise::text(near))),
                None if known.is_empty() => {
                    failure.hint("there is none; a profile is a table [profile.NAME]")
                }
                None => {
                    let known: Vec<&str> = known.into_iter().collect();
                    failure.hint(format!("the known ones are {}", sanitise::text(&known.join(", "))))
                }
            });
        }
        self.profile = Some(name);
        Ok(())
    }

    /// The names of all profiles, sorted.
    pub fn profiles(&self) -> BTreeSet<&str> {
        self.files.iter().flat_map(ConfigFile::profiles).collect()
    }

    /// The configuration files that were read, the weightier first.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(ConfigFile::path)
    }

    /// Settles which of two options counts that exclude each other: that of the weightier layer, or `first` where one layer says
    /// both. From here on the other is as good as unsaid.
    pub fn settle(&mut self, first: &'static str, second: &'static str, second_is_flag: bool) {
        if let (Some(a), Some(b)) = (self.depth(first, false), self.depth(second, second_is_flag)) {
            self.overruled.push(if a <= b { second } else { first });
        }
    }

    /// How far down the layers the first is that says `option`, if one does. A profile stands above the rest of its file.
    fn depth(&self, option: &'static str, is_flag: bool) -> Option<usize> {
        if is_flag {
            return Some(0);
        }
        if self.variable(option).is_some() {
            return Some(1);
        }
        self.files.iter().enumerate().find_map(|(n, file)| {
            let (_, source) = file.get(option, self.profile.as_deref())?;
            let is_below_profile = !matches!(source, Source::File { profile: Some(_), .. });
            Some(2 + 2 * n + usize::from(is_below_profile))
        })
    }

    /// What the environment says of `option`, if it can say anything.
    fn variable(&self, option: &str) -> Option<OsString> {
        let value = VARIABLES.contains(&option).then(|| (self.around.variable)(&variable_name(option)))?;
        // An empty variable says nothing, except of the prefix, which can be empty.
        let is_empty = |value: &OsStr| value.as_bytes().iter().all(|byte| b"\r\n".contains(byte));
        value.filter(|value| !is_empty(value) || option == "prefix")
    }

    /// The value of `option`, if anybody said one.
    pub fn text(&mut self, option: &'static str, flag: Option<&OsStr>) -> Result<Option<SourcedText>> {
        let found = self.texts(option, flag)?;
        Ok(found.and_then(|(mut texts, source)| texts.pop().map(|text| SourcedText { text, source })))
    }

    /// The values of `option`, all from the first layer that says any.
    pub fn texts<'f>(
        &mut self,
        option: &'static str,
        flags: impl IntoIterator<Item = &'f OsStr>,
    ) -> Result<Option<(Vec<String>, Source)>> {
        if self.overruled.contains(&option) {
            return Ok(None);
        }
        let source = Source::Flag(option);
        let said =
            flags.into_iter().map(|flag| values::utf8(flag, &source)).collect::<Result<Vec<_>, _>>()?;
        let found = if said.is_empty() { self.unflagged(option)? } else { Some((said, source)) };
        let Some((texts, source)) = found else { return Ok(None) };
        let line = |text: &String| values::line(option, text, &source);
        let texts = texts.iter().map(line).collect::<Result<Vec<_>, _>>()?;
        self.sources.remember(option, texts.clone(), source.clone());
        Ok(Some((texts, source)))
    }

    fn unflagged(&self, option: &'static str) -> Result<Option<(Vec<String>, Source)>> {
        if let Some(value) = self.variable(option) {
            let source = Source::Environment(variable_name(option));
            return Ok(Some((vec![values::utf8(&value, &source)?], source)));
        }
        Ok(self.in_files(option))
    }

    fn in_files(&self, option: &'static str) -> Option<(Vec<String>, Source)> {
        self.files.iter().find_map(|file| file.get(option, self.profile.as_deref()))
    }

    /// Whether the files switch `option` on.
    pub fn is_on(&self, option: &'static str) -> bool {
        self.in_files(option).is_some_and(|(texts, _)| texts == ["true"])
    }

    /// Whether `option` is switched on.
    pub fn switch(&mut self, option: &'static str, flag: bool) -> bool {
        if flag {
            self.sources.remember(option, vec!["true".to_owned()], Source::Flag(option));
            return true;
        }
        if self.overruled.contains(&option) {
            return false;
        }
        let Some((texts, source)) = self.in_files(option) else { return false };
        let on = texts == ["true"];
        self.sources.remember(option, texts, source);
        on
    }
}
