//! The front's guard: its acts after the keeper's last message, and when the keeper hangs or dies.

use std::time::Duration;

use super::channel::ToFront;
use super::exit_status::ExitStatus;
use super::failure::{CommandFate, KeeperFailure, WhyFailed};
use super::front::Front;
use super::mark::MarkBoard;
use super::signals::Signal;
use super::sys;
use super::tree_state::TreeState;
use super::wait;
use super::watch::{FrontEnd, REAPING, Step, Watch};
use crate::clock::now;

/// How long a keeper that has closed its channel may take to exit and leave a status.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// How long a keeper may take to leave the queue after an ending signal: the time for a release, and a second.
const LEAVING: Duration = Duration::from_secs(6);
/// How long a late keeper may take to end if the lock is not held: the whole host may have stood still.
const LATE: Duration = Duration::from_millis(800);
/// The pauses in a wait for nested runs, and how many.
const MOMENT: Duration = Duration::from_millis(5);
const MOMENTS: u32 = 100;
/// The time between two attempts to kill what is left.
const AGAIN: Duration = Duration::from_secs(1);

impl Front {
    /// Gives the keeper a limited time from now to leave the queue.
    pub(super) fn leave_by(watch: &mut Watch) {
        watch.act_by = watch.act_by.min(now() + LEAVING);
        watch.fault = WhyFailed::Stalled;
    }

    /// Notes the keeper's last message. The keeper has nothing left to do but to exit.
    pub(super) fn last_word(watch: &mut Watch, word: ToFront) {
        watch.last_word = Some(word);
        watch.act_by = now() + REAPING[0];
    }

    /// Handles the end of a keeper that has sent its last message. Kills it if it is late. It is gone on return, unless
    /// the kernel keeps it. Returns `None` without a last message.
    pub(super) fn keeper_ended(&mut self, watch: &mut Watch) -> Option<Step> {
        let word = watch.last_word?;
        if watch.died.is_none() && wait::end_within(watch.keeper, REAPING[1]).is_none() {
            drop(sys::kill(watch.keeper, Signal::KILL));
            wait::end_within(watch.keeper, REAPING[1]);
        }
        if self.stays_behind && self.shared.gate.command().is_some() {
            // The keeper left without knowing that the tree of the adopted process is gone. This process may see it.
            self.ender.end(|_, _| {});
        }
        Some(match (word, watch.told_to_end) {
            (ToFront::Done(outcome), _) => Step::End(FrontEnd::Done(outcome)),
            // The keeper may have exited before it could receive the signal. It never started the command.
            (ToFront::Suspended, Some(signal)) => Step::End(FrontEnd::Signaled(signal)),
            (_, Some(signal)) => Step::End(FrontEnd::Done(ExitStatus::Signaled(signal))),
            (ToFront::Again(pause), None) => Step::End(FrontEnd::Again(pause)),
            // The keeper has left the queue.
            (_, None) => {
                match (watch.suspending, self.stays_behind, self.start.parent) {
                    (false, ..) => {}
                    (true, true, Some(caller)) => {
                        if !sys::stop_self_under(caller) {
                            // The caller is gone, so no process waits for the lock.
                            return Some(Step::End(FrontEnd::Done(ExitStatus::Signaled(Signal::HUP))));
                        }
                    }
                    (true, ..) => sys::stop_self(),
                }
                Step::Again
            }
        })
    }

    /// Handles a keeper that is late.
    pub(super) fn act(&mut self, watch: &mut Watch) -> Option<Step> {
        if watch.last_word.is_some() {
            self.keeper_ended(watch)
        } else if self.shared.gate.has_passed() {
            Some(self.keeper_failed(watch, Some(WhyFailed::Stalled)))
        } else if self.shared.gate.shut() {
            watch.died = wait::end_within(watch.keeper, LATE).map(WhyFailed::of);
            let fault = Some(watch.fault);
            self.hear_last(watch).or_else(|| Some(self.keeper_failed(watch, fault)))
        } else {
            // The keeper has just passed the gate.
            None
        }
    }

