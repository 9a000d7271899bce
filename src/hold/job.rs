//! The job of a hold, and the reports about it.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use super::environment::HeldRecord;
use super::plan::Plan;
use super::verdict::{CutShort, Verdict};
use crate::backend::{Backend, Risk};
use crate::lock::{ClaimId, Entry, Error, Grant, Holder, LockName, LossReason, Mode, Moment};
use crate::supervise::tree_state::TreeState;

/// A lock to hold, and a command to run meanwhile.
#[derive(Debug)]
pub struct Job {
    /// The service.
    pub backend: Arc<dyn Backend>,
    /// The locks.
    pub names: Vec<LockName>,
    /// The mode.
    pub mode: Mode,
    /// The holder as the queue shows it.
    pub holder: Holder,
    /// Whether to make holders leave that passed `--replace` too.
    pub replace: bool,
    /// Skip the run if a run that acquired within this length succeeded.
    pub once_per: Option<Duration>,
    /// Whether to claim even those locks that an outer run holds.
    pub no_nest: bool,
    /// The times.
    pub plan: Plan,
    /// The command; empty if there is an adoption.
    pub argv: Vec<OsString>,
    /// The adoption, if the hold is not for a command of dlock.
    pub adoption: Option<Adoption>,
}

impl Job {
    /// Returns whether the hold is for no process at all (`--detach`).
    pub fn is_for_nobody(&self) -> bool {
        self.adoption.as_ref().is_some_and(|adoption| adoption.process.is_none())
    }
}

/// A hold for a process that dlock did not start, or for none.
#[derive(Debug)]
pub struct Adoption {
    /// The adopted process, known to the keeper's ender too; `None` for `--detach`.
    pub process: Option<i32>,
    /// The keeper's end of the channel to the caller; see [`crate::supervise::caller`].
    pub caller: OwnedFd,
    /// The holds that the caller runs under.
    pub outer: Vec<HeldRecord>,
    /// Formats the output of the caller from the variables that a command would get.
    pub answer: fn(&[(&'static str, String)]) -> String,
}

impl Adoption {
    /// Copies it with a descriptor of its own, for another keeper.
    pub fn again(&self) -> io::Result<Self> {
        Ok(Self { caller: self.caller.try_clone()?, outer: self.outer.clone(), ..*self })
    }
}

/// Something to report to people while the hold lasts.
#[derive(Debug)]
pub enum Notice<'a> {
    /// The claim waits. Unknown parts are `None`.
    Waiting {
        /// How many entries are ahead.
        ahead: Option<u32>,
        /// The holder.
        holder: Option<&'a Entry>,
    },
    /// The lock is held.
    Held {
        /// From the start until the lock was held.
        waited: Duration,
        /// The grant.
        grant: &'a Grant,
    },
    /// The command has started, with this pid.
    Started(i32),
    /// The service granted a shorter ttl than requested.
    ShorterTtl {
        /// The requested ttl.
        asked: Duration,
        /// The granted ttl.
        granted: Duration,
    },
    /// Outer runs hold the locks. This is the claim of the one that holds the first.
    Nested(ClaimId),
    /// dlock has stopped the tree on a signal; nested runs elsewhere still need the hold.
    KeptByNested,
    /// The entry was lost before the command ran; a new one is at the end of the queue.
    EnteredAgain(&'a LossReason),
    /// The service does not answer. Reported once until it answers again.
    Doubtful {
        /// The last error.
        error: &'a Error,
        /// How much of the lease is left, if the lock is held.
        left: Option<Duration>,
        /// Whether the command has ended. If not, it would have to end with the lease.
        command_ended: bool,
    },
    /// The service has not answered for a while since the start. Reported once, with the last error if there was one.
    NotReached(Option<&'a Error>),
    /// A weakness of this service that its users should know.
    Risk(&'a Risk),
    /// These members of the tree cannot be killed. dlock holds the lock until they are gone.
    CannotEnd(TreeState),
    /// The service did not confirm that the claim left.
    NotLeft {
        /// The error.
        error: &'a Error,
        /// How far the claim had come.
        stage: Stage,
        /// How long the claim lasts at most, with the time that the service may take to notice. `None`: it ends with
        /// its processes.
        ends_within: Option<Duration>,
    },
}

/// How far a claim had come that the service did not confirm to have left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// The request was sent; the service did not answer it.
    Requested,
    /// The claim waited.
    Waiting,
    /// The claim held.
    Held,
}

/// Receives the reports of a hold.
pub trait Progress {
    /// Takes a notice.
    fn notice(&mut self, notice: Notice<'_>);
    /// Returns whether it reports weaknesses of the service. The service is examined only then.
    fn tells_risks(&self) -> bool;
    /// Returns when it wants [`Progress::tick`] to be called.
    fn wake_at(&self) -> Moment;
    /// Refreshes its display.
    fn tick(&mut self);
}

/// The result of a hold.
#[derive(Debug)]
pub struct HoldEnd {
    /// How the hold ended.
    pub verdict: Verdict,
    /// Why the hold ended before its command did, or before `--hold-at-least` was over.
    pub cut_short: Option<CutShort>,
    /// The claim.
    pub claim: ClaimId,
    /// The grant, if the lock was held.
    pub grant: Option<Grant>,
    /// From the start until the lock was held, or until the attempt ended.
    pub waited: Duration,
    /// How long the lock was held.
    pub held: Option<Duration>,
    /// Whether an ending signal arrived, for dlock alone or for the whole job.
    pub told_to_end: bool,
}
