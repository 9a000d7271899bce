//! The vocabulary of the machine: what can happen, what can be done, and where a hold can stand.

use std::time::Duration;

use crate::lease::Window;
use crate::lock::{ClaimState, Error, Holder, LossReason};
use crate::supervise::exit_status::ExitStatus;
use crate::supervise::signals::Signal;
use crate::supervise::tree_state::TreeState;

/// What happened.
#[derive(Debug)]
pub enum Event {
    /// The claim is in the queue.
    Entered,
    /// It could not be brought into the queue.
    Refused(Error),
    /// The claim stands like this now.
    State(ClaimState),
    /// How it stands, or whether it lives, could not be found out.
    Unseen(Error),
    /// A run that acquired so long ago was successful, asked under the lock.
    Unneeded(Duration),
    /// The gate is passed: the command may start.
    Go,
    /// A signal came.
    Signal {
        /// Which.
        signal: Signal,
        /// Whether the whole foreground group has it already.
        everybody: bool,
    },
    /// The front is gone.
    FrontGone,
    /// The command could not be executed.
    NotExecuted(std::io::Error),
    /// The command ended.
    CommandEnded(ExitStatus),
    /// No process of the tree is left.
    TreeGone,
    /// Something of the tree is left that cannot be ended, or it cannot be told whether anything is.
    TreeRemains(TreeState),
    /// No nested run is left.
    MarksGone,
    /// The owner of a process that was there before has released what is held for it.
    Released,
    /// Nobody looks after the claim any more: it ends with its ttl.
    LeftAlone,
    /// A renewal was confirmed.
    Renewed(Window),
    /// A time has come.
    Tick,
    /// The claim has left, or the attempt is over.
    Left,
}

/// What to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// Enter the queue.
    Enter,
    /// Enter the queue again, with a new claim, at its end: the old one was lost for this reason.
    EnterAgain(LossReason),
    /// Pass the gate before the command.
    Ask,
    /// Start the command.
    Spawn,
    /// Send a signal to the command alone.
    Pass(Signal),
    /// Send a signal to the command and its process group.
    PassToGroup(Signal),
    /// Send SIGTERM to what is left of the tree.
    TerminateTree,
    /// Send SIGKILL to the tree until it is gone.
    KillTree,
    /// Leave the queue, and record a success or not.
    Leave {
        /// Whether the run was a success.
        succeeded: bool,
    },
}

/// Where a hold stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Phase {
    /// On the way into the queue.
    Entering,
    /// In the queue.
    Waiting,
    /// The service gave the lock, and too little is left of the lease to begin with: renewed first.
    Confirming,
    /// Held; the gate before the command is not passed yet.
    Asking,
    /// The command runs.
    Running,
    /// The tree is being ended.
    Stopping(StopReason),
    /// The command has ended; something else still needs the hold.
    Lingering,
    /// On the way out.
    Leaving,
    /// Out.
    Over,
}

/// Why the tree is being ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StopReason {
    /// dlock was told to end.
    Asked,
    /// The command died of a signal from elsewhere; what it left is ended.
    CommandDied,
    /// The command had its time.
    MaxRun,
    /// The claim was broken.
    Broken(Holder),
    /// The lease runs out. It may be renewed after all; what was begun is carried out, under the lock.
    RunningOut,
    /// The lock is lost.
    Lost(LossReason),
    /// The front died.
    FrontGone,
}
