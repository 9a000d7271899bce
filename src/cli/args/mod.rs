//! The command line: the one source of help, completions and manual pages.
//!
//! Values are taken as the system's texts and typed by [`super::settings`], together with those from the
//! environment and the files, so that all three are judged alike. Only the tree of the named subcommand is
//! built: dlock starts before every job, and its start is what users wait for.

mod acquire;
mod connection;
mod elect;
mod lock;
mod looks;
mod run;

use std::ffi::OsString;

use clap::builder::PossibleValuesParser;
use clap::{Args, Command, ValueHint};

use super::page::Page;
use super::shell::Shell;

pub use super::subcommand::Subcommand;
pub use acquire::{AcquireArgs, ClaimArgs};
pub use connection::{CommonArgs, ConnectionArgs, MessageArgs};
pub use elect::{ElectArgs, LeaderArgs, ProclaimArgs};
pub use lock::{LockArgs, NameArgs};
pub use looks::{BreakArgs, DoctorArgs, ListArgs, StatusArgs, WatchArgs};
pub use run::RunArgs;

impl Subcommand {
    /// Its part of the command line.
    pub fn command(self) -> Command {
        let empty = Command::new(self.name())
            .bin_name(format!("dlock {}", self.name()))
            .display_name(format!("dlock-{}", self.name()))
            .args_override_self(true)
            .max_term_width(100);
        match self {
            Self::Run => with::<RunArgs>(empty)
                .about("Run a command under a lock")
                .after_help(run::EXAMPLES)
                .override_usage("dlock run [OPTIONS] --name NAME [--name NAME]... [--] COMMAND [ARG]..."),
            Self::Elect => elect::as_elected(with::<ElectArgs>(empty))
                .about("Run a command while elected the leader")
                .after_help(elect::EXAMPLES)
                .override_usage(
                    "dlock elect [OPTIONS] --name NAME [--value TEXT] [--forever] [--] COMMAND [ARG]...",
                ),
            Self::Proclaim => with::<ProclaimArgs>(empty)
                .about("Change the leader's value, from inside its command")
                .override_usage("dlock proclaim VALUE"),
            Self::Leader => elect::of_election(with::<LeaderArgs>(empty))
                .about("Show the current leader and its value")
                .override_usage("dlock leader NAME [--follow] [--json]"),
            Self::Acquire => acquire::as_acquired(with::<AcquireArgs>(empty))
                .about("Acquire a lock for a running script, and print the claim")
                .after_help(acquire::EXAMPLES)
                .override_usage(
                    "dlock acquire [OPTIONS] --name NAME [--name NAME]... (--for-pid PID | --detach)",
                ),
            Self::Release => with::<ClaimArgs>(empty).about("Release a lock taken with acquire"),
            Self::Renew => with::<ClaimArgs>(empty).about("Renew a detached lease"),
            Self::Status => with::<StatusArgs>(empty).about("Show who holds and waits for locks, in order"),
            Self::List => with::<ListArgs>(empty).about("List the locks that have holders or waiters"),
            Self::Watch => with::<WatchArgs>(empty)
                .about("Show a lock's queue after each change, until interrupted")
                .override_usage("dlock watch NAME [--json]"),
            Self::Break => with::<BreakArgs>(empty)
                .about("Stop a holder or remove a waiter")
                .override_usage("dlock break NAME [--claim ID | --all] [--yes] [--force]"),
            Self::Doctor => {
                with::<DoctorArgs>(empty).about("Show the effective configuration and check the lock service")
            }
            Self::Completions => with::<CompletionsArgs>(empty).about("Print the completions for a shell"),
            Self::Man => with::<ManArgs>(empty).about("Show a manual page"),
        }
    }
}

/// The arguments `A`. One by one: in a single function those of all subcommands would take a stack of many pages, each of which
/// costs every start.
#[inline(never)]
fn with<A: Args>(command: Command) -> Command {
    A::augment_args(command)
}

/// The whole tree.
pub fn command() -> Command {
    Command::new("dlock")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Put a distributed lock in front of a command")
        .after_help("Examples:\n  dlock run --name nightly -- ./backup.sh\n  dlock status nightly\n\nOptions follow the command: dlock COMMAND --help shows them.")
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
    pub shell: Option<Shell>,
}

/// `dlock man`.
#[derive(Args, Debug)]
pub struct ManArgs {
    /// A subcommand, a lock service or a topic [default: the main page]
    #[arg(value_name = "COMMAND|SERVICE", value_parser = pages())]
    pub page: Option<String>,
    /// Write all pages into DIR
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub dir: Option<OsString>,
}

/// The names of all pages.
fn pages() -> PossibleValuesParser {
    Page::all().map(Page::name).collect::<Vec<_>>().into()
}
