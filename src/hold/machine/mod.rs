//! The state machine of one hold: phase and event decide the next phase and what to do.
//!
//! | phase | held | lost | ending signal | timer | command ends |
//! |---|---|---|---|---|---|
//! | entering | – | – | leave | give up or try again | – |
//! | waiting | pass the gate, or confirm | enter again, at the end | leave | give up | – |
//! | confirming | – | enter again | leave | give up | – |
//! | asking | – | enter again | leave | leave: who was asked did not answer | – |
//! | running | – | SIGKILL the tree | pass on, begin the grace | lease or max-run: begin to stop | linger or leave; died of a signal: stop the rest |
//! | stopping | – | SIGKILL the tree | a second one: SIGKILL | SIGKILL | SIGTERM the rest; leave when all, and nested runs, have ended |
//! | lingering | – | SIGKILL what is left | release | lease: begin to stop what is left; hold-at-least: release | – |
//! | leaving | – | – | – | – | – |

mod after;
mod before;

use std::time::Duration;

use crate::hold::event::{Action, Event, Phase, StopReason};
use crate::hold::plan::Plan;
use crate::hold::verdict::{CutShort, Verdict};
use crate::lease::Window;
use crate::lock::{ClaimState, Entry, Error, Grant, Moment};
use crate::supervise::exit_status::ExitStatus;

/// How long a service that never answered is asked while the wait has no end.
const FIRST_ANSWER: Duration = Duration::from_secs(60);
/// Between attempts to reach a service.
const RETRY: Duration = Duration::from_millis(250);
/// How much longer than its deadline an attempt may take. It ends by itself at the deadline and then says why it
/// came to nothing; two timers set to one moment fire in any order.
const LAST_WORD: Duration = Duration::from_millis(100);

/// The machine.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is an independent fact that several phases need")]
pub struct Machine {
    plan: Plan,
    phase: Phase,
    grant: Option<Grant>,
    window: Option<Window>,
    held_at: Option<Moment>,
    answered: bool,
    /// There is a service, which had no room for this client.
    full: bool,
    /// See [`Machine::is_unanswered`].
    unanswered: bool,
    retry_at: Moment,
    pub(super) last_error: Option<Error>,
    ask_until: Moment,
    grace_until: Moment,
    last_ending: Option<Moment>,
    linger_until: Moment,
    cut_short: Option<CutShort>,
    killing: bool,
    /// Something of the tree is left that cannot be ended, for as long as there is a lease.
    remains: bool,
    command: Option<ExitStatus>,
    /// The lock was given back under a process that goes on, so how that ends is not known.
    given_back: bool,
    tree_gone: bool,
    marks_gone: bool,
    seen_holder: Option<Box<Entry>>,
    /// Why nothing has been seen since.
    unseen: Option<Error>,
    verdict: Option<Verdict>,
    /// An ending signal came, to dlock or to everybody.
    told_to_end: bool,
}

impl Machine {
    /// A machine at the beginning; the first action is to enter.
    pub fn new(plan: Plan) -> Self {
        Self {
            plan,
            phase: Phase::Entering,
            grant: None,
            window: None,
            held_at: None,
            answered: false,
            full: false,
            unanswered: false,
            retry_at: Moment::NEVER,
            last_error: None,
            ask_until: Moment::NEVER,
            grace_until: Moment::NEVER,
            last_ending: None,
            linger_until: Moment::NEVER,
            cut_short: None,
            killing: false,
            remains: false,
            command: None,
            given_back: false,
            tree_gone: false,
            marks_gone: false,
            seen_holder: None,
            unseen: None,
            verdict: None,
            told_to_end: false,
        }
    }

    /// Has the attempt to enter begin at `when` and not now.
    pub fn begin_at(&mut self, when: Moment) -> Vec<Action> {
        self.retry_at = when;
        Vec::new()
    }

    /// Whether an ending signal came, be it that everybody had it already.
    pub fn told_to_end(&self) -> bool {
        self.told_to_end
    }

    /// Where it stands.
    pub fn phase(&self) -> &Phase {
        &self.phase
    }

    /// The grant, once the lock was held.
    pub fn grant(&self) -> Option<&Grant> {
        self.grant.as_ref().filter(|_| self.held_at.is_some())
    }

    /// Since when the lock was held.
    pub fn held_at(&self) -> Option<Moment> {
        self.held_at
    }

    /// Whether an attempt to enter the queue may have left an entry: it was not refused with a reason, or one before it was not.
    pub fn may_have_entered(&self) -> bool {
        match &self.verdict {
            Some(Verdict::Failed(error)) => error.is_transient() || self.last_error.is_some(),
            // It was not even tried, this time.
            Some(Verdict::Skipped(_)) => self.last_error.is_some(),
            _ => true,
        }
    }

    /// Whether an attempt to enter came to nothing without an answer.
    pub fn is_unanswered(&self) -> bool {
        self.unanswered
    }

