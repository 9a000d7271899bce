//! Entering a queue, and refusing waits that would never end.

use std::sync::Arc;

use super::arrive::{self, Own};
use super::claim::DocumentClaim;
use super::client::Queues;
use super::deadlock;
use crate::backend::fault::{Fault, FaultResult};
use crate::lock::{ErrorKind, Moment, Request};

/// Enters the queue of one lock. Whoever cannot, behind a foreign holder, tries again with each look.
pub(super) async fn enter(queues: &Queues, own: Own, deadline: Moment) -> FaultResult<Arc<DocumentClaim>> {
    let begun = queues.clock.now();
    let entered = arrive::attempt(queues, &own, deadline).await?;
    let claim = DocumentClaim::new(queues, own, entered, begun);
    claim.check_deadlock(deadline).await?;
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
        let whole = Request { names: own.all.clone(), ..own.request.clone() };
        let Some(cycle) = deadlock::search(self.queues(), &whole, deadline).await? else { return Ok(()) };
        self.send_leave(false, deadline).await?;
        Err(Fault::new(ErrorKind::Deadlock, format!("it would never end: {cycle}")))
    }
}
