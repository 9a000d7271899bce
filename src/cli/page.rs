//! Which manual pages there are.

use super::subcommand::Subcommand;
use crate::backend::locator::SERVICES;
use crate::backend::service::Service;

/// A manual page.
#[derive(Clone, Copy, Debug)]
pub enum Page {
    /// `dlock(1)`.
    Main,
    /// `dlock-SUBCOMMAND(1)`.
    Subcommand(Subcommand),
    /// `dlock-recipes(7)`.
    Recipes,
    /// `dlock-SERVICE(7)`.
    Service(&'static Service),
}

impl Page {
    /// All of them, in the order of the help.
    pub fn all() -> impl Iterator<Item = Self> {
        let subcommands = Subcommand::ALL.into_iter().map(Self::Subcommand);
        let services = SERVICES.iter().copied().map(Self::Service);
        std::iter::once(Self::Main).chain(subcommands).chain([Self::Recipes]).chain(services)
    }

    /// What `dlock man` calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Main => "dlock",
            Self::Subcommand(subcommand) => subcommand.name(),
            Self::Recipes => "recipes",
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
            Self::Subcommand(_) | Self::Recipes | Self::Service(_) => format!("dlock-{}", self.name()),
        }
    }

    /// The section of the manual that it belongs to.
    pub fn section(self) -> &'static str {
        match self {
            Self::Main | Self::Subcommand(_) => "1",
            Self::Recipes | Self::Service(_) => "7",
        }
    }

    /// The name of its file.
    pub fn file_name(self) -> String {
        format!("{}.{}", self.title(), self.section())
    }
}
