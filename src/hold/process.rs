//! What becomes of the command and its tree.

use std::time::Duration;

use super::adopting::Adopting;
use super::context::Context;
use super::event::{Event, Phase};
use super::job::Notice;
use super::marks::Marks;
use crate::lock::Moment;
use crate::supervise::adopted::AwaitedEnd;
use crate::supervise::ender::UNKILLABLE;
use crate::supervise::ender_adopted::Left;
use crate::supervise::exit_status::ExitStatus;
use crate::supervise::signals::Signal;
use crate::supervise::tree_state::TreeState;
use crate::supervise::wait::{self, ChildChange, Children, next_change};

/// Between two rounds of ending a tree that did not end at once.
const ROUND: Duration = Duration::from_millis(5);
/// Between two rounds when only processes are left that cannot be ended.
const SLOW_ROUND: Duration = Duration::from_secs(1);
/// Between two attempts to resume a command that is stopped again and again.
const RESUME_AGAIN: Duration = Duration::from_secs(1);

/// Between two looks for who is left, when one could not tell.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// The command, or the process that stands in its place, and what is left of its tree.
pub(super) struct Process {
    /// Its pid, once it has started; 0 where the hold is for nobody's.
    pid: Option<i32>,
    /// It has ended; what is left of the tree is on its own.
    pub(super) is_over: bool,
    /// What stands in the place of a command, if something does.
    pub(super) adopting: Option<Adopting>,
    stops: JobControl,
    pub(super) rounds: Rounds,
}

/// How the command is stopped and resumed.
struct JobControl {
    /// The front was stopped with the command.
    front_stopped: bool,
    /// Nobody is left who could resume a stopped job.
    shell_gone: bool,
    /// When a command that nobody else can resume is resumed.
    resume_at: Moment,
    resumed_at: Option<Moment>,
}

/// The rounds in which the tree is ended.
pub(super) struct Rounds {
    next: Moment,
    since: Option<Moment>,
    /// What is left of the tree and cannot be ended, as last told.
    remains: Option<TreeState>,
}

impl Rounds {
    /// Nobody is left.
    pub(super) fn are_over(&mut self) {
        self.next = Moment::NEVER;
    }
}

impl Process {
    /// That of a hold that has not begun.
    pub(super) fn not_started(adopting: Option<Adopting>) -> Self {
        Self {
            pid: None,
            is_over: false,
            adopting,
            stops: JobControl {
                front_stopped: false,
                shell_gone: false,
                resume_at: Moment::NEVER,
                resumed_at: None,
            },
            rounds: Rounds { next: Moment::NEVER, since: None, remains: None },
        }
    }

    /// Whether the gate was passed: it runs under the lock.
    pub(super) fn has_begun(&self) -> bool {
        self.pid.is_some()
    }

    pub(super) fn started(&mut self, pid: i32) {
        self.pid = Some(pid);
    }

    /// Nobody is left who could resume a stopped job; see [`Process::shell_is_there`].
    pub(super) fn shell_gone(&mut self) {
        self.stops.shell_gone = true;
    }

    pub(super) fn shell_is_there(&self) -> bool {
        !self.stops.shell_gone
    }

    /// When something is due.
    pub(super) fn wake_at(&self) -> Moment {
        let look_again = self.adopting.as_ref().map_or(Moment::NEVER, |adopting| adopting.look_again_at);
        self.rounds.next.min(self.stops.resume_at).min(look_again)
    }

    /// Does what was due at `then`.
    pub(super) fn time_has_come(&mut self, then: Moment, context: &mut Context<'_>, marks: &Marks) {
        if self.rounds.next <= then {
            self.kill_round(context, marks);
        }
        if self.stops.resume_at <= then {
            self.resume_command(context);
        }
    }

    /// Takes the changes of all children: the command's, and the ends of orphans.
    pub(super) fn reap(&mut self, context: &mut Context<'_>, marks: &Marks) {
        let Some(pid) = self.pid.filter(|_| !context.machine.tree_is_gone()) else { return };
        if self.adopting.is_some() {
            return self.look_after_adopted(context, marks);
        }
        // Once it is reaped nobody else could learn how it ended, should this process not live to say it.
        if !self.is_over {
            publish(context, wait::ended(pid));
        }
        loop {
            match next_change() {
                Children::Quiet => return,
                Children::None => {
                    if self.is_over {
                        self.tree_gone(context, marks);
                    }
                    return;
                }
                Children::Changed(changed, change) => {
                    if changed == pid {
                        self.command_changed(change, context, marks);
                    }
                }
            }
        }
    }

    /// Looks whether the process has ended, and then who is left of it.
    fn look_after_adopted(&mut self, context: &mut Context<'_>, marks: &Marks) {
        let keeper = context.keeper;
        let mut ender = keeper.ender();
        let Some(adopted) = ender.adopted() else {
            // There is nobody to be ended.
            if matches!(context.machine.phase(), Phase::Stopping(_)) {
                self.tree_gone(context, marks);
            }
            return;
        };
        if !self.is_over {
            if !adopted.has_ended() {
                return;
            }
            self.is_over = true;
            // Nobody but its parent is told how it ended; one that was killed did not mean to leave anybody behind.
            context.happened(Event::CommandEnded(ExitStatus::Signaled(Signal::KILL)));
        }
        let Some(adopting) = &mut self.adopting else { return };
        if adopting.rest.is_some() {
            return;
        }
        adopting.look_again_at = Moment::NEVER;
        match ender.left() {
            Left::Nobody => self.tree_gone(context, marks),
            Left::Somebody(handle) => {
                adopting.rest = AwaitedEnd::of(handle).ok();
                if adopting.rest.is_none() {
                    adopting.look_again_at = context.now() + LOOK_AGAIN;
                }
            }
            Left::Unknown => adopting.look_again_at = context.now() + LOOK_AGAIN,
        }
    }

