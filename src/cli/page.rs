//! The manual pages.

use crate::backend::locator::SERVICES;

/// A manual page.
#[derive(Clone, Copy, Debug)]
pub struct Page {
    /// The name for `dlock man`.
    pub name: &'static str,
    /// The section of the manual; that of commands is 1.
    pub section: &'static str,
    /// The text, in Markdown.
    pub text: &'static str,
}

const fn page(name: &'static str, section: &'static str, text: &'static str) -> Page {
    Page { name, section, text }
}

/// The pages of dlock, its subcommands and topics, in the order of the help.
pub const PAGES: [Page; 19] = [
    page("dlock", "1", include_str!("manual/text/dlock.md")),
    page("run", "1", include_str!("manual/text/run.md")),
    page("elect", "1", include_str!("manual/text/elect.md")),
    page("proclaim", "1", include_str!("manual/text/proclaim.md")),
    page("leader", "1", include_str!("manual/text/leader.md")),
    page("acquire", "1", include_str!("manual/text/acquire.md")),
    page("release", "1", include_str!("manual/text/release.md")),
    page("renew", "1", include_str!("manual/text/renew.md")),
    page("status", "1", include_str!("manual/text/status.md")),
    page("list", "1", include_str!("manual/text/list.md")),
    page("watch", "1", include_str!("manual/text/watch.md")),
    page("break", "1", include_str!("manual/text/break.md")),
    page("doctor", "1", include_str!("manual/text/doctor.md")),
    page("completions", "1", include_str!("manual/text/completions.md")),
    page("man", "1", include_str!("manual/text/man.md")),
    page("config", "5", include_str!("manual/text/config.md")),
    page("formats", "5", include_str!("manual/text/formats.md")),
    page("signals", "7", include_str!("manual/text/signals.md")),
    page("recipes", "7", include_str!("manual/text/recipes.md")),
];

/// Returns the names of the subcommands.
pub fn subcommands() -> impl Iterator<Item = &'static str> {
    PAGES[1..].iter().filter(|page| page.is_of_command()).map(|page| page.name)
}

impl Page {
    /// Returns all pages, those of the services last.
    pub fn all() -> impl Iterator<Item = Self> {
        PAGES.into_iter().chain(SERVICES.iter().map(|service| page(service.name, "7", service.manual)))
    }

    /// Returns the page of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::all().find(|page| page.name == name)
    }

    /// Returns whether it is the page of dlock or of a subcommand.
    pub fn is_of_command(self) -> bool {
        self.section == "1"
    }

    /// Returns the name for man(1).
    pub fn title(self) -> String {
        if self.name == "dlock" { self.name.to_owned() } else { format!("dlock-{}", self.name) }
    }

    /// Returns the name of its file.
    pub fn file_name(self) -> String {
        format!("{}.{}", self.title(), self.section)
    }
}
