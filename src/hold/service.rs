//! What is told of the service itself: silence, doubt and risks.

use std::time::Duration;

use super::driver::Driver;
use super::event::Event;
use super::job::Notice;
use crate::backend::{Examination, Weight};
use crate::lock::{Error, ErrorKind, Moment, Result};

/// How long a service may be silent before people are told: not from the start of dlock, but of this process, since one that takes
/// the place of a stopped one has just begun to ask.
pub(super) const SILENCE: Duration = Duration::from_secs(2);
/// How long a command runs before its hold is made safer: nothing of it may slow down a short one.
const SETTLE_AFTER: Duration = Duration::from_millis(250);
/// How long after that the service is looked at.
const LOOK_AFTER: Duration = Duration::from_millis(750);
/// How long a look at the service may take.
const EXAMINATION: Duration = Duration::from_secs(5);
/// Between two attempts to read how a claim stands.
const STATE_RETRY: Duration = Duration::from_millis(250);

impl Driver<'_> {
    pub(super) fn tell_silence(&mut self) {
        self.tell_silence_at = Moment::NEVER;
        self.audience.notice(Notice::NotReached(self.machine.last_error.as_ref()));
    }

    /// A shorter lease than was asked for ends a command sooner when the service is silent.
    pub(super) fn tell_ttl(&mut self, granted: Duration) {
        let asked = self.job.plan.ttl;
        if granted < asked {
            self.audience.notice(Notice::ShorterTtl { asked, granted });
        }
    }

    /// The claim will be told that it is held for longer, and the service looked at after that.
    pub(super) fn examine_later(&mut self) {
        self.examine_at = self.clock.now() + SETTLE_AFTER;
    }

    /// What cannot be looked at is told by the renewals, if it matters.
    pub(super) fn examined(&mut self, found: Result<Examination>) {
        let risks = found.map(|examination| examination.risks).unwrap_or_default();
        for risk in risks.iter().filter(|risk| risk.weight == Weight::Warning) {
            self.audience.notice(Notice::Risk(risk));
        }
    }

    pub(super) fn examine(&mut self, now: Moment) {
        self.examine_at = Moment::NEVER;
        if !std::mem::replace(&mut self.settled, true) {
            if let Some(claim) = &self.claim {
                claim.settle();
            }
            // Only if that may tell something that matters.
            if self.job.backend.capabilities().look_while_running && self.audience.tells_risks() {
                self.examine_at = now + LOOK_AFTER;
            }
            return;
        }
        let (backend, deadline) = (self.job.backend.clone(), now + EXAMINATION);
        self.examining = Some(Box::pin(async move { backend.examine(deadline).await }));
    }

    /// A claim whose state cannot be read is asked again; only renewals decide about its life. One that will never
    /// be held, because a further lock of it was refused when its turn came, is refused. So is one that has no lease and
    /// fails for good while it waits: nothing else would end its wait.
    pub(super) fn state_failed(&mut self, error: Error) -> Option<Event> {
        let leased = self.job.backend.capabilities().leased;
        let refused = matches!(error.kind, ErrorKind::Mismatch | ErrorKind::Deadlock)
            || (!leased && !error.is_transient());
        if refused && self.machine.held_at().is_none() {
            return Some(Event::Refused(error));
        }
        self.tell_doubt(&error);
        self.retry_state_at = self.clock.now() + STATE_RETRY;
        None
    }

    pub(super) fn tell_doubt(&mut self, error: &Error) {
        if !std::mem::replace(&mut self.doubtful, true) {
            let running = self.lease.as_ref().filter(|_| self.command.is_some());
            let until = running.map(|lease| lease.window().terminate_at).filter(|until| !until.is_never());
            let left = until.map(|until| until.since(self.clock.now()));
            self.audience.notice(Notice::Doubtful(error, left));
        }
    }
}
