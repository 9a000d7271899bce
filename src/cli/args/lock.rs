//! The options of the lock.

#![expect(clippy::doc_markdown, reason = "the comments on options are the text of the help")]

use std::ffi::OsString;

use clap::Args;

// The lock, its mode, and the wait.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Lock")]
pub struct LockArgs {
    /// Acquire the lock NAME; several names are acquired together, all or none
    #[arg(long, value_name = "NAME")]
    pub name: Vec<OsString>,
    /// Take a shared lock
    #[arg(short, long)]
    pub shared: bool,
    /// Take an exclusive lock, the default
    #[arg(short = 'x', long, hide_short_help = true)]
    pub exclusive: bool,
    /// Allow N holders at once; all users of the lock must pass the same N
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub slots: Option<OsString>,
    /// Do not wait; exit if the lock is busy
    #[arg(short = 'n', long = "try")]
    pub try_once: bool,
    /// Give up after DURATION [default: wait indefinitely; 60s if the service never answers]
    #[arg(short, long, value_name = "DURATION", allow_hyphen_values = true)]
    pub wait: Option<OsString>,
    /// Exit with STATUS (0 to 255) if the lock was not acquired [default: 75]
    #[arg(short = 'E', long, value_name = "STATUS", allow_hyphen_values = true)]
    pub busy_exit_code: Option<OsString>,
    /// Set the length of the lease, at least 1s [default: 30s] [env: DLOCK_TTL]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    pub ttl: Option<OsString>,
    /// Wait DURATION between SIGTERM and SIGKILL when stopping the command; at most TTL/6 if the lease is expiring
    /// [default: 5s] [env: DLOCK_GRACE]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    pub grace: Option<OsString>,
}

// The lock of a subcommand that shows one or breaks its claims.
#[derive(Args, Debug)]
pub struct NameArgs {
    /// The lock
    #[arg(value_name = "NAME")]
    pub name: Option<OsString>,
    /// The lock, as run takes it; the same as NAME
    #[arg(long = "name", value_name = "NAME")]
    pub named: Option<OsString>,
}
