//! Values of options and their sources.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

/// The source of a value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Source {
    /// The command line, with the option's name without dashes.
    Flag(&'static str),
    /// An environment variable.
    Environment(String),
    /// A configuration file.
    File {
        /// The key.
        key: &'static str,
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The profile that has the key.
        profile: Option<String>,
    },
    /// None: the value is a default.
    Default,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(name) => write!(f, "--{name}"),
            Self::Environment(variable) => f.write_str(variable),
            Self::File { key, path, line, profile } => {
                write!(f, "{}:{line}: {key}", path.display())?;
                profile.as_ref().map_or(Ok(()), |profile| write!(f, " of profile {profile}"))
            }
            Self::Default => f.write_str("default"),
        }
    }
}

/// A text and its source.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SourcedText {
    /// The text.
    pub text: String,
    /// The source.
    pub source: Source,
}

/// The value of an option.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Resolved {
    /// The value, without the line ends after it; several for an option that may be repeated.
    pub texts: Vec<OsString>,
    /// The source.
    pub source: Source,
}

/// Options of which only one counts: the one in the upper layer, or the first one if both are in one layer.
const RIVALS: [[&str; 2]; 2] = [["password", "password-file"], ["quiet", "verbose"]];

/// The value of each option in its uppermost layer.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Sources(BTreeMap<&'static str, Resolved>);

impl Sources {
    /// Sets the value of `option` in a layer above all that are set. Of two rivals in one layer the first must be set last.
    pub fn set(&mut self, option: &'static str, texts: Vec<OsString>, source: Source) {
        let texts: Vec<OsString> = texts.into_iter().map(|text| without_line_ends(&text)).collect();
        // An option that is switched off contradicts nothing.
        if texts != ["false"] {
            let rivals = RIVALS.into_iter().filter(|pair| pair.contains(&option)).flatten();
            rivals.for_each(|rival| drop(self.0.remove(rival)));
        }
        self.0.insert(option, Resolved { texts, source });
    }

    /// Adds a layer above.
    pub fn cover(&mut self, upper: Self) {
        upper.0.into_iter().for_each(|(option, Resolved { texts, source })| self.set(option, texts, source));
    }

    /// Returns the value of `option`.
    pub fn find(&self, option: &str) -> Option<&Resolved> {
        self.0.get(option)
    }

    /// Returns the source of `option`.
    pub fn of(&self, option: &str) -> &Source {
        self.find(option).map_or(&Source::Default, |known| &known.source)
    }
}

fn without_line_ends(text: &OsStr) -> OsString {
    let bytes = text.as_bytes();
    let end = bytes.iter().rposition(|byte| !b"\r\n".contains(byte)).map_or(0, |last| last + 1);
    OsStr::from_bytes(&bytes[..end]).to_owned()
}
