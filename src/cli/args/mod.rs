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
use clap::{Args, Command, CommandFactory as _, Parser, Subcommand, ValueHint};

use super::page::Page;
use super::shell::Shell;

pub use acquire::{AcquireArgs, ClaimArgs, RenewArgs};
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
    about = "Put a distributed lock in front of a command",
    max_term_width = 100
)]
#[command(
    after_help = "Examples:\n  dlock run --name nightly -- ./backup.sh\n  dlock status nightly\n\nOptions follow the command: dlock COMMAND --help shows them."
)]
pub struct CommandLine {
    /// What is asked for.
    #[command(subcommand)]
    pub asked: Invocation,
}

/// What was asked for.
#[derive(Subcommand, Debug)]
#[command(defer = true)]
pub enum Invocation {
    /// Run a command under a lock
    #[command(args_override_self = true, after_help = run::EXAMPLES, override_usage = "dlock run [OPTIONS] --name NAME [--name NAME]... [--] COMMAND [ARG]...")]
    Run(Box<RunArgs>),
    /// Run a command while elected the leader
    #[command(args_override_self = true, after_help = elect::EXAMPLES, override_usage = "dlock elect [OPTIONS] --name NAME [--value TEXT] [--forever] [--] COMMAND [ARG]...")]
    Elect(Box<ElectArgs>),
    /// Change the leader's value, from inside its command
    #[command(args_override_self = true, override_usage = "dlock proclaim VALUE")]
    Proclaim(ProclaimArgs),
    /// Show the current leader and its value
    #[command(args_override_self = true, override_usage = "dlock leader NAME [--follow] [--json]")]
    Leader(LeaderArgs),
    /// Acquire a lock for a running script, and print the claim
    #[command(args_override_self = true, after_help = acquire::EXAMPLES, override_usage = "dlock acquire [OPTIONS] --name NAME [--name NAME]... (--for-pid PID | --detach)")]
    Acquire(Box<AcquireArgs>),
    /// Release a lock taken with acquire
    #[command(args_override_self = true)]
    Release(ClaimArgs),
    /// Renew a detached lease
    #[command(args_override_self = true)]
    Renew(RenewArgs),
    /// Show who holds and waits for locks, in order
    #[command(args_override_self = true)]
    Status(StatusArgs),
    /// List the locks that have holders or waiters
    #[command(args_override_self = true)]
    List(ListArgs),
    /// Show a lock's queue after each change, until interrupted
    #[command(args_override_self = true, override_usage = "dlock watch NAME [--json]")]
    Watch(WatchArgs),
    /// Stop a holder or remove a waiter
    #[command(
        args_override_self = true,
        override_usage = "dlock break NAME [--claim ID | --all] [--yes] [--force]"
    )]
    Break(BreakArgs),
    /// Show the effective configuration and check the lock service
    #[command(args_override_self = true)]
    Doctor(DoctorArgs),
    /// Print the completions for a shell
    #[command(args_override_self = true)]
    Completions(CompletionsArgs),
    /// Show a manual page
    #[command(args_override_self = true)]
    Man(ManArgs),
    /// What the completions of a shell ask for: the words to the cursor.
    #[command(skip)]
    Complete(Vec<String>),
    /// `--help` or `--version`: the text to print.
    #[command(skip)]
    Text(String),
}

/// The whole tree, of which each subcommand is made when it is named.
pub fn command() -> Command {
    CommandLine::command()
}

/// The whole tree, made.
pub fn whole() -> Command {
    let mut command = command();
    command.build();
    command
}

/// The subcommand `name`.
///
/// # Panics
/// If there is none.
pub fn subcommand(name: &str) -> Command {
    whole().find_subcommand(name).cloned().expect("a subcommand")
}

/// Print the completions for a shell
#[derive(Args, Debug)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "SHELL", required = true, value_enum)]
    pub shell: Option<Shell>,
}

/// Show a manual page
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
