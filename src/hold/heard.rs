//! Turns the answers and messages that the driver receives into the machine's events.

use std::time::Duration;

use super::adopting::{AdoptingNews, WITHDRAWN};
use super::driver::Driver;
use super::entry::Attempted;
use super::event::{Event, Phase};
use super::health::tell_ttl;
use super::job::Notice;
use super::nested::Entered;
use crate::lock::{ClaimId, ClaimState, Entry, Error, ErrorKind, Mode, Moment, Result, Verb};
use crate::net::rank::Rank;
use crate::supervise::ancestry;
use crate::supervise::caller::Heard;

/// The time between two attempts to read the claim's state.
const RETRY: Duration = Duration::from_millis(250);

impl Driver<'_> {
    pub(super) fn entered(&mut self, result: Result<Attempted>) -> Event {
        if result.is_ok() {
            self.health.tell_silence_at = Moment::NEVER;
        }
        match result {
            Ok(Attempted::Unneeded(ago)) => Event::Unneeded(ago),
            Ok(Attempted::Entered(Entered { claim, under })) => {
                let context = &mut self.context;
                if let Some(reason) = self.entry.lost.take() {
                    context.progress.notice(Notice::EnteredAgain(&reason));
                }
                if let Some(claim) = under {
                    context.progress.notice(Notice::Nested(claim));
                }
                self.entry.under = under;
                // The kernel keeps a waiting claim without a ttl alive; no wake-ups for those.
                if let Some(granted) = claim.ttl() {
                    tell_ttl(context, granted);
                    self.renewal.keep(context, &claim, self.entry.since);
                }
                self.following.claim = Some(claim);
                Event::Entered
            }
            Err(error) => {
                // If the service has never answered, the message about its silence comes instead.
                if self.entry.lost.is_some() && error.is_transient() {
                    self.tell_doubt(&error);
                }
                Event::Refused(error)
            }
        }
    }

    pub(super) fn state(&mut self, state: ClaimState) -> Event {
        (self.health.doubtful, self.health.trouble) = (false, None);
        (self.following.seen, self.following.refused_since) = (Some(state.clone()), None);
        if let (ClaimState::AskedToLeave { by }, Some(_)) = (&state, &self.process.adopting)
            && by.verb == Verb::Release
            && self.context.machine.grant().is_some()
        {
            return match self.context.machine.phase {
                // If dlock is stopping the process, the machine decides whether the release still counts.
                Phase::Running | Phase::Stopping(_) => Event::Released,
                Phase::Asking => WITHDRAWN,
                // The claim is on its way out already.
                _ => Event::Tick,
            };
        }
        if let ClaimState::Waiting { holder: Some(holder), .. } = &state
            && self.is_unknown_ancestor(holder)
        {
            return Event::Refused(self.refusal_under(holder));
        }
        let context = &mut self.context;
        let job = context.job;
        job.backend.client().connects_as(match &state {
            ClaimState::Waiting { ahead, .. } => Rank::Waits { ahead: ahead.unwrap_or(0), ttl: job.plan.ttl },
            _ => Rank::Holds,
        });
        match (&state, &self.following.claim) {
            (ClaimState::Held(grant), Some(claim)) if context.machine.phase == Phase::Waiting => {
                // The window goes to the machine first: it decides by it whether the lock may count as held.
                self.renewal.keep(context, claim, grant.counts_from);
                if let Some(lease) = &self.renewal.lease {
                    let now = context.now();
                    context.machine.on(Event::Renewed(lease.window()), now);
                }
            }
            (ClaimState::Waiting { ahead, holder }, _) => {
                context.progress.notice(Notice::Waiting { ahead: *ahead, holder: holder.as_deref() });
                self.replacing.waits(context);
            }
            _ => {}
        }
        Event::State(state)
    }

    /// Returns whether `holder` is an ancestor of this process that `DLOCK_HELD` does not name. Such a holder waits for this
    /// process, or kills it on release. Behind slots others may leave before it.
    fn is_unknown_ancestor(&self, holder: &Entry) -> bool {
        let (job, request) = (self.context.job, &self.entry.request);
        let is_here = holder.host.as_ref() == Some(&job.holder.host) && holder.verb != Verb::Detach;
        // A claim of this run from before an outage ends with its lease.
        let is_known = |claim: ClaimId| {
            claim.is_of_one_run(request.id)
                || request.ancestors.iter().any(|ancestor| ancestor.claim == claim)
        };
        let is_meant = is_here && !matches!(job.mode, Mode::Slots(_)) && !holder.claim.is_some_and(is_known);
        let process = holder.pid.zip(holder.born).filter(|_| is_meant);
        process.is_some_and(|(pid, born)| ancestry::descends_from(pid, born))
    }

    /// Returns why dlock refuses to wait for `holder`, an ancestor.
    fn refusal_under(&self, holder: &Entry) -> Error {
        let reason = format!(
            "this process was started under the holder, {}, without DLOCK_HELD; pass it on \
             (sudo --preserve-env=DLOCK_HELD), so that it shares the lock",
            holder.owner()
        );
        let backend = self.context.job.backend.client().capabilities().backend;
        let name = self.context.job.names.first();
        Error::new(ErrorKind::Deadlock, reason).during(backend, "join the queue", name)
    }

    /// Handles a failure to read the claim's state: asks again, since only renewals decide whether the claim lives. A
    /// waiting claim that will never hold is refused instead. That is so in three cases:
    /// - The service refused one of its locks when its turn came.
    /// - The claim has no lease, and the error is not transient.
    /// - The service has refused for as long as the lease lasts.
    pub(super) fn state_failed(&mut self, error: Error) -> Event {
        let now = self.context.now();
        let mut pause = RETRY;
        let mut refused = error.is_final;
        if error.is_transient() {
            self.following.refused_since = None;
        } else if let Some(lease) = self.renewal.lease.as_ref().filter(|_| self.is_leased()) {
            let since = *self.following.refused_since.get_or_insert(now);
            refused |= now.since(since) >= lease.ttl();
            pause = lease.pause_after_refusal();
        } else {
            refused = true;
        }
        if refused && self.waits() {
            return Event::Refused(error);
        }
        let until = self.doubt_ends();
        self.health.tell_trouble(&mut self.context, &error, until);
        self.following.retry_at = now + pause;
        Event::Unseen(error)
    }

    /// Returns whether the claim has never held.
    fn waits(&self) -> bool {
        self.context.machine.held_at.is_none()
    }

    fn is_leased(&self) -> bool {
        self.context.job.backend.client().capabilities().leased
    }

    pub(super) fn renewed(&mut self, answer: (Moment, Result<Moment>)) -> Option<Event> {
        let waits = self.waits();
        let lease = self.renewal.lease.as_mut()?;
        let news = lease.conclude(answer, waits);
        if !waits {
            self.context.keeper.shared.set_guard_until(lease.window().guard_at);
        }
        let ends_at = lease.ends_at();
        if std::mem::take(&mut self.renewal.is_wanted) && self.context.machine.phase == Phase::Asking {
            // If this renewal failed, the next `dlock renew` finds out whether it arrived.
            self.ask_caller();
        }
        match news {
            Ok(window) => {
                // That does not clear the reason why the claim cannot be followed.
                self.health.doubtful = false;
                if self.following.refused_since.is_some() {
                    self.following.retry_at = self.following.retry_at.min(self.context.now());
                }
                Some(Event::Renewed(window))
            }
            // The place is lost, and this service does not let the claim queue for another.
            Err(error)
                if waits && !error.is_transient() && self.is_leased() && ends_at <= self.context.now() =>
            {
                Some(Event::Refused(error))
            }
            Err(error) => {
                self.tell_doubt(&error);
                Some(Event::Unseen(error))
            }
        }
    }

    /// Takes the result of a look at the holders to replace.
    pub(super) fn looked(&mut self, looked: Result<Vec<ClaimId>>) {
        if let Err(error) = self.replacing.conclude(&self.context, looked) {
            self.tell_doubt(&error);
        }
    }

    /// Prints that the service does not answer.
    pub(super) fn tell_doubt(&mut self, error: &Error) {
        let until = self.doubt_ends();
        self.health.tell_doubt(&mut self.context, error, until);
    }

    /// Returns when a running command must end if the service does not answer before.
    fn doubt_ends(&self) -> Option<Moment> {
        self.renewal.terminate_at().filter(|_| self.process.has_begun())
    }

    /// Takes a change of the adopted process or the caller.
    pub(super) fn adopting_heard(&mut self, news: AdoptingNews) -> Option<Event> {
        let begun = self.process.has_begun();
        let adopting = self.process.adopting.as_mut()?;
        match news {
            AdoptingNews::ProcessEnded => {
                adopting.process = None;
                // While it runs under the lock, the reaping of its tree notices the end.
                (!begun).then_some(WITHDRAWN)
            }
            AdoptingNews::Caller(Heard::Take) => {
                if self.context.machine.phase == Phase::Asking {
                    self.enter_gate();
                }
                None
            }
            AdoptingNews::Caller(heard) => {
                adopting.caller = None;
                if !begun {
                    return Some(WITHDRAWN);
                }
                if heard == Heard::Gone {
                    return Some(Event::Released);
                }
                // The caller may have printed that it has the lock, so the claim stays. From then on a signal to the
                // keeper, or its death, must not release a lease without a process.
                self.context.job.is_for_nobody().then_some(Event::LeftAlone)
            }
        }
    }
}
