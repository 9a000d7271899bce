//! A lease of nobody's process that this keeper holds: it ends one ttl after its last renewal, which the service knows of.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use super::context::Context;
use super::event::{Event, Phase};
use crate::backend::Claim;
use crate::lock::{Moment, Result};

/// An attempt to let the lease end.
type Attempt = Pin<Box<dyn Future<Output = Result<Option<Moment>>>>>;

/// Between two attempts at least, where one could not tell.
const AGAIN: Duration = Duration::from_millis(200);

/// See the module.
pub(super) struct Expiry {
    /// Before this it does not end.
    at: Moment,
    /// One that is on its way.
    pub(super) under_way: Option<Attempt>,
}

impl Expiry {
    /// That of a hold that does not end so.
    pub(super) fn never() -> Self {
        Self { at: Moment::NEVER, under_way: None }
    }

    /// The lease counts from `now`.
    pub(super) fn begin(&mut self, now: Moment) {
        self.at = now;
    }

    /// Renews `claim` once more, whose lease the service lets end: after a wait hardly half of one may be left. Then, whatever
    /// that comes to, it is left alone.
    pub(super) fn renew_last(&mut self, context: &Context<'_>, claim: &Arc<dyn Claim>) {
        let (claim, deadline) = (Arc::clone(claim), context.now() + context.job.plan.ttl / 6);
        self.under_way = Some(Box::pin(async move {
            // What has become of it is found by who renews it next.
            let _renewed = claim.renew(deadline).await;
            Ok(None)
        }));
    }

    /// Begins an attempt if it is time, and says when the next one is due.
    pub(super) fn begin_if_due(&mut self, context: &Context<'_>, claim: Option<&Arc<dyn Claim>>) -> Moment {
        let (true, None, Some(claim)) = (*context.machine.phase() == Phase::Running, &self.under_way, claim)
        else {
            return Moment::NEVER;
        };
        let now = context.now();
        if self.at > now {
            return self.at;
        }
        let (claim, ttl) = (Arc::clone(claim), context.job.plan.ttl);
        self.at = Moment::NEVER;
        self.under_way = Some(Box::pin(async move { claim.expire_if_due(ttl, now + ttl / 6).await }));
        Moment::NEVER
    }

    /// Takes what came of one.
    pub(super) fn conclude(&mut self, now: Moment, answer: &Result<Option<Moment>>) -> Option<Event> {
        match answer {
            Ok(None) => return Some(Event::LeftAlone),
            Ok(Some(until)) => self.at = *until,
            // Not known is not over: it may have been renewed.
            Err(_) => self.at = now + AGAIN,
        }
        None
    }
}
