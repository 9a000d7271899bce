//! The options that say which lock is wanted, and how.

#![expect(clippy::doc_markdown, reason = "the comments on options are the text of the help")]

use std::ffi::OsString;

use clap::Args;

/// Which lock, how it is held, and for how long it is waited for.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Lock")]
pub struct LockArgs {
    /// The lock. Several names are acquired together, all or none
    #[arg(long, value_name = "NAME")]
    pub name: Vec<OsString>,
    /// Hold together with other shared holders
    #[arg(short, long)]
    pub shared: bool,
    /// Hold alone, which is the default
    #[arg(short = 'x', long, hide_short_help = true)]
    pub exclusive: bool,
    /// Hold together with up to N-1 others that also ask for N slots
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub slots: Option<OsString>,
    /// Do not wait: give up at once if the lock is not free
    #[arg(short = 'n', long = "try")]
    pub try_once: bool,
    /// Give up after DURATION [default: never; but a service that does not answer ends the wait after 60s]
    #[arg(short, long, value_name = "DURATION", allow_hyphen_values = true)]
    pub wait: Option<OsString>,
    /// The exit status when the lock was not acquired, 0 to 255 [default: 75]
    #[arg(short = 'E', long, value_name = "STATUS", allow_hyphen_values = true)]
    pub busy_exit_code: Option<OsString>,
    /// The length of the lease, at least 1s [default: 30s] [env: DLOCK_TTL]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    pub ttl: Option<OsString>,
    /// The time between SIGTERM and SIGKILL when the command is ended; at most a sixth of the ttl if the lease runs out
    /// [default: 5s] [env: DLOCK_GRACE]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    pub grace: Option<OsString>,
}

/// The lock of a subcommand that looks at one or breaks claims on it.
#[derive(Args, Debug)]
pub struct NameArgs {
    /// The lock
    #[arg(value_name = "NAME")]
    pub name: Option<OsString>,
    /// The lock, as run takes it; the same as NAME
    #[arg(long = "name", value_name = "NAME")]
    pub named: Option<OsString>,
}
