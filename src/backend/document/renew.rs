//! Renewing a claim by its id: a lease that no process keeps.
//!
//! No clock ends such a claim. It ends when another client takes it for dead and removes it, or when the store drops
//! the queue. Until then the lock is taken, and the claim can be renewed. Both the renewal and the removal are one
//! replacement of the document, so one of the two is refused.

use super::change::Edit;
use super::client::Queues;
use super::queue::Document;
use crate::lock::{ClaimId, LockName, Moment};
use crate::net::fault::FaultResult;
use crate::net::request::Patience;

/// Increments the counter of the claim `id` if it holds `name`. Returns whether it does.
pub(super) async fn renew(
    queues: &Queues,
    name: &LockName,
    id: ClaimId,
    deadline: Moment,
) -> FaultResult<bool> {
    let raise = |document: &mut Document| {
        let holds = document.find(id).is_some_and(|place| place.held.is_some());
        if holds && document.renew(id) { Edit::Write(true) } else { Edit::Keep(false) }
    };
    let changed = queues.change(name, None, Patience::Once, deadline, raise).await?;
    Ok(changed.said == Some(true))
}
