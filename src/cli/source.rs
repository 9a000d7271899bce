//! Where a value came from.

use std::fmt;
use std::path::PathBuf;

/// Where a value came from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Source {
    /// The command line: the option's name without dashes.
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
        /// The profile that the key stands in, if in one.
        profile: Option<String>,
    },
    /// Nobody said anything.
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

/// A text and where it came from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SourcedText {
    /// The text.
    pub text: String,
    /// Where it came from.
    pub source: Source,
}

/// A value that was found, and where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Resolved {
    /// The option's name, without dashes.
    pub option: &'static str,
    /// Its value; several for options that may be repeated.
    pub texts: Vec<String>,
    /// Where it came from.
    pub source: Source,
}

/// What was found for each option that was asked for, for error messages and for whoever explains a
/// configuration.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Sources(Vec<Resolved>);

impl Sources {
    /// Remembers the value of `option` and where it came from.
    pub fn remember(&mut self, option: &'static str, texts: Vec<String>, source: Source) {
        self.0.retain(|known| known.option != option);
        self.0.push(Resolved { option, texts, source });
    }

    /// What was found for `option`.
    pub fn find(&self, option: &str) -> Option<&Resolved> {
        self.0.iter().find(|known| known.option == option)
    }

    /// The source of `option`.
    pub fn of(&self, option: &str) -> &Source {
        self.find(option).map_or(&Source::Default, |known| &known.source)
    }
}
