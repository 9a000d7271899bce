//! Entering a queue, and refusing waits that would never end.

use std::sync::Arc;

use super::arrive::{self, Own};
use super::claim::DocumentClaim;
use super::client::Queues;
use super::deadlock;
use crate::backend::deadlock::refuse_cycle;
use crate::lock::{Moment, Request};
use crate::net::fault::FaultResult;

/// Enters the queue of one lock. Whoever cannot, behind a foreign holder, tries again with each look.
pub(super) async fn enter(
    queues: &Queues,
    request: &Request,
    deadline: Moment,
) -> FaultResult<Arc<DocumentClaim>> {
    let own = Own::new(queues, request)?;
    let begun = queues.clock.now();
    let entered = arrive::attempt(queues, &own, deadline).await?;
    let claim = DocumentClaim::new(queues, own, entered, begun);
    if let Err(fault) = claim.check_deadlock(deadline).await {
        if !fault.kind.is_transient() {
            claim.send_leave(false, deadline).await?;
        }
        return Err(fault);
    }
    Ok(claim)
}

impl DocumentClaim {
    /// Refuses a wait that would never end. Whoever waits inside others is listed first, after it has entered, so that of
    /// two that close a cycle together the later in the list sees the other.
    async fn check_deadlock(&self, deadline: Moment) -> FaultResult<()> {
        let own = self.own();
        if own.request.ancestors.is_empty() || !self.waits() {
            return Ok(());
        }
        deadlock::announce(self.queues(), own, deadline).await?;
        deadlock::search(self.queues(), &own.request, deadline).await.and_then(refuse_cycle)
    }
}
