//! What is asked of a hold, and how it is told.

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

/// What to hold, and what to run meanwhile.
#[derive(Debug)]
pub struct Job {
    /// The service.
    pub backend: Arc<dyn Backend>,
    /// The locks.
    pub names: Vec<LockName>,
    /// The mode.
    pub mode: Mode,
    /// Who holds.
    pub holder: Holder,
    /// Whether to have a holder make way that also said so.
    pub replace: bool,
    /// Do not run if a run that acquired within so long succeeded.
    pub once_per: Option<Duration>,
    /// Whether to claim anew even what an outer run holds.
    pub no_nest: bool,
    /// Times.
    pub plan: Plan,
    /// The command; nothing where there is an adoption.
    pub argv: Vec<OsString>,
    /// What stands in the place of a command, if something does.
    pub adoption: Option<Adoption>,
}

impl Job {
    /// Whether the hold is for no process at all.
    pub fn is_for_nobody(&self) -> bool {
        self.adoption.as_ref().is_some_and(|adoption| adoption.process.is_none())
    }
}

/// A hold that is not for a command of dlock's own.
#[derive(Debug)]
pub struct Adoption {
    /// The process that it is for, which the keeper's ender has adopted; `None` if it is for nobody's.
    pub process: Option<i32>,
    /// The keeper's end of the channel to the caller; see [`crate::supervise::caller`].
    pub caller: OwnedFd,
    /// What the caller runs under.
    pub outer: Vec<HeldRecord>,
    /// What the caller is to say of the hold, made of the variables that a command would see.
    pub answer: fn(&[(&'static str, String)]) -> String,
}

impl Adoption {
    /// The same with a descriptor of its own, for another keeper.
    pub fn again(&self) -> io::Result<Self> {
        let Self { process, answer, .. } = *self;
        Ok(Self { process, caller: self.caller.try_clone()?, outer: self.outer.clone(), answer })
    }
}

/// Something worth telling people while it happens.
#[derive(Debug)]
pub enum Notice<'a> {
    /// In the queue: how many are ahead and who holds, as far as known.
    Waiting {
        /// Entries ahead.
        ahead: Option<u32>,
        /// The holder.
        holder: Option<&'a Entry>,
    },
    /// The lock is held.
    Held {
        /// How long it took since the start.
        waited: Duration,
        /// What was granted.
        grant: &'a Grant,
    },
    /// The command has started.
    Started(i32),
    /// The service granted a shorter ttl than was asked for.
    ShorterTtl {
        /// What was asked for.
        asked: Duration,
        /// What counts.
        granted: Duration,
    },
    /// The first name is held by this claim of an outer run.
    Nested(ClaimId),
    /// dlock was told to end, and has ended what it could; nested runs elsewhere still need the hold.
    KeptByNested,
    /// The entry was lost before the command ran, and a new one stands at the end of the queue.
    EnteredAgain(&'a LossReason),
    /// The service does not answer; said once until it answers again.
    Doubtful {
        /// Why.
        error: &'a Error,
        /// What the lease still has to go, if the lock is held.
        left: Option<Duration>,
        /// Whether the command has ended, which would have to end with the lease.
        command_ended: bool,
    },
    /// The service has not answered for a while since the start; said once, with the last failure if there was
    /// one.
    NotReached(Option<&'a Error>),
    /// Something that whoever relies on this service should know.
    Risk(&'a Risk),
    /// This is left of the tree and cannot be ended; dlock holds the lock until it is gone.
    CannotEnd(TreeState),
    /// That the claim left was not confirmed.
    NotLeft {
        /// Why.
        error: &'a Error,
        /// How far it had come.
        stage: Stage,
        /// How long it lasts at most, with the time that the service may take to notice; without, it ends with its processes.
        ends_within: Option<Duration>,
    },
}

/// How far a claim had come of which nobody confirmed that it left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// It was asked for; nobody answered what came of it.
    Requested,
    /// It waited.
    Waiting,
    /// It held.
    Held,
}

/// Is told how the hold goes on.
pub trait Progress {
    /// Takes a notice.
    fn notice(&mut self, notice: Notice<'_>);
    /// Whether it tells of what can cost a lock at the service: only then is that asked for.
    fn tells_risks(&self) -> bool;
    /// When it wants [`Progress::tick`] to be called.
    fn wake_at(&self) -> Moment;
    /// Refreshes what it shows.
    fn tick(&mut self);
}

/// How a hold went.
#[derive(Debug)]
pub struct HoldEnd {
    /// How it ended.
    pub verdict: Verdict,
    /// Why the hold did not outlast the command for as long as it was to, if it did not.
    pub cut_short: Option<CutShort>,
    /// The claim it was.
    pub claim: ClaimId,
    /// What was granted, if the lock was held.
    pub grant: Option<Grant>,
    /// From the start until the lock was held, or the attempt ended.
    pub waited: Duration,
    /// How long it was held.
    pub held: Option<Duration>,
    /// Whether dlock was told to end, by a signal to itself or to the whole job.
    pub told_to_end: bool,
}
