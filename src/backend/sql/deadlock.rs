//! What the search for a wait that would never end reads here: all queues in one statement, so as they were at one moment.

use std::time::SystemTime;

use super::inspect::{self, QueueEntry};
use super::service::Service;
use crate::backend::deadlock::{self, Queued};
use crate::lock::deadlock::Member;
use crate::lock::{ClaimId, LockName, Moment, Request};
use crate::net::fault::FaultResult;

/// The sentence about the cycle of waits that `request`, which waits, closes.
pub(super) async fn search(
    service: &Service,
    request: &Request,
    deadline: Moment,
) -> FaultResult<Option<String>> {
    let queues = inspect::all(service, deadline).await?;
    let queues = queues.iter().map(|(name, queue)| {
        let members = queue.iter().filter_map(|found| queued(found, name));
        (name.clone(), members.collect())
    });
    Ok(deadlock::cycle(&queues.collect(), request.id))
}

/// An entry of the queue of `name`. One of which nothing more can be read waits there and runs inside nobody, as far as is
/// known; one whose claim cannot be told either is left out, so that no wait is taken for one without end for its sake.
fn queued(found: &QueueEntry, name: &LockName) -> Option<Queued<(Option<SystemTime>, ClaimId)>> {
    let id = found.id?;
    let place = (found.since, id);
    let Some(record) = &found.record else {
        let member = Member { id, mode: found.mode(), owner: format!("claim {id}"), ancestors: Vec::new() };
        return Some(Queued { id, place, names: vec![name.clone()], member: Some(member) });
    };
    Some(Queued::of(record, id, place, name))
}
