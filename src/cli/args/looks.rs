//! The options of the commands that show locks and break claims.

use clap::Args;

use super::{CommonArgs, NameArgs};
use crate::cli::values;
use crate::lock::LockName;

#[derive(Args, Debug)]
pub struct StatusArgs {
    /// The lock, or several [default: all that have holders or waiters]
    #[arg(value_name = "NAME")]
    pub names: Vec<LockName>,
    /// The lock, as run takes it; the same as NAME
    #[arg(long = "name", value_name = "NAME")]
    pub named: Vec<LockName>,
    /// Print a JSON object, one a line for each name
    #[arg(long, conflicts_with = "wide")]
    pub json: bool,
    /// Show also the token, the TTL and the whole claim, and cut nothing
    #[arg(long)]
    pub wide: bool,
    /// Exit 75 if one of the locks is held or waited for, 0 if all are free
    #[arg(long)]
    pub exit_code: bool,
    /// The options of all subcommands.
    #[command(flatten)]
    pub common: CommonArgs,
}

#[derive(Args, Debug)]
pub struct ListArgs {
    /// Only locks whose names start with this
    #[arg(value_name = "PREFIX", value_parser = values::beginning)]
    pub starting_with: Option<String>,
    /// Print a JSON object
    #[arg(long)]
    pub json: bool,
    /// The options of all subcommands.
    #[command(flatten)]
    pub common: CommonArgs,
}

#[derive(Args, Debug)]
pub struct WatchArgs {
    /// The lock.
    #[command(flatten)]
    pub lock: NameArgs,
    /// Print a JSON object after each change, one a line
    #[arg(long)]
    pub json: bool,
    /// The options of all subcommands.
    #[command(flatten)]
    pub common: CommonArgs,
}

#[derive(Args, Debug)]
pub struct BreakArgs {
    /// The lock.
    #[command(flatten)]
    pub lock: NameArgs,
    /// Remove the claim ID, as status shows it; the first digits are enough, at least eight [default: the only one there is]
    #[arg(long, value_name = "ID", conflicts_with = "all", value_parser = values::claim_digits)]
    pub claim: Option<String>,
    /// Remove every claim on the lock, waiters first
    #[arg(long)]
    pub all: bool,
    /// Do not ask for confirmation
    #[arg(short, long)]
    pub yes: bool,
    /// Remove the entry without waiting for its holder; two commands may overlap. Entries of other programs need it
    #[arg(long)]
    pub force: bool,
    /// The options of all subcommands.
    #[command(flatten)]
    pub common: CommonArgs,
}

#[derive(Args, Debug)]
pub struct DoctorArgs {
    /// Print a JSON object
    #[arg(long)]
    pub json: bool,
    /// Print the SQL statements that create the tables, without connecting
    #[arg(long, conflicts_with = "json")]
    pub schema: bool,
    /// The options of all subcommands.
    #[command(flatten)]
    pub common: CommonArgs,
}
