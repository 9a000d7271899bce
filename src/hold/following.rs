//! How the claim stands: in the queue, held, renewed.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use super::adopting::WITHDRAWN;
use super::driver::Driver;
use super::entry::Attempted;
use super::event::{Event, Phase};
use super::health::tell_ttl;
use super::job::Notice;
use super::nested::Entered;
use crate::backend::Claim;
use crate::lease::News;
use crate::lock::{ClaimState, Error, ErrorKind, Moment, Result, Verb};

/// Between two attempts to read how a claim stands.
const RETRY: Duration = Duration::from_millis(250);

/// The claim, and how it was last seen to stand.
pub(super) struct Following {
    pub(super) claim: Option<Arc<dyn Claim>>,
    pub(super) seen: Option<ClaimState>,
    /// When its state is asked for again, after that has failed.
    pub(super) retry_at: Moment,
}

impl Following {
    /// That of no claim yet.
    pub(super) fn nothing() -> Self {
        Self { claim: None, seen: None, retry_at: Moment::NEVER }
    }

    /// The claim's next state, if there is a claim.
    pub(super) async fn changed(&self) -> Result<ClaimState> {
        match &self.claim {
            Some(claim) if self.retry_at.is_never() => claim.changed(self.seen.as_ref()).await,
            _ => pending().await,
        }
    }
}

impl Driver<'_> {
    pub(super) fn entered(&mut self, result: Result<Attempted>) -> Event {
        if result.is_ok() {
            self.health.was_reached();
        }
        match result {
            Ok(Attempted::Unneeded(ago)) => Event::Unneeded(ago),
            Ok(Attempted::Entered(Entered { claim, own, under })) => {
                let context = &mut self.context;
                if let Some(claim) = under {
                    context.notice(Notice::Nested(claim));
                }
                self.entry.entered(own, under);
                // The kernel looks after waiting claims without a ttl: no wake-ups for those.
                if let Some(granted) = claim.ttl() {
                    tell_ttl(context, granted);
                    self.renewal.keep(context, &claim, self.entry.since);
                }
                self.following.claim = Some(claim);
                Event::Entered
            }
            Err(error) => Event::Refused(error),
        }
    }

    pub(super) fn state(&mut self, state: ClaimState) -> Event {
        self.health.answered();
        self.following.seen = Some(state.clone());
        if let (ClaimState::AskedToLeave { by }, Some(_)) = (&state, &self.process.adopting)
            && by.verb == Verb::Release
            && self.context.machine.grant().is_some()
        {
            return match self.context.machine.phase() {
                Phase::Running => self.released(),
                Phase::Asking => WITHDRAWN,
                // It is being ended, or on its way out already.
                _ => Event::Tick,
            };
        }
        let context = &mut self.context;
        match (&state, &self.following.claim) {
            (ClaimState::Held(grant), Some(claim)) if *context.machine.phase() == Phase::Waiting => {
                // What is told of a hold that counts is told when the machine asks.
                self.renewal.keep(context, claim, grant.counts_from);
                if let Some(lease) = &self.renewal.lease {
                    let now = context.now();
                    context.machine.on(Event::Renewed(lease.window()), now);
                }
            }
            (ClaimState::Waiting { ahead, holder }, _) => {
                context.notice(Notice::Waiting { ahead: *ahead, holder: holder.as_deref() });
                self.replacement.ask_now_if_wanted(context);
                self.rehearse();
            }
            _ => {}
        }
        Event::State(state)
    }

    /// A claim whose state cannot be read is asked again; only renewals decide about its life. One that will never
    /// be held, because a further lock of it was refused when its turn came, is refused. So is one that has no lease and
    /// fails for good while it waits: nothing else would end its wait.
    pub(super) fn state_failed(&mut self, error: Error) -> Option<Event> {
        let leased = self.context.job.backend.capabilities().leased;
        let refused = matches!(error.kind, ErrorKind::Mismatch | ErrorKind::Deadlock)
            || (!leased && !error.is_transient());
        if refused && self.context.machine.held_at().is_none() {
            return Some(Event::Refused(error));
        }
        self.tell_doubt(&error);
        self.following.retry_at = self.context.now() + RETRY;
        None
    }

    pub(super) fn renewed(&mut self, answer: (Moment, Result<Moment>)) -> Option<Event> {
        let lease = self.renewal.lease.as_mut()?;
        let news = lease.conclude(answer);
        if self.context.machine.held_at().is_some() {
            self.context.keeper.guard_until(lease.window().guard_at);
        }
        match news {
            News::Renewed(window) => {
                self.health.answered();
                self.replacement.look_again_who_holds(&self.context);
                Some(Event::Renewed(window))
            }
            News::Doubtful(error) => {
                self.tell_doubt(&error);
                None
            }
        }
    }

    /// The service does not answer; that matters to a command that runs.
    pub(super) fn tell_doubt(&mut self, error: &Error) {
        let until = self.renewal.terminate_at().filter(|_| self.process.has_begun());
        self.health.tell_doubt(&mut self.context, error, until);
    }
}
