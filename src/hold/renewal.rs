//! The lease of the claim, and the renewals that keep it.

use std::sync::Arc;

use super::context::Context;
use crate::backend::Claim;
use crate::lease::{Attempt, LeaseKeeper, LeaseRequest};
use crate::lock::Moment;

/// The lease, and the renewal that is under way.
#[derive(Default)]
pub(super) struct Renewal {
    pub(super) lease: Option<LeaseKeeper>,
    pub(super) under_way: Option<Attempt>,
    /// Whether a renewal is due now: a claim without a process has a whole ttl when its caller is asked to take it.
    pub(super) is_wanted: bool,
}

impl Renewal {
    /// Begins a renewal if one is due. Returns when the next one is due.
    pub(super) fn begin_if_due(&mut self, now: Moment) -> Moment {
        let (Some(lease), None) = (&self.lease, &self.under_way) else { return Moment::NEVER };
        if lease.due > now && !self.is_wanted {
            return lease.due;
        }
        self.under_way = Some(lease.attempt());
        Moment::NEVER
    }

    /// Starts a lease for `claim` that counts from `from`.
    pub(super) fn keep(&mut self, context: &Context<'_>, claim: &Arc<dyn Claim>, from: Moment) {
        let (job, capabilities) = (context.job, context.job.backend.client().capabilities());
        let asked = LeaseRequest {
            ttl: job.plan.ttl,
            grace: job.plan.grace,
            renewals_per_ttl: capabilities.renewals_per_ttl,
            leased: capabilities.leased,
            searched: job.adoption.as_ref().is_some_and(|adoption| adoption.process.is_some()),
        };
        self.lease = Some(LeaseKeeper::new(claim.clone(), context.clock, asked, from));
    }

    /// Returns when SIGTERM is due; `None` without a lease.
    pub(super) fn terminate_at(&self) -> Option<Moment> {
        let at = self.lease.as_ref()?.window().terminate_at;
        (!at.is_never()).then_some(at)
    }
}
