//! The state machine of one hold: phase and event decide the next phase and the actions.
//!
//! | phase | held | lost | ending signal | timer | command ends |
//! |---|---|---|---|---|---|
//! | entering | – | – | leave | give up or try again | – |
//! | waiting | pass the gate, or confirm | enter again, at the end | leave | give up | – |
//! | confirming | – | enter again | leave | give up | – |
//! | asking | – | enter again | leave | leave: the front or the caller did not answer | – |
//! | running | – | SIGKILL the tree | pass on, begin the grace | lease or max-run: begin to stop | linger or leave; died of a signal: stop the rest |
//! | stopping | – | SIGKILL the tree | a second one: SIGKILL | SIGKILL | SIGTERM the rest; leave when tree and nested runs have ended |
//! | lingering | – | SIGKILL the rest | stop the rest, or release | lease or max-run: begin to stop the rest; hold-at-least: release | – |
//! | leaving | – | – | – | – | – |

mod after;
mod before;

use std::time::Duration;

use crate::hold::event::{Action, Event, Phase, StopReason};
use crate::hold::plan::{Plan, Wait};
use crate::hold::verdict::{CutShort, Verdict};
use crate::lease::Window;
use crate::lock::{ClaimState, Entry, Error, Grant, Moment};
use crate::supervise::exit_status::ExitStatus;

/// How long the machine tries to reach a service that has never answered, if the wait has no end.
pub const FIRST_ANSWER: Duration = Duration::from_secs(60);
/// The time between two attempts to reach a service.
const RETRY: Duration = Duration::from_millis(250);
/// How much longer than its deadline an attempt may take. It ends by itself at the deadline and returns the reason; of
/// two timers set to one moment either may fire first.
const LAST_WORD: Duration = Duration::from_millis(100);

/// The state of one hold. [`Machine::on`] takes events and returns actions.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is an independent fact that several phases need")]
pub struct Machine {
    plan: Plan,
    /// When this keeper began to ask: dlock may have started long before, and have been suspended.
    began: Moment,
    pub(super) phase: Phase,
    grant: Option<Grant>,
    window: Option<Window>,
    /// Since when the lock has been held.
    pub(super) held_at: Option<Moment>,
    answered: bool,
    /// A service answered, but had no room for this client.
    full: bool,
    /// An attempt to enter failed without an answer.
    pub(super) unanswered: bool,
    /// When to enter, or to enter again.
    pub(super) retry_at: Moment,
    pub(super) last_error: Option<Error>,
    ask_until: Moment,
    grace_until: Moment,
    last_ending: Option<Moment>,
    linger_until: Moment,
    /// Why the hold ended early, although the status of the command counts.
    pub(super) cut_short: Option<CutShort>,
    killing: bool,
    /// Members of the tree cannot be killed; the lock stays as long as there is a lease.
    remains: bool,
    /// How the command ended. If its owner has released the lock, it counts as ended.
    pub(super) command: Option<ExitStatus>,
    /// The owner released the lock under an adopted process that runs on, so its end is not known.
    given_back: bool,
    /// The tree is known to be gone.
    pub(super) tree_gone: bool,
    marks_gone: bool,
    seen_holder: Option<Box<Entry>>,
    /// Why the service's last answer is missing.
    unseen: Option<Error>,
    /// How the hold ended, once it is over.
    pub(super) verdict: Option<Verdict>,
    /// An ending signal arrived, for dlock alone or for the whole foreground group.
    pub(super) told_to_end: bool,
}

impl Machine {
    /// Creates a machine in its first phase. It begins with [`Machine::begin`].
    pub fn new(plan: Plan) -> Self {
        Self { plan, began: plan.started, ..Self::default() }
    }

    /// Begins at `now`, or later if the plan does. `again` is whether an earlier keeper of this run has asked.
    pub fn begin(&mut self, again: bool, now: Moment) -> Vec<Action> {
        if now < self.plan.started {
            self.retry_at = self.plan.started;
            return Vec::new();
        }
        self.began = now;
        // The wait ran out while dlock was suspended.
        if again && self.plan.wait != Wait::Once && now >= self.plan.give_up_at() {
            return self.leave_as(Verdict::WaitOver(None));
        }
        vec![Action::Enter]
    }

