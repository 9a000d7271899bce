//! How a hold ended.

use std::time::Duration;

use crate::lock::{Entry, Error, Holder, LossReason};
use crate::supervise::exit_status::ExitStatus;
use crate::supervise::signals::Signal;
use crate::supervise::tree_state::TreeState;

/// Why a hold, or an attempt to get one, is over.
#[derive(Debug)]
pub enum Verdict {
    /// The command ran under the lock and ended by itself.
    Ran(ExitStatus),
    /// A signal asked dlock to end; dlock stopped the command, which ended like this.
    Interrupted(ExitStatus),
    /// The lock was not free, and the plan allowed one attempt only.
    Busy(Option<Box<Entry>>),
    /// The wait was over.
    WaitOver(Option<Box<Entry>>),
    /// A newer claim took this waiter's place.
    Superseded(Holder),
    /// This waiter had superseded older ones and lost its own place: for this reason, or because the job was suspended.
    PlaceLost(Option<LossReason>),
    /// The lease was lost; `tree` says whether the command, if it ran, is gone.
    Lost {
        /// The reason.
        reason: LossReason,
        /// The state of the command's tree.
        tree: TreeState,
    },
    /// `dlock break`, or a newer run with `--replace`, broke the claim; dlock stopped the command, if it ran.
    Broken {
        /// The breaker.
        by: Holder,
        /// Whether the command had started.
        ran: bool,
    },
    /// `--max-run` was over.
    MaxRun,
    /// A run that acquired so long ago succeeded: this one was needless.
    Skipped(Duration),
    /// An ending signal arrived before the command started.
    Signalled(Signal),
    /// The wait begins again, since the job or the front was suspended.
    Suspended,
    /// The claim holds, and no process renews it any more.
    LeftAlone,
    /// The front is dead.
    Abandoned,
    /// The command could not be executed.
    NotExecuted(std::io::Error),
    /// The service did not answer in time. With the last error, if there was one.
    NotReached(Option<Error>),
    /// The service, or the system, failed.
    Failed(Error),
}

/// Why a hold that was to last longer than its command ended early.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CutShort {
    /// The lock was lost.
    Lost(LossReason),
    /// The claim was broken, and then released.
    Broken(Holder),
}
