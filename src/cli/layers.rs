//! Layers: flags over environment variables over the user's file over the system's file.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};

use super::args::ConnectionArgs;
use super::config_file::{self, ConfigFile};
use super::exit_code::Hinted as _;
use super::source::{Resolved, Source, SourcedText, Sources};
use super::usage::nearest;
use super::values;
use crate::backend::Risk;
use crate::output::{Printer, sanitise};

/// The options without an environment variable.
const WITHOUT_VARIABLE: [&str; 5] = ["allow-network-fs", "wait", "label", "quiet", "verbose"];

/// The options of environment variables: `DLOCK_` and the name. Other variables that start with `DLOCK_` are ignored: Kubernetes
/// sets some for a service that is called dlock.
fn variables() -> impl Iterator<Item = &'static str> {
    // Of two rivals in one layer the first key is set last.
    let keys = config_file::KEYS.iter().copied().rev().filter(|key| !WITHOUT_VARIABLE.contains(key));
    keys.chain(["config", "profile"])
}

/// Reads an environment variable.
pub type Variables = Box<dyn Fn(&str) -> Option<OsString>>;

/// The sources of settings besides the command line.
pub struct Environment {
    /// Reads an environment variable.
    pub variable: Variables,
    /// The configuration file of the system.
    pub system_file: PathBuf,
    /// The user id.
    pub uid: u32,
    /// The printer of messages, as the settings want it.
    pub printer: Cell<Printer>,
}

impl Environment {
    /// Returns the environment of this process.
    pub fn real(printer: Printer) -> Self {
        Self {
            variable: Box::new(|name| std::env::var_os(name)),
            system_file: PathBuf::from("/etc/dlock/config.toml"),
            uid: rustix::process::geteuid().as_raw(),
            printer: Cell::new(printer),
        }
    }

    /// Returns the path of the user's file, if its directory is known.
    fn user_file(&self) -> Option<PathBuf> {
        // A relative path would depend on the working directory, which may belong to another user.
        let absolute = |name| (self.variable)(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let base =
            absolute("XDG_CONFIG_HOME").or_else(|| absolute("HOME").map(|home| home.join(".config")))?;
        Some(base.join("dlock/config.toml"))
    }
}

/// The value of --config that leaves out every file.
const NO_FILE: &str = "/dev/null";

/// The configuration files, and the values of all layers.
#[derive(Debug, Default)]
pub struct Layers {
    files: Vec<ConfigFile>,
    /// The value of each option in its uppermost layer.
    pub sources: Sources,
    /// Files with secrets that other users may be able to read.
    pub doubts: Vec<Risk>,
}

/// Reads the user's file. A file in a directory that the user may not enter counts as absent: HOME is another user's, as under
/// `sudo -u` with the old environment.
fn user_config(path: &Path, uid: u32) -> Result<Option<ConfigFile>> {
    ConfigFile::read(path, uid).or_else(|failure| match std::fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Ok(None),
        _ => Err(failure),
    })
}

/// Returns whether this user may not read the file, or not enter a directory above it.
fn is_closed(path: &Path) -> bool {
    std::fs::File::open(path).is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)
}

impl Layers {
    /// Reads the configuration files.
    ///
    /// Errors: also for a file that this user may not read, because without it another lock could be meant.
    pub fn load(args: &ConnectionArgs, around: &Environment) -> Result<Self> {
        let (layers, unread) = Self::load_readable(args, around)?;
        unread.map_or(Ok(layers), Err)
    }