    /// Nobody is left of the tree, and the marks of those in it are gone with them.
    fn tree_gone(&mut self, context: &mut Context<'_>, marks: &Marks) {
        self.rounds.are_over();
        marks.tell_if_gone(context);
        context.happened(Event::TreeGone);
    }

    fn command_changed(&mut self, change: ChildChange, context: &mut Context<'_>, marks: &Marks) {
        let outcome = match change {
            ChildChange::Exited(status) => ExitStatus::Exited(status),
            ChildChange::Killed(signal) => ExitStatus::Signaled(signal),
            ChildChange::Stopped(signal) => return self.command_stopped(signal, context),
            ChildChange::Continued => return self.let_front_go_on(context),
        };
        if self.is_over {
            return;
        }
        self.is_over = true;
        self.let_front_go_on(context);
        if context.machine.would_end_with(outcome, context.now()) {
            marks.tell_if_gone(context);
        }
        context.happened(Event::CommandEnded(outcome));
    }

    /// A front that was stopped with the command goes on when that does, and when it has ended.
    fn let_front_go_on(&mut self, context: &Context<'_>) {
        if std::mem::take(&mut self.stops.front_stopped) {
            context.keeper.resume_front();
        }
    }

    /// Whether the command has stopped once more since the front took this SIGCONT, or this stop by the terminal: the one
    /// would undo the later stop, the other would stop again what somebody has resumed meanwhile. `stops` is how often
    /// the front had been stopped when it took the signal.
    pub(super) fn is_overtaken(
        &mut self,
        signal: Signal,
        stops: u8,
        context: &mut Context<'_>,
        marks: &Marks,
    ) -> bool {
        if signal != Signal::CONT && !signal.is_terminal_stop() {
            return false;
        }
        // The stop may not have been taken yet.
        self.reap(context, marks);
        context.keeper.shared().stops() != stops
    }

    /// Whether this stop by the terminal comes when the command has ended: it is followed as the command's would have been.
    pub(super) fn follows_stop(&mut self, signal: Signal, context: &Context<'_>) -> bool {
        let follows = self.is_over && self.adopting.is_none() && signal.is_terminal_stop();
        if follows {
            self.command_stopped(signal, context);
        }
        follows
    }

    fn command_stopped(&mut self, signal: Signal, context: &Context<'_>) {
        // While the tree is being ended it is this process that stops it.
        if self.rounds.since.is_some() {
            return;
        }
        let terminal = context.keeper.start.terminal.as_ref();
        let resumable = terminal.is_none_or(|t| !t.nobody_resumes && !self.stops.shell_gone);
        if !signal.is_terminal_stop() || resumable {
            self.stops.front_stopped = true;
            return context.keeper.stop_front();
        }
        // One that reads a terminal which is not its own would be stopped again at once, and so on.
        let now = context.now();
        if self.stops.resumed_at.is_some_and(|at| now.since(at) < RESUME_AGAIN) {
            self.stops.resume_at = now + RESUME_AGAIN;
        } else {
            self.resume_command(context);
        }
    }

    /// Undoes a stop that nobody else could undo.
    fn resume_command(&mut self, context: &Context<'_>) {
        self.stops.resume_at = Moment::NEVER;
        self.stops.resumed_at = Some(context.now());
        let mut ender = context.keeper.ender();
        if self.is_over { ender.resume_job() } else { ender.signal_group(Signal::CONT) }
    }

    pub(super) fn kill_round(&mut self, context: &mut Context<'_>, marks: &Marks) {
        let reached = context.keeper.ender().kill_round();
        let now = context.now();
        let since = *self.rounds.since.get_or_insert(now);
        self.rounds.next = now + ROUND;
        self.reap(context, marks);
        // When that has found the last one gone, there is no next round.
        if self.rounds.next.is_never() {
            return;
        }
        let denied = reached.is_in_vain() && !reached.denied.is_empty();
        if !denied && now.since(since) <= UNKILLABLE {
            return;
        }
        let remains = reached.state();
        self.rounds.next = now + SLOW_ROUND;
        let is_news = self.rounds.remains.replace(remains) != Some(remains);
        if is_news && context.machine.keeps_what_remains(now) {
            context.notice(Notice::CannotEnd(remains));
        }
        context.happened(Event::TreeRemains(remains));
    }
}

/// One that was ended on account of its hold has not done its work, even if this keeper cannot say so any more.
fn publish(context: &Context<'_>, end: Option<ChildChange>) {
    let outcome = match end {
        Some(ChildChange::Exited(status)) => ExitStatus::Exited(status),
        Some(ChildChange::Killed(signal)) => ExitStatus::Signaled(signal),
        _ => return,
    };
    if !context.machine.ends_the_command() {
        context.keeper.shared().set_outcome(outcome);
    }
}
