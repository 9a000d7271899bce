//! How a keeper can fail its front.

use super::outcome::Outcome;
use super::signals::Signal;
use super::wait::ChildChange;

/// A keeper that did not do its duty.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeeperFailure {
    /// What happened.
    pub why: WhyFailed,
    /// Whether the command had been allowed to start.
    pub running: bool,
    /// How the command had ended before.
    pub ended: Option<Outcome>,
    /// Processes that could not be ended.
    pub left: Vec<i32>,
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
