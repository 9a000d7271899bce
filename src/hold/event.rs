//! The vocabulary of the machine: its events, actions and phases.

use std::time::Duration;

use crate::lease::Window;
use crate::lock::{ClaimState, Error, Holder, LossReason};
use crate::supervise::exit_status::ExitStatus;
use crate::supervise::signals::Signal;
use crate::supervise::tree_state::TreeState;

/// An event.
#[derive(Debug)]
pub enum Event {
    /// The claim is in the queue.
    Entered,
    /// The service refused the claim, or failed: while entering, waiting, or just before the start.
    Refused(Error),
    /// The claim's state changed.
    State(ClaimState),
    /// The service did not answer how the claim stands, or did not confirm a renewal.
    Unseen(Error),
    /// A run that acquired so long ago succeeded.
    Unneeded(Duration),
    /// The keeper has passed the gate: the command may start.
    Go,
    /// A signal arrived.
    Signal {
        /// The signal.
        signal: Signal,
        /// Whether the kernel sent it to the whole foreground group, and so to the command too.
        everybody: bool,
    },
    /// The front is dead.
    FrontGone,
    /// The command could not be executed.
    NotExecuted(std::io::Error),
    /// The command ended.
    CommandEnded(ExitStatus),
    /// No process of the tree is left.
    TreeGone,
    /// Members of the tree are left and cannot be killed, or it is unknown whether any are left.
    TreeRemains(TreeState),
    /// No nested run is left.
    MarksGone,
    /// The owner of the adopted process released the lock.
    Released,
    /// The keeper leaves the claim to its ttl: from here on no process renews it.
    LeftAlone,
    /// The service confirmed a renewal.
    Renewed(Window),
    /// A moment that the machine asked for has come.
    Tick,
    /// The claim has left, or the attempt to leave is over.
    Left,
}

/// An action.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// Enter the queue.
    Enter,
    /// Enter the queue again, with a new claim at its end: the old one was lost for this reason.
    EnterAgain(LossReason),
    /// Ask to pass the gate before the command.
    Ask,
    /// Start the command.
    Spawn,
    /// Send a signal to the command alone.
    Pass(Signal),
    /// Send a signal to the command and its process group.
    PassToGroup(Signal),
    /// Send SIGTERM to the rest of the tree.
    TerminateTree,
    /// Send SIGKILL to the tree until it is gone.
    KillTree,
    /// Leave the queue, and record whether the run succeeded.
    Leave {
        /// Whether the run succeeded.
        succeeded: bool,
    },
}

/// The phase of a hold.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Phase {
    /// The claim is on its way into the queue.
    #[default]
    Entering,
    /// The claim is in the queue.
    Waiting,
    /// The service granted the lock, but too little of the lease is left to start the command: a renewal comes first.
    Confirming,
    /// The lock is held; the keeper has not passed the gate yet.
    Asking,
    /// The command runs.
    Running,
    /// dlock is stopping the tree.
    Stopping(StopReason),
    /// The command has ended; a process, a nested run or `--hold-at-least` may still need the hold.
    Lingering,
    /// The claim is leaving.
    Leaving,
    /// The hold is over.
    Over,
}

/// Why dlock is stopping the tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StopReason {
    /// A signal asked dlock to end.
    Asked,
    /// The command died of a signal that dlock did not send. dlock stops what it left.
    CommandDied,
    /// `--max-run` is over.
    MaxRun,
    /// The claim was broken.
    Broken(Holder),
    /// The lease is running out. It may be renewed after all; dlock still stops the tree, and holds the lock meanwhile.
    RunningOut,
    /// The lock is lost.
    Lost(LossReason),
    /// The front died.
    FrontGone,
}
