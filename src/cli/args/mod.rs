//! The command line: the one source of help, completions and manual pages.
//!
//! A value that can also come from the environment or a file is a text here. [`super::settings`] types it, so that all three are
//! judged alike. Only the tree of the named subcommand is built: dlock starts before every job, and users wait for its start.
//!
//! The sentence of a subcommand is at its variant. clap would let a doc comment on a struct of arguments replace it.

#![expect(missing_docs, reason = "clap takes the doc comment of a struct for the sentence of its subcommand")]

mod acquire;
mod connection;
mod elect;
mod lock;
mod looks;
mod run;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Command, CommandFactory as _, Parser, Subcommand};

use super::page::{PAGES, Page};

pub use acquire::{AcquireArgs, ClaimArgs};
pub use connection::{CommonArgs, ConnectionArgs, MessageArgs};
pub use elect::{ElectArgs, LeaderArgs, ProclaimArgs};
pub use lock::{LockArgs, NameArgs};
pub use looks::{BreakArgs, DoctorArgs, ListArgs, StatusArgs, WatchArgs};
pub use run::RunArgs;

/// The whole command line.
#[derive(Parser, Debug)]
#[command(
    name = "dlock",
    version,
    args_override_self = true,
    about = "Put a distributed lock in front of a command",
    max_term_width = 100
)]
#[command(
    after_help = "Examples:\n  dlock run --name nightly -- ./backup.sh\n  dlock status nightly\n\nOptions follow the command: dlock COMMAND --help shows them."
)]
pub struct CommandLine {
    /// The subcommand.
    #[command(subcommand)]
    pub asked: Invocation,
}

/// A subcommand.
#[derive(Subcommand, Debug)]
#[command(defer = true)]
pub enum Invocation {
    /// Run a command under a lock
    #[command(after_help = run::EXAMPLES, override_usage = "dlock run [OPTIONS] --name NAME [--name NAME]... [--] COMMAND [ARG]...")]
    Run(Box<RunArgs>),
    /// Run a command while elected the leader
    #[command(after_help = elect::EXAMPLES, override_usage = "dlock elect [OPTIONS] --name NAME [--value TEXT] [--forever] [--] COMMAND [ARG]...")]
    Elect(Box<ElectArgs>),
    /// Change the leader's value, from inside its command
    #[command(override_usage = "dlock proclaim VALUE")]
    Proclaim(ProclaimArgs),
    /// Show the current leader and its value
    #[command(override_usage = "dlock leader NAME [--follow] [--json]")]
    Leader(LeaderArgs),
    /// Acquire a lock for a running script, and print the claim
    #[command(after_help = acquire::EXAMPLES, override_usage = "dlock acquire [OPTIONS] --name NAME [--name NAME]... (--for-pid PID | --detach)")]
    Acquire(Box<AcquireArgs>),
    /// Release a lock taken with acquire
    #[command(override_usage = "dlock release [CLAIM] [--name NAME]...")]
    Release(ClaimArgs),
    /// Renew a detached lease
    #[command(override_usage = "dlock renew [CLAIM] [--name NAME]...")]
    Renew(ClaimArgs),
    /// Show who holds and waits for locks, in order
    Status(StatusArgs),
    /// List the locks that have holders or waiters
    List(ListArgs),
    /// Show a lock's queue after each change, until interrupted
    #[command(override_usage = "dlock watch NAME [--json]")]
    Watch(WatchArgs),
    /// Stop a holder or remove a waiter
    #[command(override_usage = "dlock break NAME [--claim ID | --all] [--yes] [--force]")]
    Break(BreakArgs),
    /// Show the effective configuration and check the lock service
    Doctor(DoctorArgs),
    /// Print the completions for a shell
    Completions(CompletionsArgs),
    /// Show a manual page
    Man(ManArgs),
    /// A request of the completions of a shell: the words to the cursor.
    #[command(skip)]
    Complete(Vec<String>),
    /// `--help` or `--version`: the text to print.
    #[command(skip)]
    Text(String),
}

/// Returns the whole tree. Each subcommand is built when it is named.
pub fn command() -> Command {
    CommandLine::command()
}

/// Returns the whole tree, built.
pub fn whole() -> Command {
    let mut command = command();
    command.build();
    command
}

/// Returns the subcommand `name`.
///
/// # Panics
/// Without such a subcommand.
pub fn subcommand(name: &str) -> Command {
    whole().find_subcommand(name).cloned().expect("a subcommand")
}

/// The shells that have completions.
pub const SHELLS: [&str; 3] = ["bash", "zsh", "fish"];

#[derive(Args, Debug)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "SHELL", value_parser = SHELLS)]
    pub shell: String,
}

#[derive(Args, Debug)]
pub struct ManArgs {
    /// A subcommand, a lock service or a topic [default: the main page]
    #[arg(value_name = "COMMAND|SERVICE", value_parser = pages())]
    pub page: Option<Page>,
}

/// Reads the name of a page.
fn pages() -> impl TypedValueParser<Value = Page> {
    let names: PossibleValuesParser = Page::all().map(|page| page.name).collect::<Vec<_>>().into();
    names.map(|name| Page::named(&name).unwrap_or(PAGES[0]))
}
