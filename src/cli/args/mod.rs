//! The command line: the one source of help, completions and manual pages.
//!
//! Values are taken as the system's texts and typed by [`super::settings`], together with those from the
//! environment and the files, so that all three are judged alike. Only the tree of the named subcommand is
//! built: dlock starts before every job, and its start is what users wait for.

mod acquire;
mod connection;
mod elect;
mod looks;
mod run;

use std::ffi::OsString;

use clap::builder::PossibleValuesParser;
use clap::{Args, Command, ValueHint};

use super::manual::Page;

pub use acquire::{AcquireArgs, ClaimArgs};
pub use connection::{ConnectionArgs, MessageArgs};
pub use elect::{ElectArgs, LeaderArgs, ProclaimArgs};
pub use looks::{BreakArgs, DoctorArgs, ListArgs, StatusArgs, WatchArgs};
pub use run::RunArgs;

/// The subcommands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Subcommand {
    /// `dlock run`.
    Run,
    /// `dlock elect`.
    Elect,
    /// `dlock proclaim`.
    Proclaim,
    /// `dlock leader`.
    Leader,
    /// `dlock acquire`.
    Acquire,
    /// `dlock release`.
    Release,
    /// `dlock renew`.
    Renew,
    /// `dlock status`.
    Status,
    /// `dlock list`.
    List,
    /// `dlock watch`.
    Watch,
    /// `dlock break`.
    Break,
    /// `dlock doctor`.
    Doctor,
    /// `dlock completions`.
    Completions,
    /// `dlock man`.
    Man,
}

impl Subcommand {
    /// All of them, in the order of the help.
    pub const ALL: [Self; 14] = [
        Self::Run,
        Self::Elect,
        Self::Proclaim,
        Self::Leader,
        Self::Acquire,
        Self::Release,
        Self::Renew,
        Self::Status,
        Self::List,
        Self::Watch,
        Self::Break,
        Self::Doctor,
        Self::Completions,
        Self::Man,
    ];

    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Elect => "elect",
            Self::Proclaim => "proclaim",
            Self::Leader => "leader",
            Self::Acquire => "acquire",
            Self::Release => "release",
            Self::Renew => "renew",
            Self::Status => "status",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Break => "break",
            Self::Doctor => "doctor",
            Self::Completions => "completions",
            Self::Man => "man",
        }
    }

    /// The subcommand of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|s| s.name() == name)
    }

    /// Its part of the command line.
    pub fn command(self) -> Command {
        let empty = Command::new(self.name())
            .bin_name(format!("dlock {}", self.name()))
            .display_name(format!("dlock-{}", self.name()))
            .args_override_self(true)
            .max_term_width(100);
        match self {
            Self::Run => RunArgs::augment_args(empty)
                .about("Run a command under a lock")
                .after_help(run::EXAMPLES)
                .override_usage("dlock run [OPTIONS] --name NAME [--name NAME]... [--] COMMAND [ARG]..."),
            Self::Elect => elect::as_elected(ElectArgs::augment_args(empty))
                .about("Run a command while elected the leader")
                .after_help(elect::EXAMPLES)
                .override_usage(
                    "dlock elect [OPTIONS] --name NAME [--value TEXT] [--forever] [--] COMMAND [ARG]...",
                ),
            Self::Proclaim => ProclaimArgs::augment_args(empty)
                .about("Change the value of the leader, from inside its command")
                .override_usage("dlock proclaim VALUE"),
            Self::Leader => LeaderArgs::augment_args(empty)
                .about("Show the leader of an election and what it proclaims")
                .override_usage("dlock leader NAME [--follow] [--json]"),
            Self::Acquire => AcquireArgs::augment_args(empty)
                .about("Take a lock for a script that runs already, and print the claim")
                .after_help(acquire::EXAMPLES)
                .override_usage(
                    "dlock acquire [OPTIONS] --name NAME [--name NAME]... (--for-pid PID | --detach)",
                ),
            Self::Release => ClaimArgs::augment_args(empty).about("Give back a lock that acquire has taken"),
            Self::Renew => {
                ClaimArgs::augment_args(empty).about("Give a lease of acquire --detach another ttl")
            }
            Self::Status => {
                StatusArgs::augment_args(empty).about("Show who holds and waits for locks, in order")
            }
            Self::List => ListArgs::augment_args(empty).about("List the locks that have holders or waiters"),
            Self::Watch => WatchArgs::augment_args(empty)
                .about("Show a lock's queue after each change, until interrupted")
                .override_usage("dlock watch NAME [--json]"),
            Self::Break => BreakArgs::augment_args(empty)
                .about("End a hold or a wait of somebody else")
                .override_usage("dlock break NAME [--claim ID | --all] [--yes] [--force]"),
            Self::Doctor => DoctorArgs::augment_args(empty)
                .about("Explain the configuration and look for what can cost a lock"),
            Self::Completions => {
                CompletionsArgs::augment_args(empty).about("Print the completions for a shell")
            }
            Self::Man => ManArgs::augment_args(empty).about("Show a manual page"),
        }
    }
}

/// The whole tree.
pub fn command() -> Command {
    Command::new("dlock")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Put a distributed lock in front of a command")
        .after_help("Examples:\n  dlock run --name nightly -- ./backup.sh\n  dlock status nightly\n\nOptions follow the command: dlock COMMAND --help tells them.")
        .arg_required_else_help(false)
        .subcommand_required(true)
        .max_term_width(100)
        .subcommands(Subcommand::ALL.map(Subcommand::command))
}

/// `dlock completions`.
#[derive(Args, Debug)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "SHELL", required = true, value_enum)]
    pub shell: Option<clap_complete::Shell>,
}

/// `dlock man`.
#[derive(Args, Debug)]
pub struct ManArgs {
    /// The subcommand or lock service whose page is shown, or recipes [default: the main page]
    #[arg(value_name = "COMMAND|SERVICE", value_parser = pages())]
    pub page: Option<String>,
    /// Write all pages into this directory instead
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub dir: Option<OsString>,
}

/// The names of all pages.
fn pages() -> PossibleValuesParser {
    Page::all().map(Page::name).collect::<Vec<_>>().into()
}
