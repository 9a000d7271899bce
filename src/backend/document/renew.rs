//! Renewing a claim by its id: a lease that no process looks after.
//!
//! No clock says when such a claim has ended. It has once somebody has taken it for dead and taken it out of the queue, or
//! the store has dropped the queue. Until then nobody else can have the lock, and the claim can be renewed: raising its
//! counter is one replacement of the document, and so is taking it out, so one of the two is refused.

use super::change::Edit;
use super::client::Queues;
use super::queue::Document;
use crate::lock::{ClaimId, LockName, Moment};
use crate::net::fault::FaultResult;
use crate::net::request::Patience;

/// Raises the counter of the claim `id` if it holds `name`; whether it does.
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
