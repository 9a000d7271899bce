//! The front's knowledge of one keeper.

use std::os::fd::OwnedFd;
use std::time::Duration;

use super::channel::ToFront;
use super::exit_status::ExitStatus;
use super::failure::{KeeperFailure, WhyFailed};
use super::signals::Signal;
use crate::lock::Moment;

/// How long a keeper may take to exit after its last message, and to die after SIGKILL.
pub(super) const REAPING: [Duration; 2] = [Duration::from_secs(1), Duration::from_millis(100)];

/// How supervision ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FrontEnd {
    /// As the keeper's last message says.
    Done(ExitStatus),
    /// This signal ended a wait.
    Signaled(Signal),
    /// The front begins again after this pause; see [`super::channel::ToFront::Again`].
    Again(Duration),
    /// The keeper failed; the front has killed the command's tree, or tried.
    KeeperFailed(KeeperFailure),
}

/// The state of one keeper.
#[expect(clippy::struct_excessive_bools, reason = "each is an independent fact")]
pub(super) struct Watch {
    pub(super) keeper: i32,
    pub(super) channel: OwnedFd,
    /// The last ending signal. The keeper may have exited before it could receive it.
    pub(super) told_to_end: Option<Signal>,
    /// When the front acts if the keeper has not.
    pub(super) act_by: Moment,
    /// The keeper's failure in that case.
    pub(super) fault: WhyFailed,
    /// Whether the terminal's signals to the job's group reach the command too.
    pub(super) in_group: bool,
    pub(super) started: bool,
    /// How often this process had followed a stop of the command when it was last resumed.
    pub(super) resumed_after: u8,
    /// Suspended with the job: stop, then begin again.
    pub(super) suspending: bool,
    /// The keeper's last message; the keeper is about to exit.
    pub(super) last_word: Option<ToFront>,
    pub(super) closed: bool,
    pub(super) died: Option<WhyFailed>,
    /// How the command ended, if this process reaped it.
    pub(super) command_ended: Option<ExitStatus>,
}

/// How the watch of one keeper ends.
pub(super) enum Step {
    End(FrontEnd),
    /// Another keeper follows.
    Again,
}

impl Watch {
    /// Starts for a keeper just forked, which must act before `act_by`.
    pub(super) fn new(keeper: i32, channel: OwnedFd, act_by: Moment) -> Self {
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
            last_word: None,
            closed: false,
            died: None,
            command_ended: None,
        }
    }
}
