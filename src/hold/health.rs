//! What is told of the service itself: silence, doubt and risks.

use std::pin::Pin;
use std::time::Duration;

use super::context::Context;
use super::job::Notice;
use crate::backend::{Claim, Examination, Weight};
use crate::lock::{Error, Moment, Reason, Result};

/// How long a service may be silent before people are told: not from the start of dlock, but of this process, since one that takes
/// the place of a stopped one has just begun to ask.
const SILENCE: Duration = Duration::from_secs(2);
/// How long a command runs before its hold is made safer: nothing of it may slow down a short one.
const SETTLE_AFTER: Duration = Duration::from_millis(250);
/// How long after that the service is looked at.
const LOOK_AFTER: Duration = Duration::from_millis(750);
/// How long a look at the service may take.
const EXAMINATION: Duration = Duration::from_secs(5);

/// A look at the service itself.
type Examining = Pin<Box<dyn Future<Output = Result<Examination>>>>;

/// See the module.
pub(super) struct Health {
    /// When people are told that nobody has answered.
    tell_silence_at: Moment,
    /// When the service is looked at.
    examine_at: Moment,
    settled: bool,
    pub(super) examining: Option<Examining>,
    /// Nobody has answered since this was told.
    doubtful: bool,
    /// Why the claim could not be followed, as was told last, if there has been no news of it since.
    trouble: Option<Reason>,
}

impl Health {
    /// That of a service that was first asked at `start`.
    pub(super) fn new(start: Moment) -> Self {
        Self {
            tell_silence_at: start + SILENCE,
            examine_at: Moment::NEVER,
            settled: false,
            examining: None,
            doubtful: false,
            trouble: None,
        }
    }

    /// When something is due.
    pub(super) fn wake_at(&self) -> Moment {
        self.tell_silence_at.min(self.examine_at)
    }

    /// Does what was due at `then`.
    pub(super) fn time_has_come(
        &mut self,
        then: Moment,
        context: &mut Context<'_>,
        claim: Option<&dyn Claim>,
    ) {
        if self.tell_silence_at <= then {
            self.tell_silence_at = Moment::NEVER;
            context.progress.notice(Notice::NotReached(context.machine.last_error.as_ref()));
        }
        if self.examine_at <= then {
            self.examine(then, context, claim);
        }
    }

    /// It has told how the claim stands.
    pub(super) fn answered(&mut self) {
        (self.doubtful, self.trouble) = (false, None);
    }

    /// It has confirmed a renewal, which says nothing of what keeps the claim from being followed.
    pub(super) fn renewed(&mut self) {
        self.doubtful = false;
    }

    /// It has answered for the first time.
    pub(super) fn was_reached(&mut self) {
        self.tell_silence_at = Moment::NEVER;
    }

    /// The claim will be told that it is held for longer, and the service looked at after that.
    pub(super) fn examine_later(&mut self, now: Moment) {
        self.examine_at = now + SETTLE_AFTER;
    }

    fn examine(&mut self, now: Moment, context: &Context<'_>, claim: Option<&dyn Claim>) {
        self.examine_at = Moment::NEVER;
        let backend = &context.job.backend;
        if !std::mem::replace(&mut self.settled, true) {
            if let Some(claim) = claim {
                claim.settle();
            }
            // Only if that may tell something that matters.
            if backend.capabilities().look_while_running && context.progress.tells_risks() {
                self.examine_at = now + LOOK_AFTER;
            }
            return;
        }
        let (backend, deadline) = (backend.clone(), now + EXAMINATION);
        self.examining = Some(Box::pin(async move { backend.examine(deadline).await }));
    }

    /// Tells that the claim cannot be followed; the same reason once until there is news of the claim.
    pub(super) fn tell_trouble(&mut self, context: &mut Context<'_>, error: &Error, until: Option<Moment>) {
        if !self.doubtful && self.trouble.as_ref() != Some(&error.reason) {
            self.trouble = Some(error.reason.clone());
            self.tell_doubt(context, error, until);
        }
    }

    /// Tells that it does not answer, once until it does. `until` is when the command must end for that.
    pub(super) fn tell_doubt(&mut self, context: &mut Context<'_>, error: &Error, until: Option<Moment>) {
        if !std::mem::replace(&mut self.doubtful, true) {
            let left = until.map(|until| until.since(context.now()));
            let command_ended = context.machine.command_has_ended();
            context.notice(Notice::Doubtful { error, left, command_ended });
        }
    }
}

/// What cannot be looked at is told by the renewals, if it matters.
pub(super) fn tell_risks(context: &mut Context<'_>, found: Result<Examination>) {
    let risks = found.map(|examination| examination.risks).unwrap_or_default();
    for risk in risks.iter().filter(|risk| risk.weight == Weight::Warning) {
        context.notice(Notice::Risk(risk));
    }
}

/// A shorter lease than was asked for ends a command sooner when the service is silent.
pub(super) fn tell_ttl(context: &mut Context<'_>, granted: Duration) {
    let asked = context.job.plan.ttl;
    if granted < asked {
        context.notice(Notice::ShorterTtl { asked, granted });
    }
}
