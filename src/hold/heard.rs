//! What the driver hears, as the machine's events.

use std::time::Duration;

use super::adopting::{AdoptingNews, WITHDRAWN};
use super::driver::Driver;
use super::entry::Attempted;
use super::event::{Event, Phase};
use super::health::tell_ttl;
use super::job::Notice;
use super::nested::Entered;
use crate::lease::RenewalResult;
use crate::lock::{ClaimId, ClaimState, Entry, Error, ErrorKind, Moment, Result, Verb};
use crate::net::rank::Rank;
use crate::supervise::ancestry;
use crate::supervise::caller::{FromCaller, Heard};

/// Between two attempts to read how a claim stands.
const RETRY: Duration = Duration::from_millis(250);

impl Driver<'_> {
    pub(super) fn entered(&mut self, result: Result<Attempted>) -> Event {
        if result.is_ok() {
            self.health.was_reached();
        }
        match result {
            Ok(Attempted::Unneeded(ago)) => Event::Unneeded(ago),
            Ok(Attempted::Entered(Entered { claim, own, under })) => {
                let context = &mut self.context;
                if let Some(reason) = self.entry.lost.take() {
                    context.notice(Notice::EnteredAgain(&reason));
                }
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
            Err(error) => {
                // Of a service that never answered, silence is told.
                if self.entry.lost.is_some() && error.is_transient() {
                    self.tell_doubt(&error);
                }
                Event::Refused(error)
            }
        }
    }

    pub(super) fn state(&mut self, state: ClaimState) -> Event {
        self.health.answered();
        (self.following.seen, self.following.refused_since) = (Some(state.clone()), None);
        if let (ClaimState::AskedToLeave { by }, Some(_)) = (&state, &self.process.adopting)
            && by.verb == Verb::Release
            && self.context.machine.grant().is_some()
        {
            return match self.context.machine.phase() {
                // One that is being ended takes it, or not.
                Phase::Running | Phase::Stopping(_) => self.released(),
                Phase::Asking => WITHDRAWN,
                // It is on its way out already.
                _ => Event::Tick,
            };
        }
        if let ClaimState::Waiting { holder: Some(holder), .. } = &state
            && self.is_own_ancestor(holder)
        {
            return Event::Refused(self.refusal_under(holder));
        }
        let context = &mut self.context;
        let job = context.job;
        job.backend.connects_as(match &state {
            ClaimState::Waiting { ahead, .. } => Rank::Waits { ahead: ahead.unwrap_or(1), ttl: job.plan.ttl },
            _ => Rank::Holds,
        });
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
                self.replacing.waits(context);
            }
            _ => {}
        }
        Event::State(state)
    }

    /// Whether `holder` is a process that this one descends from: it waits for this one, or ends it when it releases the lock.
    fn is_own_ancestor(&self, holder: &Entry) -> bool {
        let own = &self.context.job.holder;
        let is_here = holder.host.as_ref() == Some(&own.host) && holder.verb != Verb::Detach;
        // A claim of this run itself from before an outage ends with its lease. That of an acquire is a shell's, which may have
        // executed this run.
        let is_own = holder.pid == Some(own.pid) && holder.verb == own.verb;
        let process = holder.pid.zip(holder.born).filter(|_| is_here && !is_own);
        process.is_some_and(|(pid, born)| ancestry::descends_from(pid, born))
    }

    /// Why waiting for `holder`, an ancestor, is refused.
    fn refusal_under(&self, holder: &Entry) -> Error {
        let reason = format!(
            "this process was started under the holder, {}, without DLOCK_HELD; pass it on \
             (sudo --preserve-env=DLOCK_HELD), so that it shares the lock",
            holder.owner()
        );
        let backend = self.context.job.backend.capabilities().backend;
        let name = self.context.job.names.first();
        Error::new(ErrorKind::Deadlock, reason).during(backend, "join the queue", name)
    }

    /// A claim whose state cannot be read is asked again; only renewals decide about its life. One that waits and will never hold
    /// is refused: because a lock of it was refused when its turn came, or because it has no lease and fails for good, or because
    /// it was refused for as long as its lease lasts.
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

    /// Whether the claim has not come to hold yet.
    fn waits(&self) -> bool {
        self.context.machine.held_at().is_none()
    }

    fn is_leased(&self) -> bool {
        self.context.job.backend.capabilities().leased
    }

    pub(super) fn renewed(&mut self, answer: (Moment, Result<Moment>)) -> Option<Event> {
        let waits = self.waits();
        let lease = self.renewal.lease.as_mut()?;
        let news = lease.conclude(answer, waits);
        if self.renewal.is_last {
            // What has become of it is found by who renews it next.
            return Some(Event::LeftAlone);
        }
        if !waits {
            self.context.keeper.shared().set_guard_until(lease.window().guard_at);
        }
        let ends_at = lease.ends_at();
        match news {
            RenewalResult::Renewed(window) => {
                self.health.renewed();
                if self.following.refused_since.is_some() {
                    self.following.retry_at = self.following.retry_at.min(self.context.now());
                }
                Some(Event::Renewed(window))
            }
            // Its place is lost, and this service does not let it ask for another.
            RenewalResult::Doubtful(error)
                if waits && !error.is_transient() && self.is_leased() && ends_at <= self.context.now() =>
            {
                Some(Event::Refused(error))
            }
            RenewalResult::Doubtful(error) => {
                self.tell_doubt(&error);
                Some(Event::Unseen(error))
            }
        }
    }

    /// Takes what a look at the holders to replace came to.
    pub(super) fn looked(&mut self, looked: Result<Vec<ClaimId>>) {
        if let Err(error) = self.replacing.conclude(&self.context, looked) {
            self.tell_doubt(&error);
        }
    }

    /// The service does not answer.
    pub(super) fn tell_doubt(&mut self, error: &Error) {
        let until = self.doubt_ends();
        self.health.tell_doubt(&mut self.context, error, until);
    }

    /// When a command that runs must end if the service does not answer until then.
    fn doubt_ends(&self) -> Option<Moment> {
        self.renewal.terminate_at().filter(|_| self.process.has_begun())
    }

    /// Takes what was heard of what was adopted.
    pub(super) fn adopting_heard(&mut self, news: AdoptingNews) -> Option<Event> {
        let begun = self.process.has_begun();
        let adopting = self.process.adopting.as_mut()?;
        match news {
            AdoptingNews::ProcessEnded => {
                adopting.process = None;
                // While it runs under the lock, whoever looks after the tree sees it.
                (!begun).then_some(WITHDRAWN)
            }
            AdoptingNews::RestEnded => {
                adopting.rest = None;
                None
            }
            AdoptingNews::Caller(Heard::Said(FromCaller::Take)) => {
                if *self.context.machine.phase() == Phase::Asking {
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
                    return Some(self.released());
                }
                // Whoever may have been told that it has the lock keeps it.
                self.renewal.is_last = self.context.job.is_for_nobody();
                None
            }
        }
    }

    /// The owner gives the lock back; nested runs are waited for.
    pub(super) fn released(&mut self) -> Event {
        self.marks.tell_if_gone(&mut self.context);
        Event::Released
    }
}
