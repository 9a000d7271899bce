//! The options of `acquire`, `release` and `renew`.

#![expect(clippy::doc_markdown, reason = "the comments on options are the text of the help")]

use std::ffi::OsString;

use clap::{ArgGroup, Args, value_parser};

use super::{CommonArgs, LockArgs};
use crate::cli::values;
use crate::lock::LockName;

/// The text below the help of `acquire`.
pub(super) const EXAMPLES: &str = "\
Examples:
  Hold the lock for the rest of a shell script:
    claim=$(dlock acquire --name deploy --for-pid $$) || exit; eval \"$claim\"
  Release it earlier:
    dlock release
  Hold a lease over several steps of a CI job:
    dlock acquire --name deploy --detach --ttl 10m --format env >> \"$GITHUB_ENV\"";

#[derive(Args, Debug)]
#[command(next_help_heading = "Lock")]
#[command(group(ArgGroup::new("for_whom").args(["for_pid", "detach"]).required(true)))]
#[command(mut_arg("busy_exit_code", |arg| {
    let help = "Exit with STATUS (1 to 255) if the lock was not acquired [default: 75]";
    arg.help(help).value_parser(value_parser!(u8).range(1..))
}))]
#[command(mut_arg("grace", |arg| arg.help("Wait DURATION between SIGTERM and SIGKILL when stopping the process [default: 5s] [env: DLOCK_GRACE]")))]
pub struct AcquireArgs {
    /// Hold the lock for process PID: release it when PID exits, kill PID if the lock is lost. In a script: $$
    #[arg(help_heading = "Claim", long, value_name = "PID", allow_hyphen_values = true, value_parser = value_parser!(i32).range(1..))]
    pub for_pid: Option<i32>,
    /// Hold a lease of one TTL without a process; see dlock renew and dlock release
    #[arg(help_heading = "Claim", long)]
    pub detach: bool,
    /// Print the claim as sh (export lines for eval), env (KEY=VALUE lines) or json [default: sh]
    #[arg(help_heading = "Claim", long, value_name = "FORMAT", value_parser = ["sh", "env", "json"], hide_possible_values = true)]
    pub format: Option<String>,
    /// The lock.
    #[command(flatten)]
    pub lock: LockArgs,
    /// Replace older waiters that also passed --supersede; they exit as busy
    #[arg(long, hide_short_help = true)]
    pub supersede: bool,
    /// Queue separately, even inside a run that already holds the lock, as acquire always does
    #[arg(long, hide_short_help = true)]
    pub no_nest: bool,
    /// Show TEXT to others in status and messages
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true, hide_short_help = true)]
    pub label: Option<OsString>,
    /// The options of all subcommands.
    #[command(flatten)]
    pub common: CommonArgs,
}

/// Returns the variable with the names of a claim. `acquire --format env` prints no text of several lines, so that of an earlier
/// claim may be left.
fn variable_of_names() -> &'static str {
    let (names, name) = (std::env::var("DLOCK_NAMES"), std::env::var("DLOCK_NAME"));
    let is_of_claim = |names: String| name.is_err() || names.lines().next() == name.as_deref().ok();
    if names.is_ok_and(is_of_claim) { "DLOCK_NAMES" } else { "DLOCK_NAME" }
}

#[derive(Args, Debug)]
pub struct ClaimArgs {
    /// The claim that acquire printed; the first digits are enough, at least eight [default: DLOCK_CLAIM]
    #[arg(value_name = "CLAIM", required = true, env = "DLOCK_CLAIM", hide_env = true, value_parser = values::claim_digits)]
    pub claim: String,
    /// A lock of the claim, or several of them [default: DLOCK_NAMES]
    #[arg(
        long,
        value_name = "NAME",
        required = true,
        env = variable_of_names(),
        hide_env = true,
        value_delimiter = '\n'
    )]
    pub name: Vec<LockName>,
    /// The options of all subcommands.
    #[command(flatten)]
    pub common: CommonArgs,
}
