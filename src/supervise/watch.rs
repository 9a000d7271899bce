//! What the front knows of one keeper's life.

use std::os::fd::OwnedFd;
use std::time::Duration;

use super::channel::Channel;
use super::exit_status::ExitStatus;
use super::failure::{KeeperFailure, WhyFailed};
use super::signals::Signal;
use super::wait::ChildChange;
use crate::lock::Moment;

/// How long a keeper that has said its last word may take to end, and one that was killed to die.
pub(super) const REAPING: [Duration; 2] = [Duration::from_secs(1), Duration::from_millis(100)];

/// How supervision ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FrontEnd {
    /// As the keeper said.
    Done(ExitStatus),
    /// As [`super::channel::ToFront::Again`] says: after so long.
    Again(Duration),
    /// The keeper failed; the command's tree is ended.
    KeeperFailed(KeeperFailure),
}

/// The state of one keeper's life.
#[expect(clippy::struct_excessive_bools, reason = "each is an independent fact")]
pub(super) struct Watch {
    pub(super) keeper: i32,
    pub(super) channel: Channel,
    /// The last ending signal: the keeper may have been past hearing of it.
    pub(super) told_to_end: Option<Signal>,
    /// The keeper must have acted by then.
    pub(super) act_by: Moment,
    /// Why it would be at fault if not.
    pub(super) fault: WhyFailed,
    /// What the terminal sends to the job's group reaches the command too.
    pub(super) in_group: bool,
    /// The command has started.
    pub(super) started: bool,
    /// How often this process had followed a stop of the command when it was resumed last.
    pub(super) resumed_after: u8,
    /// Suspended with the job: stop, then begin again.
    pub(super) suspending: bool,
    /// Descriptors that carry the hold until the tree is gone.
    pub(super) anchors: Vec<OwnedFd>,
    /// The keeper's last word; it is about to end.
    pub(super) last_word: Option<LastWord>,
    /// The channel's other end is closed.
    pub(super) closed: bool,
    pub(super) died: Option<WhyFailed>,
    /// How the command ended, if it was left to this process to learn that.
    pub(super) command_ended: Option<ChildChange>,
}

#[derive(Clone, Copy)]
pub(super) enum LastWord {
    Done(ExitStatus),
    Again(Duration),
    Suspended,
}

pub(super) enum Step {
    Continue,
    End(FrontEnd),
    Again,
}

impl Step {
    pub(super) fn or_else(self, next: impl FnOnce() -> Self) -> Self {
        if let Self::Continue = self { next() } else { self }
    }
}

impl Watch {
    /// That of a keeper just forked, which must have acted by `act_by`.
    pub(super) fn new(keeper: i32, channel: Channel, act_by: Moment) -> Self {
        Self {
            keeper,
            channel,
            told_to_end: None,
            act_by,
            fault: WhyFailed::Mute,
            in_group: false,
            started: false,
            resumed_after: 0,
            suspending: false,
            anchors: Vec::new(),
            last_word: None,
            closed: false,
            died: None,
            command_ended: None,
        }
    }
}
