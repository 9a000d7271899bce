//! Renewing a claim by its id: a lease that no process looks after.
//!
//! No clock says when such a claim has ended. It has once somebody has taken it for dead and taken it out of the queue, or
//! the store has dropped the queue. Until then nobody else can have the lock, and the claim can be renewed: raising its
//! counter is one replacement of the document, and so is taking it out, so one of the two is refused.

use super::change::{Patience, Step};
use super::client::Queues;
use super::queue::{Document, QueueEntry};
use crate::backend::fault::FaultResult;
use crate::lock::{ClaimId, LockName, Moment};

/// Raises the counter of the claim `id`, which holds `name`, on all of its names; whether it holds them all. None is raised
/// if one of them is found lost before the first.
pub(super) async fn renew(
    queues: &Queues,
    name: &LockName,
    id: ClaimId,
    deadline: Moment,
) -> FaultResult<bool> {
    let Some(names) = held(queues, name, id, deadline, |place| place.about.names(name)).await? else {
        return Ok(false);
    };
    for other in names.iter().filter(|other| *other != name) {
        if held(queues, other, id, deadline, |_| ()).await?.is_none() {
            return Ok(false);
        }
    }
    for name in &names {
        let raise = |document: &mut Document| {
            let holds = document.find(id).is_some_and(|place| place.held.is_some());
            if holds && document.renew(id) { Step::Write(true) } else { Step::Keep(false) }
        };
        let changed = queues.change(name, None, Patience::Once, deadline, raise).await?;
        if changed.said != Some(true) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// What `learn` learns of the claim `id` if it holds `name`.
async fn held<T: Send>(
    queues: &Queues,
    name: &LockName,
    id: ClaimId,
    deadline: Moment,
    learn: impl Fn(&QueueEntry) -> T + Send + Sync,
) -> FaultResult<Option<T>> {
    let look = |document: &mut Document| {
        let place = document.find(id).filter(|place| place.held.is_some());
        Step::Keep(place.map(&learn))
    };
    let looked = queues.change(name, None, Patience::Once, deadline, look).await?;
    Ok(looked.said.flatten())
}
