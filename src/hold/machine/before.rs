//! The machine's phases up to the start of the command.

use super::{Machine, RETRY};
use crate::hold::event::{Action, Event, Phase};
use crate::hold::plan::Wait;
use crate::hold::verdict::Verdict;
use crate::lock::{ClaimState, ErrorKind, LossReason, Moment};

impl Machine {
    pub(super) fn entering(&mut self, event: Event, now: Moment) -> Vec<Action> {
        match event {
            Event::Entered => {
                self.answered = true;
                self.phase = Phase::Waiting;
                Vec::new()
            }
            Event::Refused(error) => {
                self.full |= error.kind == ErrorKind::Full;
                self.unanswered |= error.is_unanswered();
                if !error.is_transient() || self.plan.wait == Wait::Once {
                    return self.leave_as(Verdict::Failed(error));
                }
                self.last_error = Some(error);
                if now >= self.give_up_at() {
                    return self.leave_unentered();
                }
                self.retry_at = (now + RETRY).min(self.give_up_at());
                Vec::new()
            }
            Event::Unneeded(ago) => self.leave_as(Verdict::Skipped(ago)),
            Event::Tick if now >= self.last_word_until().min(self.retry_at.max(self.give_up_at())) => {
                self.leave_unentered()
            }
            Event::Tick if now >= self.retry_at => {
                self.retry_at = Moment::NEVER;
                vec![Action::Enter]
            }
            other => self.before_running(other),
        }
    }

    /// The time is over, and the claim is not in the queue. If it was there before, it has waited for the lock.
    fn leave_unentered(&mut self) -> Vec<Action> {
        let verdict = if self.answered {
            Verdict::WaitOver(self.seen_holder.take())
        } else {
            Verdict::NotReached(self.last_error.take())
        };
        self.leave_as(verdict)
    }

    pub(super) fn waiting(&mut self, event: Event, now: Moment) -> Vec<Action> {
        match event {
            Event::State(ClaimState::Waiting { holder, .. }) => {
                (self.seen_holder, self.unseen) = (holder, None);
                if self.plan.wait == Wait::Once {
                    let holder = self.seen_holder.take();
                    return self.leave_as(Verdict::Busy(holder));
                }
                Vec::new()
            }
            Event::State(ClaimState::Held(grant)) => {
                self.grant = Some(grant);
                self.ask_or_confirm(now)
            }
            Event::Refused(error) => self.leave_as(Verdict::Failed(error)),
            Event::Unseen(error) => {
                self.unseen = Some(error);
                Vec::new()
            }
            Event::Tick if now >= self.plan.give_up_at() => {
                let unseen = self.unseen.take();
                // The holder as last seen may be gone.
                let holder = self.seen_holder.take().filter(|_| unseen.is_none());
                if let Some(refusal) = unseen.filter(|error| !error.is_transient()) {
                    return self.leave_as(Verdict::Failed(refusal));
                }
                self.leave_as(if self.plan.wait == Wait::Once {
                    Verdict::Busy(holder)
                } else {
                    Verdict::WaitOver(holder)
                })
            }
            other => self.before_running(other),
        }
    }

    /// The service granted the lock. After an outage little may be left of the lease: enough to lose the turn, too
    /// little to start the command. The lock then counts as held only once the next renewal is confirmed.
    pub(super) fn ask_or_confirm(&mut self, now: Moment) -> Vec<Action> {
        if self.window.is_some_and(|window| window.begin_until <= now) {
            self.phase = Phase::Confirming;
            return Vec::new();
        }
        self.held_at = Some(now);
        // Renewals do not move this moment, and it exists without a lease too: the next claim in the queue may be able
        // to start its command.
        self.ask_until = self.terminate_at().min(now + self.plan.ttl);
        self.phase = Phase::Asking;
        vec![Action::Ask]
    }

    pub(super) fn asking(&mut self, event: Event, now: Moment) -> Vec<Action> {
        match event {
            Event::Unneeded(ago) => self.leave_as(Verdict::Skipped(ago)),
            Event::Refused(error) => self.leave_as(Verdict::Failed(error)),
            Event::Go if now < self.ask_until => {
                self.phase = Phase::Running;
                vec![Action::Spawn]
            }
            // Too late to start the command.
            Event::Go => self.suspend(),
            Event::Tick if now >= self.ask_until => self.suspend(),
            other => self.before_running(other),
        }
    }

    /// Handles the events that mean the same in every phase before the command runs.
    fn before_running(&mut self, event: Event) -> Vec<Action> {
        match event {
            // `dlock break` asked the claim to leave, or removed it by force.
            Event::State(
                ClaimState::AskedToLeave { by } | ClaimState::Lost(LossReason::Evicted(Some(by))),
            ) => self.leave_as(Verdict::Broken { by, ran: false }),
            Event::State(ClaimState::Superseded { by }) => self.leave_as(Verdict::Superseded(by)),
            // The plan allowed one attempt, and it did not get the lock.
            Event::State(ClaimState::Lost(_)) if self.plan.wait == Wait::Once => {
                self.leave_as(Verdict::Busy(None))
            }
            Event::State(ClaimState::Lost(reason)) if self.plan.supersede => {
                self.leave_as(Verdict::PlaceLost(Some(reason)))
            }
            Event::State(ClaimState::Lost(reason)) => {
                self.phase = Phase::Entering;
                self.grant = None;
                self.held_at = None;
                self.window = None;
                vec![Action::EnterAgain(reason)]
            }
            Event::Signal { signal, .. } if signal.is_ending() => self.leave_as(Verdict::Signalled(signal)),
            Event::Signal { signal, .. } if signal.is_terminal_stop() => self.suspend(),
            Event::FrontGone => self.leave_as(Verdict::Abandoned),
            _ => Vec::new(),
        }
    }

    /// Leaves the queue until the front continues.
    fn suspend(&mut self) -> Vec<Action> {
        self.leave_as(if self.plan.supersede { Verdict::PlaceLost(None) } else { Verdict::Suspended })
    }
}