    /// Returns the grant, if the lock is or was held.
    pub fn grant(&self) -> Option<&Grant> {
        self.grant.as_ref().filter(|_| self.held_at.is_some())
    }

    /// Returns whether an attempt to enter may have left an entry: unless the service refused the last one with a
    /// reason, and no earlier one had failed.
    pub fn may_have_entered(&self) -> bool {
        match &self.verdict {
            Some(Verdict::Failed(error)) => error.is_transient() || self.last_error.is_some(),
            // This attempt ended before it entered.
            Some(Verdict::Skipped(_)) => self.last_error.is_some(),
            _ => true,
        }
    }

    /// Returns whether the hold ends because the service cannot be used. dlock then prints that.
    pub fn ends_for_the_service(&self) -> bool {
        matches!(self.verdict, Some(Verdict::Failed(_) | Verdict::NotReached(_)))
    }

    /// Returns whether only nested runs keep the hold.
    pub fn waits_for_marks(&self) -> bool {
        let only_they_are_left = match self.phase {
            Phase::Lingering => self.linger_until.is_never() && !self.awaits_tree(),
            Phase::Stopping(_) => self.tree_gone,
            _ => false,
        };
        only_they_are_left && !self.marks_gone
    }

    /// Returns whether the actions for `event` depend on whether there are nested runs, and that is not known yet.
    pub fn depends_on_marks(&self, event: &Event, now: Moment) -> bool {
        let unknown = self.phase == Phase::Lingering && !self.marks_gone && !self.awaits_tree();
        unknown
            && match event {
                Event::Signal { signal, .. } => signal.is_ending(),
                Event::State(ClaimState::AskedToLeave { .. } | ClaimState::Lost(_)) | Event::FrontGone => {
                    true
                }
                Event::Tick => now >= self.wake_at(),
                _ => false,
            }
    }

    /// Returns whether members of the tree keep the hold as the command does (`whole_tree`).
    fn awaits_tree(&self) -> bool {
        self.plan.whole_tree && !self.tree_gone
    }

    /// Returns until when to hold the lock after a command that ends now.
    fn lingers_until(&self, now: Moment) -> Moment {
        let at_least = self.held_at.unwrap_or(now) + self.plan.hold_at_least;
        if at_least > now { at_least } else { Moment::NEVER }
    }

    /// Returns whether dlock keeps the lock for members of the tree that cannot be killed.
    pub fn keeps_what_remains(&self, now: Moment) -> bool {
        now < self.kill_at() && !matches!(self.phase, Phase::Stopping(StopReason::Lost(_)))
    }

    /// Returns whether the claim may leave before its ttl is over. After a loss it may not if processes of the tree or
    /// nested runs may live.
    pub fn may_give_back(&self) -> bool {
        match &self.verdict {
            Some(Verdict::Lost { tree, .. }) => tree.is_gone() && self.marks_gone,
            _ => true,
        }
    }

    /// Returns when the next [`Event::Tick`] is due.
    pub fn wake_at(&self) -> Moment {
        match &self.phase {
            Phase::Entering => self.retry_at.min(self.last_word_until()),
            Phase::Waiting | Phase::Confirming => self.plan.give_up_at(),
            Phase::Asking => self.ask_until,
            Phase::Running => self.terminate_at().min(self.max_run_at()),
            Phase::Stopping(_) if self.tree_gone || self.remains => self.kill_at(),
            Phase::Stopping(_) if self.killing => Moment::NEVER,
            Phase::Stopping(_) => self.grace_until.min(self.kill_at()),
            Phase::Lingering => self.linger_until.min(self.terminate_at()).min(self.max_run_at()),
            Phase::Leaving | Phase::Over => Moment::NEVER,
        }
    }

    /// Returns when the machine must act to keep its promises while the command or the rest of its tree runs. The
    /// driver handles that moment before any other event.
    pub fn act_by(&self) -> Moment {
        match self.phase {
            Phase::Running | Phase::Stopping(_) | Phase::Lingering => self.wake_at(),
            _ => Moment::NEVER,
        }
    }

    /// Returns whether dlock stops the command for a reason of its own, and not because of a signal to dlock or the
    /// death of the command.
    pub fn ends_the_command(&self) -> bool {
        matches!(&self.phase, Phase::Stopping(reason) if !matches!(reason, StopReason::Asked | StopReason::CommandDied))
    }

