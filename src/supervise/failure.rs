//! How a keeper can fail its front.

use super::exit_status::ExitStatus;
use super::signals::Signal;
use super::tree_state::TreeState;
use super::wait::ChildChange;

/// A keeper that did not do its duty.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeeperFailure {
    /// Its pid; it is gone.
    pub pid: i32,
    /// What happened.
    pub why: WhyFailed,
    /// What had become of the command by then.
    pub command: CommandFate,
    /// What is known of its tree now.
    pub tree: TreeState,
    /// The ending signal that came, if the command was not started.
    pub ended_by: Option<Signal>,
}

/// What became of a command whose keeper failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CommandFate {
    /// It was never executed.
    NotStarted,
    /// It was about to be executed, and was ended if it had been.
    Starting,
    /// It had ended by itself, like this.
    Ended(ExitStatus),
    /// It was ended, or was to be.
    WasEnded,
}

/// What a keeper did wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WhyFailed {
    /// It ended without a last word, by this signal if one.
    Died(Option<Signal>),
    /// It ended itself with this status, as after a defect.
    Exited(u8),
    /// It was stopped or hung while it held the lock, or while it waited.
    Stalled,
    /// It had not given up waiting when it should have.
    Mute,
}

impl WhyFailed {
    /// What a keeper that changed so without a last word did wrong.
    pub(super) fn of(change: ChildChange) -> Self {
        match change {
            ChildChange::Exited(0) | ChildChange::Stopped(_) | ChildChange::Continued => Self::Died(None),
            ChildChange::Exited(status) => Self::Exited(status),
            ChildChange::Killed(signal) => Self::Died(Some(signal)),
        }
    }
}
