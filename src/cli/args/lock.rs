//! The options of the lock.

#![expect(clippy::doc_markdown, reason = "the comments on options are the text of the help")]

use std::ffi::OsString;
use std::num::NonZeroU32;

use clap::Args;

use crate::cli::values;
use crate::lock::LockName;

// The lock, its mode, and the wait.
#[derive(Args, Clone, PartialEq, Eq, Debug, Default)]
#[command(next_help_heading = "Lock")]
pub struct LockArgs {
    /// Acquire the lock NAME; several names are acquired together, all or none
    #[arg(long, value_name = "NAME", required = true)]
    pub name: Vec<LockName>,
    /// Take a shared lock
    #[arg(short, long, conflicts_with_all = ["exclusive", "slots"])]
    pub shared: bool,
    /// Take an exclusive lock, the default
    #[arg(short = 'x', long, hide_short_help = true)]
    pub exclusive: bool,
    /// Allow N holders at once; all users of the lock must pass the same N
    #[arg(long, value_name = "N", allow_hyphen_values = true, conflicts_with = "exclusive", value_parser = values::slots)]
    pub slots: Option<NonZeroU32>,
    /// Do not wait; exit if the lock is busy
    #[arg(short = 'n', long = "try")]
    pub try_once: bool,
    /// Give up after DURATION [default: wait indefinitely; 60s if the service never answers]
    #[arg(short, long, value_name = "DURATION", allow_hyphen_values = true)]
    pub wait: Option<OsString>,
    /// Exit with STATUS (0 to 255) if the lock was not acquired [default: 75]
    #[arg(
        short = 'E',
        long,
        value_name = "STATUS",
        allow_hyphen_values = true,
        default_value_t = 75,
        hide_default_value = true
    )]
    pub busy_exit_code: u8,
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
    #[arg(value_name = "NAME", required_unless_present = "named", conflicts_with = "named")]
    name: Option<LockName>,
    /// The lock, as run takes it; the same as NAME
    #[arg(long = "name", value_name = "NAME")]
    named: Option<LockName>,
}

impl NameArgs {
    /// Returns the lock.
    ///
    /// # Panics
    /// If it was not parsed by clap.
    pub fn lock(&self) -> &LockName {
        self.name.as_ref().or(self.named.as_ref()).expect("clap requires one of them")
    }
}
