//! What the search for a wait that would never end reads here: all queues in one statement, so as they were at one moment.

use super::inspect;
use super::service::Service;
use crate::backend::deadlock::{self, Queued};
use crate::backend::fault::FaultResult;
use crate::lock::{Moment, Request};

/// The sentence about the cycle of waits that `request`, which waits, closes.
pub(super) async fn search(
    service: &Service,
    request: &Request,
    deadline: Moment,
) -> FaultResult<Option<String>> {
    let queues = inspect::all(service, deadline).await?;
    let queues = queues.iter().map(|(name, queue)| {
        let members =
            queue.iter().map(|found| Queued::of(&found.record, found.id, (found.since, found.id), name));
        (name.clone(), members.collect())
    });
    Ok(deadlock::cycle(&queues.collect(), request.id))
}
