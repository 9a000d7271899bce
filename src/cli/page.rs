//! Which manual pages there are.

use crate::backend::locator::SERVICES;
use crate::backend::service::Service;

/// The subcommands in the order of the help, each with the text of its page.
pub const SUBCOMMANDS: [(&str, &str); 14] = [
    ("run", include_str!("manual/text/run.md")),
    ("elect", include_str!("manual/text/elect.md")),
    ("proclaim", include_str!("manual/text/proclaim.md")),
    ("leader", include_str!("manual/text/leader.md")),
    ("acquire", include_str!("manual/text/acquire.md")),
    ("release", include_str!("manual/text/release.md")),
    ("renew", include_str!("manual/text/renew.md")),
    ("status", include_str!("manual/text/status.md")),
    ("list", include_str!("manual/text/list.md")),
    ("watch", include_str!("manual/text/watch.md")),
    ("break", include_str!("manual/text/break.md")),
    ("doctor", include_str!("manual/text/doctor.md")),
    ("completions", include_str!("manual/text/completions.md")),
    ("man", include_str!("manual/text/man.md")),
];

/// Whether there is a subcommand of that name.
pub fn is_subcommand(word: &str) -> bool {
    SUBCOMMANDS.iter().any(|(name, _)| *name == word)
}

/// A manual page.
#[derive(Clone, Copy, Debug)]
pub enum Page {
    /// `dlock(1)`.
    Main,
    /// `dlock-SUBCOMMAND(1)`.
    Subcommand(&'static str),
    /// About something that concerns several commands.
    Topic(Topic),
    /// `dlock-SERVICE(7)`.
    Service(&'static Service),
}

/// What a page is about that is neither a command nor a service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Topic {
    /// Files and environment: `dlock-config(5)`.
    Config,
    /// JSON and metrics: `dlock-formats(5)`.
    Formats,
    /// Signals, terminals and processes: `dlock-signals(7)`.
    Signals,
    /// `dlock-recipes(7)`.
    Recipes,
}

impl Topic {
    const ALL: [Self; 4] = [Self::Config, Self::Formats, Self::Signals, Self::Recipes];

    fn name(self) -> &'static str {
        match self {
            Self::Config => "config",
            Self::Formats => "formats",
            Self::Signals => "signals",
            Self::Recipes => "recipes",
        }
    }
}

impl Page {
    /// All of them, in the order of the help.
    pub fn all() -> impl Iterator<Item = Self> {
        let subcommands = SUBCOMMANDS.iter().map(|(name, _)| Self::Subcommand(name));
        let services = SERVICES.iter().copied().map(Self::Service);
        let topics = Topic::ALL.into_iter().map(Self::Topic);
        std::iter::once(Self::Main).chain(subcommands).chain(topics).chain(services)
    }

    /// What `dlock man` calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Main => "dlock",
            Self::Subcommand(name) => name,
            Self::Topic(topic) => topic.name(),
            Self::Service(service) => service.name,
        }
    }

    /// The page that `dlock man` calls `name`.
    pub fn named(name: &str) -> Option<Self> {
        Self::all().find(|page| page.name() == name)
    }

    /// What man(1) calls it.
    pub fn title(self) -> String {
        match self {
            Self::Main => "dlock".to_owned(),
            Self::Subcommand(_) | Self::Topic(_) | Self::Service(_) => format!("dlock-{}", self.name()),
        }
    }

    /// The section of the manual that it belongs to.
    pub fn section(self) -> &'static str {
        match self {
            Self::Main | Self::Subcommand(_) => "1",
            Self::Topic(Topic::Config | Topic::Formats) => "5",
            Self::Topic(_) | Self::Service(_) => "7",
        }
    }

    /// The name of its file.
    pub fn file_name(self) -> String {
        format!("{}.{}", self.title(), self.section())
    }
}
