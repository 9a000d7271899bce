//! `--replace`: a waiter asks the holders that passed it too to leave, as `dlock break` does.
//!
//! On entering, the service itself removes older waiters. The waiter asks holders once its own entry waits: every
//! holder then came earlier.

use std::pin::Pin;
use std::time::Duration;

use super::context::Context;
use crate::backend::{Backend, Evict};
use crate::lock::{ClaimId, Moment, Request, Result};

/// A look at the queues. It returns the holders that have been asked to leave so far.
type Looking = Pin<Box<dyn Future<Output = Result<Vec<ClaimId>>>>>;

/// The time between two looks after a failure.
const RETRY: Duration = Duration::from_millis(500);

/// Which holders were asked, and when to look at the queues next.
#[derive(Default)]
pub(super) struct Replacing {
    at: Moment,
    pub(super) looking: Option<Looking>,
    asked: Vec<ClaimId>,
}

impl Replacing {
    /// The claim waits, perhaps for another holder than before: looks at the queues now.
    pub(super) fn waits(&mut self, context: &Context<'_>) {
        if context.job.replace {
            self.at = context.now();
        }
    }

    /// Begins a look if one is due, and returns when the next one is due. While one is under way that is never: a
    /// moment in the past would wake this process again and again.
    pub(super) fn begin_if_due(&mut self, context: &Context<'_>, request: &Request) -> Moment {
        if self.looking.is_some() {
            return Moment::NEVER;
        }
        if self.at <= context.now() {
            self.at = Moment::NEVER;
            let deadline = context.now() + (context.job.plan.ttl / 3).max(Duration::from_secs(1));
            let (backend, request) = (context.job.backend.clone(), request.clone());
            let asked = self.asked.clone();
            self.looking =
                Some(Box::pin(async move { ask_holders(&*backend, &request, asked, deadline).await }));
        }
        self.at
    }

    /// Takes the result of a look. After a failure the next look comes after a pause.
    pub(super) fn conclude(&mut self, context: &Context<'_>, looked: Result<Vec<ClaimId>>) -> Result<()> {
        self.asked = looked.inspect_err(|_| self.at = context.now() + RETRY)?;
        Ok(())
    }

    pub(super) fn stop(&mut self) {
        (self.looking, self.at) = (None, Moment::NEVER);
    }
}

/// Asks the holders ahead of the waiting claim of `request` to leave, if they passed `--replace` and are not among
/// `asked`. Returns all that were asked so far.
async fn ask_holders(
    backend: &dyn Backend,
    request: &Request,
    mut asked: Vec<ClaimId>,
    deadline: Moment,
) -> Result<Vec<ClaimId>> {
    for name in &request.names {
        let queue = backend.inspect(name, deadline).await?;
        if !queue.waiters.iter().any(|waiter| waiter.claim == Some(request.id)) {
            continue;
        }
        for holder in queue.holders.iter().filter(|holder| holder.replace).filter_map(|holder| holder.claim) {
            if !asked.contains(&holder) {
                backend.evict(name, holder, Evict::Ask, &request.holder, deadline).await?;
                asked.push(holder);
            }
        }
    }
    Ok(asked)
}
