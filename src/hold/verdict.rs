//! How a hold ended.

use std::time::Duration;

use crate::lock::{Entry, Error, Holder, LossReason};
use crate::supervise::exit_status::ExitStatus;
use crate::supervise::signals::Signal;
use crate::supervise::tree_state::TreeState;

/// Why a hold, or the attempt at one, is over.
#[derive(Debug)]
pub enum Verdict {
    /// The command ran under the lock and ended by itself.
    Ran(ExitStatus),
    /// dlock was told to end, and ended the command; it ended like this.
    Interrupted(ExitStatus),
    /// The lock was not free, and only one attempt was wanted.
    Busy(Option<Box<Entry>>),
    /// The wait ran out.
    WaitOver(Option<Box<Entry>>),
    /// A newer claim took this waiter's place.
    Superseded(Holder),
    /// This waiter superseded older ones and has lost its own place, for this reason or by being suspended.
    PlaceLost(Option<LossReason>),
    /// The lease was lost; the command, if it ran, was ended, as far as `tree` says.
    Lost {
        /// Why.
        reason: LossReason,
        /// What is known of its tree.
        tree: TreeState,
    },
    /// Somebody broke the claim; the command, if it ran, was ended.
    Broken {
        /// Who.
        by: Holder,
        /// Whether the command had started.
        ran: bool,
    },
    /// The command had held the lock for as long as it may.
    MaxRun,
    /// A run that acquired so long ago was successful, so this one was not needed.
    Skipped(Duration),
    /// An ending signal came before the command was started.
    Signalled(Signal),
    /// The wait is to begin again: the job was suspended, or the front was.
    Suspended,
    /// The claim holds, and nobody looks after it any more.
    LeftAlone,
    /// The front is gone; nobody is left to tell.
    Abandoned,
    /// The command could not be executed.
    NotExecuted(std::io::Error),
    /// The service never answered while there was time; the last error, if it gave one.
    NotReached(Option<Error>),
    /// The service, or the system, failed.
    Failed(Error),
}

/// Why a hold that was to outlast its command ended before its time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CutShort {
    /// It was lost.
    Lost(LossReason),
    /// Somebody broke the claim, which was then released.
    Broken(Holder),
}
