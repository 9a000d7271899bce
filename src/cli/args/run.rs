//! The options of `run`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PathBufValueParser, TypedValueParser};
use clap::{Args, ValueHint};

use super::{CommonArgs, LockArgs};
use crate::cli::values;
use crate::lock::duration;
use crate::supervise::signals::Signal;

/// The text below the help.
pub(super) const EXAMPLES: &str = "\
Examples:
  Skip this run if the previous one is still running, and let cron send no mail about it:
    dlock run --name backup --try -E 0 -- ./backup.sh
  Wait for the lock, at most ten minutes:
    dlock run --name deploy --wait 10m -- ./deploy.sh production
  Run at most three at once, with shell syntax:
    dlock run --name render --slots 3 -c 'render < in.txt > out.png'";

#[derive(Args, Clone, PartialEq, Eq, Debug, Default)]
#[command(next_help_heading = "Lock")]
#[expect(clippy::struct_excessive_bools, reason = "one for each switch")]
pub struct RunArgs {
    /// The command and its arguments; options before it are dlock's, all after it its own
    #[arg(help_heading = "Command", value_name = "COMMAND", required_unless_present = "shell_command", trailing_var_arg = true, value_hint = ValueHint::CommandWithArguments)]
    pub argv: Vec<OsString>,
    /// The lock.
    #[command(flatten)]
    pub lock: LockArgs,
    /// Send SIGNAL first, a name or a number, when dlock stops the command [default: TERM]
    #[arg(long, value_name = "SIGNAL", allow_hyphen_values = true, hide_short_help = true, value_parser = values::signal)]
    pub signal: Option<Signal>,
    /// Stop the command after it has held the lock for DURATION [default: never]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, value_parser = duration::parse)]
    pub max_run: Option<Duration>,
    /// Hold the lock for at least DURATION, even if the command exits sooner [default: 0]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, hide_short_help = true, value_parser = duration::parse)]
    pub hold_at_least: Option<Duration>,
    /// Skip (exit 0) if a run that acquired the lock within the last DURATION succeeded [default: off]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, value_parser = duration::parse)]
    pub once_per: Option<Duration>,
    /// Replace older waiters that also passed --supersede; they exit as busy
    #[arg(long, hide_short_help = true)]
    pub supersede: bool,
    /// Like --supersede, but also stop a holder that passed --replace; it exits 76
    #[arg(long, hide_short_help = true)]
    pub replace: bool,
    /// Hold the lock until every descendant of the command has exited
    #[arg(long, hide_short_help = true)]
    pub whole_tree: bool,
    /// Queue separately, even inside a run that already holds the lock
    #[arg(long, hide_short_help = true)]
    pub no_nest: bool,
    /// Send READY=1 to systemd when the command starts
    #[arg(long, hide_short_help = true)]
    pub notify_ready: bool,
    /// Run STRING with /bin/sh instead of a command and its arguments
    #[arg(short = 'c', long = "command", value_name = "STRING", conflicts_with = "argv", allow_hyphen_values = true, value_hint = ValueHint::CommandString)]
    pub shell_command: Option<OsString>,
    /// Show TEXT to others in status and messages
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true, hide_short_help = true)]
    pub label: Option<OsString>,
    /// Write a JSON report of the run to FILE
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, hide_short_help = true, value_parser = file())]
    pub report: Option<PathBuf>,
    /// Write Prometheus metrics to FILE, for the node exporter's textfile collector
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, hide_short_help = true, value_parser = file())]
    pub metrics_file: Option<PathBuf>,
    /// The options of all subcommands.
    #[command(flatten)]
    pub common: CommonArgs,
}

fn file() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(values::file)
}
