//! The options of the commands about elections.

use clap::Args;

use super::{CommonArgs, NameArgs, RunArgs};
use crate::cli::values;

/// The text below the help of `elect`.
pub(super) const EXAMPLES: &str = "\
Examples:
  Serve on one host at a time, and let the others find it:
    dlock elect --name frontend --value \"$(hostname):8080\" --forever -- ./serve
    dlock leader frontend --follow
  Change the value from inside the command:
    dlock proclaim draining";

#[derive(Args, Debug)]
#[command(mut_arg("shared", |arg| arg.hide(true)), mut_arg("exclusive", |arg| arg.hide(true)))]
#[command(mut_arg("slots", |arg| arg.hide(true)), mut_arg("label", |arg| arg.hide(true)))]
#[command(mut_arg("replace", |arg| arg.hide(true)))]
#[command(mut_arg("name", |arg| arg.help("The election; it is the lock of that name")))]
pub struct ElectArgs {
    /// Publish TEXT as the value of the leader [default: the host's name]
    #[arg(help_heading = "Election", long, value_name = "TEXT", allow_hyphen_values = true, value_parser = values::shown)]
    pub value: Option<String>,
    /// Campaign again after each term, until a signal ends dlock
    #[arg(help_heading = "Election", long)]
    pub forever: bool,
    /// The options of run.
    #[command(flatten)]
    pub run: RunArgs,
}

#[derive(Args, Debug)]
pub struct ProclaimArgs {
    /// The new value of the leader
    #[arg(value_name = "VALUE", allow_hyphen_values = true, value_parser = values::shown)]
    pub value: String,
    /// The options of all subcommands.
    #[command(flatten)]
    pub common: CommonArgs,
}

#[derive(Args, Debug)]
#[command(mut_arg("name", |arg| arg.help("The election")))]
#[command(mut_arg("named", |arg| arg.help("The election, as elect takes it; the same as NAME")))]
pub struct LeaderArgs {
    /// The election.
    #[command(flatten)]
    pub election: NameArgs,
    /// Print a line for each change of the leader or its value, until interrupted
    #[arg(long)]
    pub follow: bool,
    /// Print the leader's whole entry as a JSON object, null if there is no leader
    #[arg(long)]
    pub json: bool,
    /// The options of all subcommands.
    #[command(flatten)]
    pub common: CommonArgs,
}
