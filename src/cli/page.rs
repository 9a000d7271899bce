//! The manual pages.

use crate::backend::locator::SERVICES;

/// A manual page.
#[derive(Clone, Copy, Debug)]
pub struct Page {
    /// The name for `dlock man`.
    pub name: &'static str,
    /// The section of the manual; that of commands is 1.
    pub section: &'static str,
    /// The text, as `tests/cli_generated` makes it.
    pub roff: &'static str,
}

/// A page with its file in `man/`.
macro_rules! page {
    ($name:literal $section:literal $title:expr) => {
        Page {
            name: $name,
            section: $section,
            roff: include_str!(concat!("../../man/", $title, ".", $section)),
        }
    };
}

/// The pages of dlock, its subcommands and topics, in the order of the help.
pub const PAGES: [Page; 19] = [
    page!("dlock" "1" "dlock"),
    page!("run" "1" "dlock-run"),
    page!("elect" "1" "dlock-elect"),
    page!("proclaim" "1" "dlock-proclaim"),
    page!("leader" "1" "dlock-leader"),
    page!("acquire" "1" "dlock-acquire"),
    page!("release" "1" "dlock-release"),
    page!("renew" "1" "dlock-renew"),
    page!("status" "1" "dlock-status"),
    page!("list" "1" "dlock-list"),
    page!("watch" "1" "dlock-watch"),
    page!("break" "1" "dlock-break"),
    page!("doctor" "1" "dlock-doctor"),
    page!("completions" "1" "dlock-completions"),
    page!("man" "1" "dlock-man"),
    page!("config" "5" "dlock-config"),
    page!("formats" "5" "dlock-formats"),
    page!("signals" "7" "dlock-signals"),
    page!("recipes" "7" "dlock-recipes"),
];

/// Returns the names of the subcommands.
pub fn subcommands() -> impl Iterator<Item = &'static str> {
    PAGES[1..].iter().filter(|page| page.is_of_command()).map(|page| page.name)
}

impl Page {
    /// Returns all pages, those of the services last.
    pub fn all() -> impl Iterator<Item = Self> {
        PAGES.into_iter().chain(SERVICES.iter().map(|service| Self {
            name: service.name,
            section: "7",
            roff: service.manual,
        }))
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
