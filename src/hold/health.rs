//! Messages about the service itself: silence, doubt and risks.

use std::pin::Pin;
use std::time::Duration;

use super::context::Context;
use super::job::Notice;
use crate::backend::{Examination, Weight};
use crate::lock::{Error, ErrorKind, Moment, Result};

/// How long the service may be silent before dlock prints it. That counts from the start of this keeper, not of dlock:
/// the keeper that follows a suspension has just begun to ask.
const SILENCE: Duration = Duration::from_secs(2);
/// How long a command runs before dlock examines the service: a short command must not become slower.
const LOOK_AFTER: Duration = Duration::from_secs(1);
/// How long the examination may take.
const EXAMINATION: Duration = Duration::from_secs(5);

/// An examination of the service.
type Examining = Pin<Box<dyn Future<Output = Result<Examination>>>>;

/// Which messages about the service are due, and which have been printed.
#[derive(Default)]
pub(super) struct Health {
    /// When to print that the service has not answered.
    pub(super) tell_silence_at: Moment,
    /// When to examine the service.
    examine_at: Moment,
    pub(super) examining: Option<Examining>,
    /// The service has not answered since the last such message.
    pub(super) doubtful: bool,
    /// The kind of error by which the claim could not be followed, as last printed; cleared by news of the claim.
    pub(super) trouble: Option<ErrorKind>,
}

impl Health {
    /// Starts for a service that was first asked at `start`.
    pub(super) fn new(start: Moment) -> Self {
        Self { tell_silence_at: start + SILENCE, ..Self::default() }
    }

    pub(super) fn wake_at(&self) -> Moment {
        self.tell_silence_at.min(self.examine_at)
    }

    pub(super) fn time_has_come(&mut self, then: Moment, context: &mut Context<'_>) {
        if self.tell_silence_at <= then {
            self.tell_silence_at = Moment::NEVER;
            context.progress.notice(Notice::NotReached(context.machine.last_error.as_ref()));
        }
        if self.examine_at <= then {
            self.examine(then, context);
        }
    }

    /// The hold continues: examines the service later.
    pub(super) fn examine_later(&mut self, now: Moment) {
        self.examine_at = now + LOOK_AFTER;
    }

    fn examine(&mut self, now: Moment, context: &Context<'_>) {
        self.examine_at = Moment::NEVER;
        let backend = &context.job.backend;
        // Only where the result can matter, and will be printed.
        if !backend.client().capabilities().look_while_running || !context.progress.tells_risks() {
            return;
        }
        let (backend, deadline) = (backend.clone(), now + EXAMINATION);
        self.examining = Some(Box::pin(async move { backend.examine(deadline).await }));
    }

    /// Prints that the claim cannot be followed. An error of the same kind is printed once until there is news of the claim: its
    /// reason contains times, which differ.
    pub(super) fn tell_trouble(&mut self, context: &mut Context<'_>, error: &Error, until: Option<Moment>) {
        if !self.doubtful && self.trouble != Some(error.kind) {
            self.trouble = Some(error.kind);
            self.tell_doubt(context, error, until);
        }
    }

    /// Prints once that the service does not answer, until it answers again. `until` is when the command must end for
    /// that.
    pub(super) fn tell_doubt(&mut self, context: &mut Context<'_>, error: &Error, until: Option<Moment>) {
        if !std::mem::replace(&mut self.doubtful, true) {
            let left = until.map(|until| until.since(context.now()));
            let command_ended = context.machine.command.is_some();
            context.progress.notice(Notice::Doubtful { error, left, command_ended });
        }
    }
}

/// Prints the warnings. If the service cannot be examined, renewals show whether that matters.
pub(super) fn tell_risks(context: &mut Context<'_>, found: Result<Examination>) {
    let risks = found.map(|examination| examination.risks).unwrap_or_default();
    for risk in risks.iter().filter(|risk| risk.weight == Weight::Warning) {
        context.progress.notice(Notice::Risk(risk));
    }
}

/// Prints that the lease is shorter than requested: the command ends sooner when the service is silent.
pub(super) fn tell_ttl(context: &mut Context<'_>, granted: Duration) {
    let asked = context.job.plan.ttl;
    if granted < asked {
        context.progress.notice(Notice::ShorterTtl { asked, granted });
    }
}