    /// Whether it ends because the service cannot be used: that is what will be said then.
    pub fn ends_for_the_service(&self) -> bool {
        matches!(self.verdict, Some(Verdict::Failed(_) | Verdict::NotReached(_)))
    }

    /// Whether it was told that no process of the tree is left.
    pub fn tree_is_gone(&self) -> bool {
        self.tree_gone
    }

    /// Whether the command has ended, or the lock was given back under it.
    pub fn command_has_ended(&self) -> bool {
        self.command.is_some()
    }

    /// Why the hold ended earlier than it was to, though with the status of its command.
    pub fn cut_short(&self) -> Option<&CutShort> {
        self.cut_short.as_ref()
    }

    /// Whether nested runs keep the hold from ending.
    pub fn waits_for_marks(&self) -> bool {
        let only_they_are_left = match self.phase {
            Phase::Lingering => self.linger_until.is_never() && !self.awaits_tree(),
            Phase::Stopping(_) => self.tree_gone,
            _ => false,
        };
        only_they_are_left && !self.marks_gone
    }

    /// Whether only nested runs would keep the hold, should the command have ended like this. To ask for them earlier is to
    /// refuse those that are still to begin under it.
    pub fn would_end_with(&self, outcome: ExitStatus, now: Moment) -> bool {
        self.phase == Phase::Running
            && matches!(outcome, ExitStatus::Exited(_))
            && !self.plan.whole_tree
            && self.lingers_until(now).is_never()
    }

    /// Whether what comes of `event` depends on whether there are nested runs, which may not have been asked yet.
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

    /// Whether a member of the tree keeps the hold as the command does.
    fn awaits_tree(&self) -> bool {
        self.plan.whole_tree && !self.tree_gone
    }

    /// Until when the lock is kept after a command that ends now.
    fn lingers_until(&self, now: Moment) -> Moment {
        let at_least = self.held_at.unwrap_or(now) + self.plan.hold_at_least;
        if at_least > now { at_least } else { Moment::NEVER }
    }

    /// Whether the lock is kept for as long as something of the tree remains.
    pub fn keeps_what_remains(&self, now: Moment) -> bool {
        now < self.kill_at() && !matches!(self.phase, Phase::Stopping(StopReason::Lost(_)))
    }

    /// Whether the claim may go before its ttl ends it: not from under what was not known to be gone when it was lost.
    pub fn may_give_back(&self) -> bool {
        match &self.verdict {
            Some(Verdict::Lost { tree, .. }) => tree.is_gone() && self.marks_gone,
            _ => true,
        }
    }

    /// How it ended, once it is over.
    pub fn into_verdict(self) -> Option<Verdict> {
        self.verdict
    }

    /// When the next [`Event::Tick`] is due.
    pub fn wake_at(&self) -> Moment {
        match &self.phase {
            Phase::Entering => self.retry_at.min(self.last_word_until()),
            Phase::Waiting | Phase::Confirming => self.plan.give_up_at(),
            Phase::Asking => self.ask_until,
            Phase::Running => self.terminate_at().min(self.max_run_at()),
            Phase::Stopping(_) if self.tree_gone => self.kill_at(),
            Phase::Stopping(_) if self.remains => self.kill_at(),
            Phase::Stopping(_) if self.killing => Moment::NEVER,
            Phase::Stopping(_) => self.grace_until.min(self.kill_at()),
            Phase::Lingering => self.linger_until.min(self.terminate_at()).min(self.max_run_at()),
            Phase::Leaving | Phase::Over => Moment::NEVER,
        }
    }

    /// When something must be done for the promises' sake while there is a command or what it left; nothing that has
    /// happened may be looked at first.
    pub fn act_by(&self) -> Moment {
        match self.phase {
            Phase::Running | Phase::Stopping(_) | Phase::Lingering => self.wake_at(),
            _ => Moment::NEVER,
        }
    }

    /// Whether the command is being ended on account of the hold, and not because somebody or something asked it to.
    pub fn ends_the_command(&self) -> bool {
        matches!(&self.phase, Phase::Stopping(reason) if !matches!(reason, StopReason::Asked | StopReason::CommandDied))
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

    /// When attempts to enter are over.
    pub(super) fn give_up_at(&self) -> Moment {
        let unanswered =
            if self.answered || self.full { Moment::NEVER } else { self.plan.started + FIRST_ANSWER };
        self.plan.give_up_at().min(unanswered)
    }

    /// When an attempt has had its time to say why it came to nothing.
    pub(super) fn last_word_until(&self) -> Moment {
        self.give_up_at() + LAST_WORD
    }

    /// Takes an event that happened at `now`, and says what to do.
    pub fn on(&mut self, event: Event, now: Moment) -> Vec<Action> {
        self.told_to_end |= matches!(event, Event::Signal { signal, .. } if signal.is_ending());
        match event {
            // A renewal concerns the promise, whatever the phase.
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
                    // It did not mean to leave workers behind.
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
