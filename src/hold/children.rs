//! What becomes of the command and its tree.

use std::time::Duration;

use super::driver::Driver;
use super::event::{Event, Phase, Reason};
use super::job::Notice;
use crate::lock::Moment;
use crate::supervise::channel::ToFront;
use crate::supervise::mark::MarkBoard;
use crate::supervise::outcome::Outcome;
use crate::supervise::signals::Signal;
use crate::supervise::tree;
use crate::supervise::wait::{ChildChange, Children, next_change};

/// Between two rounds of ending a tree that did not end at once.
const ROUND: Duration = Duration::from_millis(5);
/// Between two rounds when only processes are left that cannot be ended.
const SLOW_ROUND: Duration = Duration::from_secs(1);
/// Between two attempts to resume a command that is stopped again and again.
const RESUME_AGAIN: Duration = Duration::from_secs(1);

impl Driver<'_> {
    /// Takes the changes of all children: the command's, and the ends of orphans.
    pub(super) fn reap(&mut self) {
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
                    if self.child.as_ref().is_some_and(|child| child.pid() == pid) {
                        self.command_changed(pid, change);
                    }
                }
            }
        }
    }

    fn command_changed(&mut self, pid: i32, change: ChildChange) {
        let outcome = match change {
            ChildChange::Exited(status) => Outcome::Exited(status),
            ChildChange::Killed(signal) => Outcome::Signaled(signal),
            ChildChange::Stopped(signal) => return self.command_stopped(pid, signal),
            ChildChange::Continued => return self.keeper.resume_front(),
        };
        if self.command_over {
            return;
        }
        self.command_over = true;
        // One that was ended on account of its hold has not done its work, even if this keeper cannot say so any more.
        if matches!(self.machine.phase(), Phase::Running | Phase::Stopping(Reason::Asked)) {
            self.keeper.publish_outcome(outcome);
        }
        if self.board.as_ref().is_none_or(MarkBoard::try_clear) {
            self.events.push_back(Event::MarksGone);
        }
        self.events.push_back(Event::CommandEnded(outcome));
    }

    fn command_stopped(&mut self, pid: i32, signal: Signal) {
        let terminal = self.keeper.start.terminal.as_ref();
        let resumable = terminal.is_none_or(|t| !t.nobody_resumes && !self.shell_gone);
        if !signal.is_terminal_stop() || resumable {
            return self.keeper.tell(ToFront::Stopped { pid }, &[]);
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
        self.child.iter().for_each(|child| child.signal_group(Signal::CONT));
    }

    pub(super) fn kill_round(&mut self) {
        let reached = tree::kill_round();
        let now = self.clock.now();
        let since = *self.killing_since.get_or_insert(now);
        self.next_round = now + ROUND;
        self.reap();
        // When that has found the last one gone, there is no next round.
        if self.next_round.is_never() {
            return;
        }
        let undying = match (reached.signalled.is_empty(), now.since(since) > tree::UNKILLABLE) {
            (true, _) => reached.denied,
            (false, true) => [reached.signalled, reached.denied].concat(),
            (false, false) => return,
        };
        if undying.is_empty() {
            return;
        }
        self.next_round = now + SLOW_ROUND;
        if self.denied != undying {
            self.denied.clone_from(&undying);
            self.audience.notice(Notice::Denied(&undying));
        }
        self.events.push_back(Event::TreeDenied(undying));
    }
}