    /// Takes what a keeper may have sent before it died.
    pub(super) fn hear_last(&mut self, watch: &mut Watch) -> Option<Step> {
        self.hear(watch).or_else(|| self.keeper_ended(watch))
    }

    /// Kills what a failed keeper left. Kills the keeper first: its children then become children of this process, and
    /// a keeper that is resumed later cannot act on an old state.
    pub(super) fn keeper_failed(&mut self, watch: &mut Watch, why: Option<WhyFailed>) -> Step {
        if why.is_none() && watch.died.is_none() && !self.shared.gate.has_passed() {
            // No command runs. A keeper that gives up may still leave a status.
            watch.died = wait::end_within(watch.keeper, LAST_WORDS).map(WhyFailed::of);
        }
        // Once the keeper is reaped, its pid may belong to another process.
        if watch.died.is_none() {
            drop(sys::kill(watch.keeper, Signal::KILL));
        }
        let (keeper, command) = (watch.keeper, self.shared.gate.command());
        let Watch { died, command_ended, .. } = watch;
        let tree = self.ender.end(|pid, end| {
            if pid == keeper {
                died.get_or_insert(WhyFailed::of(end));
            } else if Some(pid) == command {
                command_ended.get_or_insert(end);
            }
        });
        let command = self.fate(watch);
        let why = why.or(watch.died).unwrap_or(WhyFailed::Died);
        let ended_by = watch.told_to_end.filter(|_| command == CommandFate::NotStarted);
        Step::End(FrontEnd::KeeperFailed(KeeperFailure { why, command, tree, ended_by }))
    }

    /// Returns whether nothing runs under the hold of the last keeper, which is gone: neither a process of its tree, by
    /// `tree`, nor a nested run. If so, gives up the anchors. Waits half a second at most for nested runs outside of the
    /// tree, which kill their own trees when that keeper ends ([`super::mark::Mark::is_in_vain`]).
    pub fn is_over(&mut self, tree: TreeState) -> bool {
        let is_clear = || self.board.as_ref().is_none_or(MarkBoard::try_clear);
        let mut moments = (0..MOMENTS).inspect(|_| wait::pause(MOMENT));
        let is_over = tree.is_gone() && (is_clear() || moments.any(|_| is_clear()));
        if is_over {
            self.anchors.clear();
        }
        is_over
    }

    /// Kills what a failed keeper left, again and again, until nothing is left. Meanwhile this process keeps the lock.
    pub fn end_the_rest(&mut self) {
        let mut tree = TreeState::Unknown;
        while !self.is_over(tree) {
            wait::pause(AGAIN);
            tree = self.ender.end(|_, _| {});
        }
    }

    /// Returns whether this process keeps the lock without a keeper: by anchors.
    pub fn keeps_the_lock(&self) -> bool {
        !self.anchors.is_empty()
    }

    /// Returns the state of the command when its keeper failed.
    fn fate(&self, watch: &Watch) -> CommandFate {
        if self.shared.gate.command().is_none() {
            // The keeper clears an adopted process on release, and a detached lease never has one. If the gate was
            // passed, the hold had begun.
            let let_go = self.stays_behind && self.shared.gate.has_passed();
            return if let_go { CommandFate::WasEnded } else { CommandFate::NotStarted };
        }
        // The kernel kills the command of a keeper that dies, and so does the front.
        let is_own = |end: &ExitStatus| *end != ExitStatus::Signaled(Signal::KILL);
        let by_itself = watch.command_ended.filter(|end| is_own(end) && !self.shared.is_stopping());
        let was_ended = if watch.started { CommandFate::WasEnded } else { CommandFate::Starting };
        self.shared.outcome().or(by_itself).map_or(was_ended, CommandFate::Ended)
    }
}
