//! The command and its tree, or the adopted process: reaping, stops and kills.

use std::time::Duration;

use super::adopting::Adopting;
use super::context::Context;
use super::event::{Event, Phase};
use super::job::Notice;
use super::marks::Marks;
use crate::lock::Moment;
use crate::supervise::adopted::AwaitedEnd;
use crate::supervise::ender_adopted::Left;
use crate::supervise::exit_status::ExitStatus;
use crate::supervise::signals::Signal;
use crate::supervise::tree_state::{Progress, TreeState};
use crate::supervise::wait::{self, ChildChange, Children, next_change};

/// The time between two rounds of SIGKILL while the tree may still end at once.
const ROUND: Duration = Duration::from_millis(5);
/// The time between two rounds when the rest of the tree cannot be killed.
const SLOW_ROUND: Duration = Duration::from_secs(1);
/// The time between two attempts to resume a command that stops again and again.
const RESUME_AGAIN: Duration = Duration::from_secs(1);

/// The time between two searches for the rest of the tree, if one found no answer.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// The time between two searches while a process is left that may not belong to the tree.
const JUDGE_AGAIN: Duration = Duration::from_secs(1);

/// The command or the adopted process, and the rest of its tree.
#[derive(Default)]
pub(super) struct Process {
    /// The pid, once it runs under the lock; 0 if the hold is for no process.
    pub(super) pid: Option<i32>,
    /// The command or the adopted process has ended; others of its tree may live.
    pub(super) is_over: bool,
    /// How the command ended.
    outcome: Option<ExitStatus>,
    /// The adopted process, if there is one, and the caller.
    pub(super) adopting: Option<Adopting>,
    /// The front was stopped with the command.
    front_stopped: bool,
    /// The shell is gone: no process could resume a stopped job.
    pub(super) shell_gone: bool,
    /// When to resume a stopped command that no other process can resume.
    resume_at: Moment,
    resumed_at: Option<Moment>,
    /// When the next round of SIGKILL is due.
    round_at: Moment,
    killing: Option<Progress>,
    /// The members that cannot be killed, as last reported.
    remains: Option<TreeState>,
}

impl Process {
    pub(super) fn not_started(adopting: Option<Adopting>) -> Self {
        Self { adopting, ..Self::default() }
    }

    /// Returns whether the command, or the adopted process, runs or ran under the lock.
    pub(super) fn has_begun(&self) -> bool {
        self.pid.is_some()
    }

    pub(super) fn wake_at(&self) -> Moment {
        let look_again = self.adopting.as_ref().map_or(Moment::NEVER, |adopting| adopting.look_again_at);
        self.round_at.min(self.resume_at).min(look_again)
    }

    /// Does whatever was due at `then`. [`Process::reap`] searches for the rest of an adopted tree.
    pub(super) fn time_has_come(&mut self, then: Moment, context: &mut Context<'_>, marks: &Marks<'_>) {
        if self.round_at <= then {
            self.kill_round(context, marks);
        }
        if self.resume_at <= then {
            self.resume_command(context);
        }
    }