    /// Reads the configuration files that this user may read, and returns the error of another one beside them.
    pub fn load_readable(
        args: &ConnectionArgs,
        around: &Environment,
    ) -> Result<(Self, Option<anyhow::Error>)> {
        let mut upper = Self::default();
        upper.add_variables(around);
        let explicit = upper.text("config", args.config.as_deref())?;
        let profile = upper.text("profile", args.profile.as_deref())?;
        let (mut files, mut unread) = (Vec::new(), None);
        let mut readable = |path: &Path, found: Result<Option<ConfigFile>>| match found {
            Err(failure) if is_closed(path) => {
                unread = Some(failure);
                Ok(None)
            }
            found => found,
        };
        if let Some(SourcedText { text, source }) = &explicit {
            let none = || anyhow!("{source}: there is no file {}", sanitise::text(text));
            let path = Path::new(text);
            let found = ConfigFile::read(path, around.uid).and_then(|file| file.ok_or_else(none).map(Some));
            files.extend(readable(path, found)?);
        } else if let Some(path) = around.user_file() {
            files.extend(readable(&path, user_config(&path, around.uid))?);
        }
        if explicit.is_none_or(|found| found.text != NO_FILE) {
            let path = &around.system_file;
            files.extend(readable(path, ConfigFile::read(path, around.uid))?);
        }
        let doubts = files.iter().filter_map(ConfigFile::doubt).collect();
        let mut layers = Self { files, sources: Sources::default(), doubts };
        // The profile may be in the file that this user may not read.
        if let (Some(profile), None) = (&profile, &unread) {
            layers.check_profile(profile)?;
        }
        let name = profile.as_ref().map(|profile| profile.text.as_str());
        for (option, texts, source) in layers.files.iter().rev().flat_map(|file| file.values(name)) {
            layers.sources.set(option, texts.into_iter().map(OsString::from).collect(), source);
        }
        layers.sources.cover(upper.sources);
        Ok((layers, unread))
    }

    fn add_variables(&mut self, around: &Environment) {
        for option in variables() {
            let name = format!("DLOCK_{}", option.to_ascii_uppercase().replace('-', "_"));
            let Some(value) = (around.variable)(&name) else { continue };
            // An empty variable counts as unset. Only a prefix can be empty.
            let is_empty = value.as_bytes().iter().all(|byte| b"\r\n".contains(byte));
            if !is_empty || option == "prefix" {
                self.sources.set(option, vec![value], Source::Environment(name));
            }
        }
    }

    fn check_profile(&self, profile: &SourcedText) -> Result<()> {
        let SourcedText { text: name, source } = profile;
        let known = self.profiles();
        if known.contains(name.as_str()) {
            return Ok(());
        }
        let called = if name.is_empty() { "without a name".into() } else { sanitise::text(name) };
        let error = anyhow!("{source}: no configuration file has a profile {called}");
        Err(match nearest(name, known.iter().copied()) {
            Some(near) => error.hint(format!("did you mean {}?", sanitise::text(near))),
            None if known.is_empty() => {
                error.hint("no profile is defined; a profile is a table [profile.NAME]")
            }
            None => {
                let known: Vec<&str> = known.into_iter().collect();
                error.hint(format!("the known ones are {}", sanitise::text(&known.join(", "))))
            }
        })
    }

    /// Returns the names of all profiles, sorted.
    pub fn profiles(&self) -> BTreeSet<&str> {
        self.files.iter().flat_map(ConfigFile::profiles).collect()
    }

    /// Returns the paths of the files that were read, the upper layer first.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(|file| file.path.as_path())
    }

    /// Returns the value of `option`, if it has one.
    pub fn text(&mut self, option: &'static str, flag: Option<&OsStr>) -> Result<Option<SourcedText>> {
        let found = self.texts(option, flag)?;
        Ok(found.and_then(|(mut texts, source)| texts.pop().map(|text| SourcedText { text, source })))
    }

    /// Returns the values of `option`. All come from its uppermost layer: `flags`, if there are any.
    pub fn texts<'f>(
        &mut self,
        option: &'static str,
        flags: impl IntoIterator<Item = &'f OsStr>,
    ) -> Result<Option<(Vec<String>, Source)>> {
        let flags: Vec<OsString> = flags.into_iter().map(OsStr::to_owned).collect();
        if !flags.is_empty() {
            self.sources.set(option, flags, Source::Flag(option));
        }
        let Some(Resolved { texts, source }) = self.sources.find(option) else { return Ok(None) };
        let texts = texts.iter().map(|text| values::line(option, text, source)).collect::<Result<_>>()?;
        Ok(Some((texts, source.clone())))
    }

    /// Returns whether `option` is on.
    pub fn switch(&mut self, option: &'static str, flag: bool) -> bool {
        if flag {
            self.sources.set(option, vec!["true".into()], Source::Flag(option));
        }
        self.sources.find(option).is_some_and(|found| found.texts == ["true"])
    }
}
