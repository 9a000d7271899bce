//! How a keeper can fail its front.

use super::exit_status::ExitStatus;
use super::signals::Signal;
use super::tree_state::TreeState;

/// The failure of a keeper, and what it left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeeperFailure {
    /// The cause.
    pub why: WhyFailed,
    /// The state of the command at that moment.
    pub command: CommandFate,
    /// The state of its tree now.
    pub tree: TreeState,
    /// The ending signal that had arrived, if the command was not started.
    pub ended_by: Option<Signal>,
}

/// The state of a command whose keeper failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CommandFate {
    /// It was never executed.
    NotStarted,
    /// It was about to be executed; the front killed it if it had been.
    Starting,
    /// It had ended by itself, like this.
    Ended(ExitStatus),
    /// dlock stopped it, or had begun to.
    WasEnded,
}

/// How a keeper failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WhyFailed {
    /// It ended without a last message.
    Died,
    /// It exited with this status, as after a panic.
    Exited(u8),
    /// It was stopped or hung, while it held the lock or waited.
    Stalled,
    /// It had not left the queue in time after a wait in vain.
    Mute,
}

impl WhyFailed {
    /// Returns the failure of a keeper that ended like this without a last message.
    pub(super) fn of(end: ExitStatus) -> Self {
        match end {
            ExitStatus::Exited(0) | ExitStatus::Signaled(_) => Self::Died,
            ExitStatus::Exited(status) => Self::Exited(status),
        }
    }
}