    /// Takes the changes of all children: the command's, and the ends of orphans.
    pub(super) fn reap(&mut self, context: &mut Context<'_>, marks: &Marks<'_>) {
        let Some(pid) = self.pid.filter(|_| !context.machine.tree_gone) else { return };
        if self.adopting.is_some() {
            return self.look_after_adopted(context, marks);
        }
        // Publish before reaping: if this keeper died after reaping, the front could not learn how the command ended. If
        // dlock stopped it for a reason of its own, its status is not its result; nor while the rest of its tree counts.
        if !self.is_over
            && !context.machine.ends_the_command()
            && !context.job.plan.whole_tree
            && let Some(outcome) = wait::ended(pid)
        {
            context.keeper.shared.set_outcome(outcome);
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
                        self.command_changed(change, context);
                    }
                }
            }
        }
    }

    /// Checks whether the adopted process has ended, and then what is left of its tree.
    fn look_after_adopted(&mut self, context: &mut Context<'_>, marks: &Marks<'_>) {
        let keeper = context.keeper;
        let mut ender = keeper.ender();
        let Some(adopting) = &mut self.adopting else { return };
        let Some(adopted) = &ender.adopted else {
            // The hold is for no process.
            if matches!(context.machine.phase, Phase::Stopping(_)) {
                self.tree_gone(context, marks);
            }
            return;
        };
        if !self.is_over {
            if !adopted.has_ended() {
                return;
            }
            (self.is_over, adopting.process) = (true, None);
            // Only its parent can learn how it ended. Treat it as killed: dlock then stops what it left.
            context.happened(Event::CommandEnded(ExitStatus::Signaled(Signal::KILL)));
        }
        if adopting.process.is_some() && context.now() < adopting.look_again_at {
            return;
        }
        adopting.look_again_at = Moment::NEVER;
        match ender.left() {
            Left::Nobody => self.tree_gone(context, marks),
            Left::Somebody(handle) => {
                adopting.process = AwaitedEnd::of(handle).ok();
                let pause = if adopting.process.is_some() { JUDGE_AGAIN } else { LOOK_AGAIN };
                adopting.look_again_at = context.now() + pause;
            }
            Left::Unknown => adopting.look_again_at = context.now() + LOOK_AGAIN,
        }
    }

    /// No process of the tree is left.
    fn tree_gone(&mut self, context: &mut Context<'_>, marks: &Marks<'_>) {
        self.round_at = Moment::NEVER;
        if let Some(outcome) = self.outcome.filter(|_| !context.machine.ends_the_command()) {
            context.keeper.shared.set_outcome(outcome);
        }
        // During the hold a nested run may still begin.
        if matches!(context.machine.phase, Phase::Stopping(_)) && marks.are_gone() {
            context.happened(Event::MarksGone);
        }
        context.happened(Event::TreeGone);
    }

    fn command_changed(&mut self, change: ChildChange, context: &mut Context<'_>) {
        let outcome = match change {
            ChildChange::Stopped(signal) => return self.command_stopped(signal, context),
            ChildChange::Continued => return self.let_front_go_on(context),
            ChildChange::Ended(outcome) => outcome,
        };
        if self.is_over {
            return;
        }
        (self.is_over, self.outcome) = (true, Some(outcome));
        self.let_front_go_on(context);
        context.happened(Event::CommandEnded(outcome));
    }

    /// Resumes a front that was stopped with the command, once the command continues or has ended.
    fn let_front_go_on(&mut self, context: &Context<'_>) {
        if std::mem::take(&mut self.front_stopped) {
            context.keeper.resume_front();
        }
    }

    /// Returns whether the front took this SIGCONT, or this stop by the terminal, before the command's latest stop. An
    /// old SIGCONT would undo that stop. An old stop would stop a job again that was resumed meanwhile. `stops` is how
    /// often the front had been stopped when it took the signal.
    pub(super) fn is_overtaken(
        &mut self,
        signal: Signal,
        stops: u8,
        context: &mut Context<'_>,
        marks: &Marks<'_>,
    ) -> bool {
        if signal != Signal::CONT && !signal.is_terminal_stop() {
            return false;
        }
        // A stop of the command may not have been reaped yet.
        self.reap(context, marks);
        context.keeper.shared.stops() != stops
    }

    /// Handles a stop by the terminal after the command has ended, as a stop of the command. Returns whether that was
    /// the case.
    pub(super) fn follows_stop(&mut self, signal: Signal, context: &Context<'_>) -> bool {
        let follows = self.is_over && self.adopting.is_none() && signal.is_terminal_stop();
        if follows {
            self.command_stopped(signal, context);
        }
        follows
    }

    fn command_stopped(&mut self, signal: Signal, context: &Context<'_>) {
        // While this process kills the tree, the stops are its own.
        if self.killing.is_some() {
            return;
        }
        let terminal = context.keeper.start.terminal.as_ref();
        let resumable = terminal.is_none_or(|t| !t.nobody_resumes && !self.shell_gone);
        if !signal.is_terminal_stop() || resumable {
            self.front_stopped = context.keeper.stop_front();
        }
        // A shell resumes a job only if it has seen the front stop.
        if !signal.is_terminal_stop() || self.front_stopped {
            return;
        }
        // A command that reads a terminal from the background would be stopped again at once, and so on.
        let now = context.now();
        if self.resumed_at.is_some_and(|at| now.since(at) < RESUME_AGAIN) {
            self.resume_at = now + RESUME_AGAIN;
        } else {
            self.resume_command(context);
        }
    }

    /// Undoes a stop that no other process could undo.
    fn resume_command(&mut self, context: &Context<'_>) {
        self.resume_at = Moment::NEVER;
        self.resumed_at = Some(context.now());
        let mut ender = context.keeper.ender();
        if self.is_over { ender.resume_job() } else { ender.signal_group(Signal::CONT) }
    }

    pub(super) fn kill_round(&mut self, context: &mut Context<'_>, marks: &Marks<'_>) {
        let reached = context.keeper.ender().kill_round();
        let now = context.now();
        let is_stuck = self.killing.get_or_insert_default().is_stuck(&reached, now);
        self.round_at = now + ROUND;
        self.reap(context, marks);
        // If reaping found the tree gone, there is no next round.
        if self.round_at.is_never() {
            return;
        }
        let denied = reached.is_in_vain() && !reached.denied.is_empty();
        if !denied && !is_stuck {
            return;
        }
        let remains = reached.state();
        self.round_at = now + SLOW_ROUND;
        let is_news = self.remains.replace(remains) != Some(remains);
        if is_news && context.machine.keeps_what_remains(now) {
            context.progress.notice(Notice::CannotEnd(remains));
        }
        context.happened(Event::TreeRemains(remains));
    }
}
