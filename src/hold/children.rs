//! What becomes of the command and its tree.

use std::time::Duration;

use super::driver::Driver;
use super::event::Event;
use super::job::Notice;
use crate::lock::Moment;
use crate::supervise::ender::UNKILLABLE;
use crate::supervise::mark::MarkBoard;
use crate::supervise::outcome::Outcome;
use crate::supervise::signals::Signal;
use crate::supervise::wait::{self, ChildChange, Children, next_change};

/// Between two rounds of ending a tree that did not end at once.
const ROUND: Duration = Duration::from_millis(5);
/// Between two rounds when only processes are left that cannot be ended.
const SLOW_ROUND: Duration = Duration::from_secs(1);
/// After so many rounds in a row in which not every process could be seen, the next one will be no better.
const BLIND: u32 = 4;
/// Between two attempts to resume a command that is stopped again and again.
const RESUME_AGAIN: Duration = Duration::from_secs(1);

/// Between two attempts to wait for nested runs, when the system has no thread to spare for it.
const MARKS_RETRY: Duration = Duration::from_secs(1);

impl Driver<'_> {
    /// Waits for the last nested run. The board stays: under one nested run another may still begin.
    pub(super) fn await_marks(&mut self, after: Duration) {
        if let Some(board) = &self.board {
            let (cleared, clock) = (board.cleared(), self.clock);
            let when = clock.now() + after;
            self.clearing = Some(Box::pin(async move {
                clock.sleep_until(when).await;
                cleared.await
            }));
        }
    }

    /// The same, when the system had no thread to spare for it.
    pub(super) fn await_marks_later(&mut self) {
        self.await_marks(MARKS_RETRY);
    }

    /// Takes the changes of all children: the command's, and the ends of orphans.
    pub(super) fn reap(&mut self) {
        if self.command.is_none() || self.machine.tree_is_gone() {
            return;
        }
        if self.adopting.is_some() {
            return self.look_after_adopted();
        }
        // Once it is reaped nobody else could learn how it ended, should this process not live to say it.
        if let (Some(pid), false) = (self.command, self.command_over) {
            self.publish(wait::ended(pid));
        }
        loop {
            match next_change() {
                Children::Quiet => return,
                Children::None => {
                    if self.command_over {
                        self.next_round = Moment::NEVER;
                        self.events.push_back(Event::TreeGone);
                    }
                    return;
                }
                Children::Changed(pid, change) => {
                    if self.command == Some(pid) {
                        self.command_changed(pid, change);
                    }
                }
            }
        }
    }

    /// One that was ended on account of its hold has not done its work, even if this keeper cannot say so any more.
    fn publish(&self, end: Option<ChildChange>) {
        let outcome = match end {
            Some(ChildChange::Exited(status)) => Outcome::Exited(status),
            Some(ChildChange::Killed(signal)) => Outcome::Signaled(signal),
            _ => return,
        };
        if !self.machine.ends_the_command() {
            self.keeper.publish_outcome(outcome);
        }
    }

    fn command_changed(&mut self, pid: i32, change: ChildChange) {
        let outcome = match change {
            ChildChange::Exited(status) => Outcome::Exited(status),
            ChildChange::Killed(signal) => Outcome::Signaled(signal),
            ChildChange::Stopped(signal) => return self.command_stopped(pid, signal),
            ChildChange::Continued => return self.let_front_go_on(),
        };
        if self.command_over {
            return;
        }
        self.command_over = true;
        self.let_front_go_on();
        if self.board.as_ref().is_none_or(MarkBoard::try_clear) {
            self.events.push_back(Event::MarksGone);
        }
        self.events.push_back(Event::CommandEnded(outcome));
    }

    /// A front that was stopped with the command goes on when that does, and when it has ended.
    fn let_front_go_on(&mut self) {
        if std::mem::take(&mut self.front_stopped) {
            self.keeper.resume_front();
        }
    }

    /// Whether the signal is a SIGCONT that came before the command stopped once more; `stops` is how often the front
    /// had been stopped then.
    pub(super) fn is_undone(&mut self, signal: Signal, stops: u8) -> bool {
        if signal != Signal::CONT {
            return false;
        }
        // The stop may not have been taken yet.
        self.reap();
        self.keeper.has_stopped_front_since(stops)
    }

    fn command_stopped(&mut self, pid: i32, signal: Signal) {
        // While the tree is being ended it is this process that stops it.
        if self.killing_since.is_some() {
            return;
        }
        let terminal = self.keeper.start.terminal.as_ref();
        let resumable = terminal.is_none_or(|t| !t.nobody_resumes && !self.shell_gone);
        if !signal.is_terminal_stop() || resumable {
            self.front_stopped = true;
            return self.keeper.stop_front(pid);
        }
        // One that reads a terminal which is not its own would be stopped again at once, and so on.
        let now = self.clock.now();
        if self.resumed_at.is_some_and(|at| now.since(at) < RESUME_AGAIN) {
            self.resume_at = now + RESUME_AGAIN;
        } else {
            self.resume_command();
        }
    }

    /// Undoes a stop that nobody else could undo.
    pub(super) fn resume_command(&mut self) {
        self.resume_at = Moment::NEVER;
        self.resumed_at = Some(self.clock.now());
        self.keeper.ender().signal_group(Signal::CONT);
    }

    pub(super) fn kill_round(&mut self) {
        let reached = self.keeper.ender().kill_round();
        let now = self.clock.now();
        let since = *self.killing_since.get_or_insert(now);
        self.next_round = now + ROUND;
        self.reap();
        // When that has found the last one gone, there is no next round.
        if self.next_round.is_never() {
            return;
        }
        self.blind_rounds = if reached.incomplete { self.blind_rounds + 1 } else { 0 };
        let front_sees = self.keeper.ender().parent_sees();
        if self.blind_rounds >= BLIND && front_sees && self.machine.kill_at() <= now {
            // The lease is about to run out. Whom this process does not see the front may.
            self.keeper.hand_to_front();
        }
        let denied = reached.is_in_vain() && !reached.denied.is_empty();
        if !denied && now.since(since) <= UNKILLABLE {
            return;
        }
        let remains = reached.state();
        self.next_round = now + SLOW_ROUND;
        if self.remains.replace(remains) != Some(remains) {
            self.audience.notice(Notice::CannotEnd(remains));
        }
        self.events.push_back(Event::TreeRemains(remains));
    }
}
