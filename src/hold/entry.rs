//! The request for a claim, and entering the queue with it.

use std::pin::Pin;
use std::time::Duration;

use super::context::Context;
use super::environment::{self, HeldRecord};
use super::job::Job;
use super::nested::{self, Entered};
use crate::backend::Backend;
use crate::lock::{ClaimId, Grant, LockName, LossReason, Moment, Request, Result};
use crate::net::rank::Rank;
use crate::supervise::mark::MarkBoard;

/// A check whether a run that succeeded makes this one needless.
type Looking = Pin<Box<dyn Future<Output = Option<Duration>>>>;

/// The result of an attempt to enter.
pub(super) enum Attempted {
    /// The claim is in the queue.
    Entered(Entered),
    /// A run that acquired so long ago succeeded; dlock entered nothing.
    Unneeded(Duration),
}

type Entering = Pin<Box<dyn Future<Output = Result<Attempted>>>>;

/// The request, and the attempt to enter the queues with it.
pub(super) struct Joining {
    outer: Vec<HeldRecord>,
    pub(super) request: Request,
    pub(super) entering: Option<Entering>,
    /// Why the claim before this one was lost, until this one has entered.
    pub(super) lost: Option<LossReason>,
    pub(super) since: Moment,
    /// The second check of `--once-per`, while the lock is held.
    pub(super) looking: Option<Looking>,
    /// The outer claim that holds the first name, if outer runs hold all of them.
    pub(super) under: Option<ClaimId>,
}

impl Joining {
    /// Builds the request of `job` for a claim with the id `number`; sends nothing.
    pub(super) fn new(job: &Job, number: u128) -> Self {
        let outer = job.adoption.as_ref().map_or_else(environment::held, |adoption| adoption.outer.clone());
        let ancestors = nested::ancestors(&outer, &job.backend.client().identity());
        let request = Request {
            names: job.names.clone(),
            id: ClaimId::from_number(number),
            mode: job.mode,
            ttl: job.plan.ttl,
            holder: job.holder.clone(),
            ancestors,
            supersede: job.plan.supersede,
        };
        Self { outer, request, entering: None, lost: None, since: Moment::NEVER, looking: None, under: None }
    }

    /// Returns the claim that the command runs under.
    pub(super) fn claim(&self) -> ClaimId {
        self.under.unwrap_or(self.request.id)
    }

    pub(super) fn enter(&mut self, context: &Context<'_>) {
        let job = context.job;
        self.since = context.now();
        job.backend.client().connects_as(Rank::Waits { ahead: 0, ttl: job.plan.ttl });
        let (backend, request) = (job.backend.clone(), self.request.clone());
        let outer = if job.no_nest { Vec::new() } else { self.outer.clone() };
        let patience = (job.plan.ttl / 3).max(Duration::from_secs(2));
        let deadline = context.machine.give_up_at().min(self.since + patience);
        let once_per = job.once_per;
        self.entering = Some(Box::pin(async move {
            if let Some(ago) = recent_success(&*backend, &request.names, once_per, deadline).await {
                return Ok(Attempted::Unneeded(ago));
            }
            nested::enter(&backend, &request, &outer, deadline).await.map(Attempted::Entered)
        }));
    }

    /// Begins to enter with a new claim, since the old one was `lost`. The old id may still be on its way out of the
    /// queue.
    pub(super) fn enter_again(&mut self, context: &Context<'_>, lost: LossReason) {
        self.lost = Some(lost);
        self.looking = None;
        self.request.id = ClaimId::from_number(context.keeper.shared.take_number());
        self.enter(context);
    }

    /// Begins the check of `--once-per` again, while the lock is held: whether a run succeeded within `period`.
    pub(super) fn look_again(&mut self, context: &Context<'_>, period: Duration, deadline: Moment) {
        let (backend, names) = (context.job.backend.clone(), context.job.names.clone());
        self.looking =
            Some(Box::pin(async move { recent_success(&*backend, &names, Some(period), deadline).await }));
    }

    /// Returns the variables for a command under `grant`.
    pub(super) fn variables(
        &self,
        job: &Job,
        grant: &Grant,
        board: Option<&MarkBoard>,
    ) -> Vec<(&'static str, String)> {
        // The record for nested runs, unless this run is one.
        let inner = self.under.is_none().then(|| HeldRecord {
            service: job.backend.client().identity(),
            claim: self.request.id.to_string(),
            mode: job.mode.to_string(),
            names: job.names.iter().map(ToString::to_string).collect(),
            tokens: grant.names.iter().map(|g| g.token.get()).collect(),
            slots: grant.names.iter().filter_map(|g| g.slot).collect(),
            // Nested runs do not join a detached lease: no process would stop them when it is lost.
            mark: board.filter(|_| !job.is_for_nobody()).and_then(|b| b.address().ok()),
            process: job.adoption.as_ref().and_then(|adoption| adoption.process),
        });
        environment::variables(&job.names, self.claim(), job.mode, grant, &self.outer, inner.as_ref())
    }

    /// Takes out an entry that an attempt to enter may have left; by now it may even hold the lock. Does nothing if the
    /// service refused the attempt with a reason, or was never reached.
    pub(super) async fn withdraw(&self, context: &Context<'_>, deadline: Moment) -> Result<()> {
        let backend = &context.job.backend;
        if !context.machine.may_have_entered() || !backend.client().has_connected() {
            return Ok(());
        }
        backend.withdraw(&self.request, deadline).await
    }
}

/// Returns the age of the oldest success, if a run that acquired within `once_per` succeeded for every name. If the
/// service cannot tell, the run is not skipped.
async fn recent_success(
    backend: &dyn Backend,
    names: &[LockName],
    once_per: Option<Duration>,
    deadline: Moment,
) -> Option<Duration> {
    let period = once_per?;
    let mut oldest = Duration::ZERO;
    for name in names {
        match backend.last_success(name, deadline).await {
            Ok(Some(age)) if age < period => oldest = oldest.max(age),
            _ => return None,
        }
    }
    Some(oldest)
}
