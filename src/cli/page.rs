//! The manual pages.

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

/// Returns whether `word` is a subcommand.
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
    /// A topic.
    Topic(Topic),
    /// `dlock-SERVICE(7)`.
    Service(&'static Service),
}

/// A page that is neither about a command nor about a service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Topic {
    /// The name of the page.
    pub name: &'static str,
    section: &'static str,
    /// The text of the page.
    pub text: &'static str,
}

/// The topics, in the order of the help.
const TOPICS: [Topic; 4] = [
    Topic { name: "config", section: "5", text: include_str!("manual/text/config.md") },
    Topic { name: "formats", section: "5", text: include_str!("manual/text/formats.md") },
    Topic { name: "signals", section: "7", text: include_str!("manual/text/signals.md") },
    Topic { name: "recipes", section: "7", text: include_str!("manual/text/recipes.md") },
];

impl Page {
    /// Returns all pages, in the order of the help.
    pub fn all() -> impl Iterator<Item = Self> {
        let subcommands = SUBCOMMANDS.iter().map(|(name, _)| Self::Subcommand(name));
        let services = SERVICES.iter().copied().map(Self::Service);
        let topics = TOPICS.into_iter().map(Self::Topic);
        std::iter::once(Self::Main).chain(subcommands).chain(topics).chain(services)
    }

    /// Returns the name for `dlock man`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Main => "dlock",
            Self::Subcommand(name) => name,
            Self::Topic(topic) => topic.name,
            Self::Service(service) => service.name,
        }
    }

    /// Returns the page of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::all().find(|page| page.name() == name)
    }

    /// Returns the name for man(1).
    pub fn title(self) -> String {
        match self {
            Self::Main => "dlock".to_owned(),
            Self::Subcommand(_) | Self::Topic(_) | Self::Service(_) => format!("dlock-{}", self.name()),
        }
    }

    /// Returns the section of the manual.
    pub fn section(self) -> &'static str {
        match self {
            Self::Main | Self::Subcommand(_) => "1",
            Self::Topic(topic) => topic.section,
            Self::Service(_) => "7",
        }
    }

    /// Returns the name of its file.
    pub fn file_name(self) -> String {
        format!("{}.{}", self.title(), self.section())
    }
}
