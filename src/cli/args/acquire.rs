//! The options of `acquire`, `release` and `renew`.

#![expect(clippy::doc_markdown, reason = "the comments on options are the text of the help")]

use std::ffi::OsString;

use clap::Args;

use super::{ConnectionArgs, MessageArgs};

/// What stands below the help of `acquire`.
pub(super) const EXAMPLES: &str = "\
Examples:
  The rest of a shell script under the lock, until the script ends:
    claim=$(dlock acquire --name deploy --for-pid $$) || exit; eval \"$claim\"
  Give it back earlier:
    dlock release
  A lease for several steps of a CI job, on whichever hosts they run:
    dlock acquire --name deploy --detach --ttl 10m --format env >> \"$GITHUB_ENV\"";

/// `dlock acquire`.
#[derive(Args, Debug)]
#[command(next_help_heading = "Lock")]
#[expect(clippy::struct_excessive_bools, reason = "one for each switch")]
pub struct AcquireArgs {
    /// The process that the lock is held for: released when it ends, and it is ended if the lock is lost. In a script: $$
    #[arg(help_heading = "Claim", long, value_name = "PID", allow_hyphen_values = true)]
    pub for_pid: Option<OsString>,
    /// Hold for one ttl without any process; dlock renew gives it another, dlock release ends it
    #[arg(help_heading = "Claim", long)]
    pub detach: bool,
    /// How the claim is printed: sh (export lines for eval), env (KEY=VALUE lines) or json [default: sh]
    #[arg(help_heading = "Claim", long, value_name = "FORMAT", value_parser = ["sh", "env", "json"], hide_possible_values = true)]
    pub format: Option<String>,
    /// The lock. Several names are acquired together, all or none
    #[arg(long, value_name = "NAME")]
    pub name: Vec<OsString>,
    /// Hold together with other shared holders
    #[arg(short, long)]
    pub shared: bool,
    /// Hold alone, which is the default
    #[arg(short = 'x', long)]
    pub exclusive: bool,
    /// Hold together with up to N-1 others that also ask for N slots
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub slots: Option<OsString>,
    /// Do not wait: give up at once if the lock is not free
    #[arg(short = 'n', long = "try")]
    pub try_once: bool,
    /// Give up after DURATION [default: wait indefinitely]
    #[arg(short, long, value_name = "DURATION", allow_hyphen_values = true)]
    pub wait: Option<OsString>,
    /// The exit status when the lock was not acquired, 1 to 255 [default: 75]
    #[arg(short = 'E', long, value_name = "STATUS", allow_hyphen_values = true)]
    pub busy_exit_code: Option<OsString>,
    /// The length of the lease, at least 1s [default: 30s] [env: DLOCK_TTL]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    pub ttl: Option<OsString>,
    /// The time between SIGTERM and SIGKILL when the process is ended [default: 5s] [env: DLOCK_GRACE]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    pub grace: Option<OsString>,
    /// Take the place of older waiters that also said so; they exit as busy
    #[arg(long)]
    pub supersede: bool,
    /// Make a second claim even inside a hold of this lock, as acquire always does
    #[arg(long)]
    pub no_nest: bool,
    /// A text that others see in status
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub label: Option<OsString>,
    /// Where the lock service is.
    #[command(flatten)]
    pub connection: ConnectionArgs,
    /// How much is said.
    #[command(flatten)]
    pub messages: MessageArgs,
}

/// `dlock release` and `dlock renew`.
#[derive(Args, Debug)]
pub struct ClaimArgs {
    /// The claim, as acquire printed it; its first digits are enough, at least eight [default: DLOCK_CLAIM]
    #[arg(value_name = "CLAIM")]
    pub claim: Option<OsString>,
    /// A lock of the claim, or several of them [default: DLOCK_NAMES]
    #[arg(long, value_name = "NAME")]
    pub name: Vec<OsString>,
    /// Where the lock service is.
    #[command(flatten)]
    pub connection: ConnectionArgs,
    /// How much is said.
    #[command(flatten)]
    pub messages: MessageArgs,
}
