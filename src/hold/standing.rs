//! How the claim stands: in line, held, renewed.

use std::sync::Arc;

use super::adopting::WITHDRAWN;
use super::driver::{Attempted, Driver};
use super::event::{Event, Phase};
use super::job::Notice;
use super::nested::Entered;
use crate::backend::Claim;
use crate::lease::{LeaseKeeper, News, Wanted};
use crate::lock::{ClaimState, Moment, Result, Verb};

impl Driver<'_> {
    pub(super) fn entered(&mut self, result: Result<Attempted>) -> Event {
        if result.as_ref().is_ok() {
            self.tell_silence_at = Moment::NEVER;
        }
        match result {
            Ok(Attempted::Unneeded(ago)) => Event::Unneeded(ago),
            Ok(Attempted::Entered(Entered { claim, own, under })) => {
                if let Some(claim) = under {
                    self.audience.notice(Notice::Nested(claim));
                }
                self.own = own;
                self.under = under;
                // The kernel looks after waiting claims without a ttl: no wake-ups for those.
                if let Some(granted) = claim.ttl() {
                    self.tell_ttl(granted);
                    self.lease = Some(self.lease_keeper(&claim, self.entering_since));
                }
                self.claim = Some(claim);
                Event::Entered
            }
            Err(error) => Event::Refused(error),
        }
    }

    fn lease_keeper(&self, claim: &Arc<dyn Claim>, from: Moment) -> LeaseKeeper {
        let wanted = Wanted {
            ttl: self.job.plan.ttl,
            grace: self.job.plan.grace,
            renewals_per_ttl: self.job.backend.capabilities().renewals_per_ttl,
            leased: self.job.backend.capabilities().leased,
        };
        LeaseKeeper::new(claim.clone(), self.clock, wanted, from)
    }

    pub(super) fn state(&mut self, state: ClaimState) -> Event {
        if let (ClaimState::AskedToLeave { by }, Some(_)) = (&state, &self.adopting)
            && by.verb == Verb::Release
            && self.machine.grant().is_some()
        {
            self.seen = Some(state);
            return match self.machine.phase() {
                Phase::Running => self.released(),
                Phase::Asking => WITHDRAWN,
                // It is being ended, or on its way out already.
                _ => Event::Tick,
            };
        }
        match (&state, &self.claim) {
            (ClaimState::Held(grant), Some(claim)) if *self.machine.phase() == Phase::Waiting => {
                // What is told of a hold that counts is told when the machine asks.
                let lease = self.lease_keeper(claim, grant.counts_from);
                self.machine.on(Event::Renewed(lease.window()), self.clock.now());
                self.lease = Some(lease);
            }
            (ClaimState::Waiting { ahead, holder }, _) => {
                self.audience.notice(Notice::Waiting { ahead: *ahead, holder: holder.as_deref() });
                self.replace_at = if self.job.replace { self.clock.now() } else { Moment::NEVER };
                self.rehearse();
            }
            _ => {}
        }
        self.seen = Some(state.clone());
        Event::State(state)
    }

    pub(super) fn renewed(&mut self, answer: (Moment, Result<Moment>)) -> Option<Event> {
        let lease = self.lease.as_mut()?;
        let news = lease.conclude(answer);
        if self.machine.held_at().is_some() {
            self.keeper.guard_until(lease.window().guard_at);
        }
        match news {
            News::Renewed(window) => {
                self.doubtful = false;
                self.look_again_who_holds();
                Some(Event::Renewed(window))
            }
            News::Doubtful(error) => {
                self.tell_doubt(&error);
                None
            }
        }
    }
}