    /// Returns whether the lock is lost, or about to be: no process may run under it any more.
    pub fn has_lost(&self) -> bool {
        match self.phase {
            Phase::Stopping(StopReason::Lost(_)) => true,
            Phase::Stopping(StopReason::RunningOut) => self.killing,
            _ => matches!(self.verdict, Some(Verdict::Lost { .. })),
        }
    }

    fn terminate_at(&self) -> Moment {
        self.window.map_or(Moment::NEVER, |w| w.terminate_at)
    }

    pub(super) fn kill_at(&self) -> Moment {
        self.window.map_or(Moment::NEVER, |w| w.kill_at)
    }

    fn max_run_at(&self) -> Moment {
        match (self.plan.max_run, self.held_at) {
            (Some(length), Some(at)) => at + length,
            _ => Moment::NEVER,
        }
    }

    /// Returns when to give up entering.
    pub(super) fn give_up_at(&self) -> Moment {
        let unanswered = if self.answered || self.full { Moment::NEVER } else { self.began + FIRST_ANSWER };
        self.plan.give_up_at().min(unanswered)
    }

    /// Returns until when an attempt may still return its reason.
    pub(super) fn last_word_until(&self) -> Moment {
        self.give_up_at() + LAST_WORD
    }

    /// Handles an event that happened at `now`, and returns the actions.
    pub fn on(&mut self, event: Event, now: Moment) -> Vec<Action> {
        self.told_to_end |= matches!(event, Event::Signal { signal, .. } if signal.is_ending());
        match event {
            // A renewal moves the window in every phase.
            Event::Renewed(window) => {
                (self.window, self.unseen) = (Some(window), None);
                return if self.phase == Phase::Confirming { self.ask_or_confirm(now) } else { Vec::new() };
            }
            Event::Left => {
                self.phase = Phase::Over;
                return Vec::new();
            }
            Event::LeftAlone => {
                self.phase = Phase::Over;
                self.verdict = Some(Verdict::LeftAlone);
                return Vec::new();
            }
            Event::MarksGone => self.marks_gone = true,
            Event::TreeGone => self.tree_gone = true,
            _ => {}
        }
        match self.phase.clone() {
            Phase::Entering => self.entering(event, now),
            Phase::Waiting | Phase::Confirming => self.waiting(event, now),
            Phase::Asking => self.asking(event, now),
            Phase::Running => self.running(event, now),
            Phase::Stopping(reason) => self.stopping(event, reason, now),
            Phase::Lingering => self.lingering(event, now),
            Phase::Leaving | Phase::Over => Vec::new(),
        }
    }

    fn running(&mut self, event: Event, now: Moment) -> Vec<Action> {
        match event {
            Event::NotExecuted(error) => self.leave_as(Verdict::NotExecuted(error)),
            Event::CommandEnded(outcome) => {
                self.command = Some(outcome);
                self.linger_until = self.lingers_until(now);
                if let ExitStatus::Signaled(_) = outcome
                    && !self.tree_gone
                {
                    // A command that was killed did not leave workers on purpose.
                    self.phase = Phase::Stopping(StopReason::CommandDied);
                    self.grace_until = now + self.plan.grace;
                    return vec![Action::TerminateTree];
                }
                self.phase = Phase::Lingering;
                self.leave_if_nothing_is_left()
            }
            Event::Signal { everybody: true, .. } => Vec::new(),
            Event::Signal { signal, .. } if signal.is_ending() => {
                self.last_ending = Some(now);
                self.stop(StopReason::Asked, signal, now)
            }
            Event::Signal { signal, .. } => vec![Action::Pass(signal)],
            Event::State(ClaimState::AskedToLeave { by }) => self.stop_itself(StopReason::Broken(by), now),
            Event::State(ClaimState::Lost(reason)) => self.kill(StopReason::Lost(reason)),
            Event::Released => self.released(),
            Event::FrontGone => self.kill(StopReason::FrontGone),
            Event::Tick if now >= self.kill_at() => self.kill(StopReason::RunningOut),
            Event::Tick if now >= self.terminate_at() => {
                let actions = self.stop_itself(StopReason::RunningOut, now);
                self.grace_until = self.kill_at();
                actions
            }
            Event::Tick if now >= self.max_run_at() => self.stop_itself(StopReason::MaxRun, now),
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests;
