//! Joining the queues.

use super::decide::{self, Stand};
use super::store::{Answer, Extent, Own, Step, Store};
use super::supersede::supersede;
use crate::lock::{ErrorKind, Moment, Request};
use crate::net::fault::{Fault, FaultResult};

/// Returns the step that removes a claim by its own client.
pub(super) fn removal(request: &Request) -> Step {
    let (id, names) = (request.id, request.names.clone());
    Step::Remove { id, names, found: Vec::new(), note: None }
}

/// Joins the queues, supersedes older waiters, and leaves again if another kind of claim is ahead.
pub(super) async fn append(
    store: &dyn Store,
    request: &Request,
    deadline: Moment,
) -> FaultResult<(Own, Answer)> {
    let (own, mut answer) = store.append(request, deadline).await?;
    if let Some(why) = decide::mismatch(&answer.queues, &own) {
        // Final even if the removal fails. Entering again could succeed, and a late removal would then end a hold.
        let _ = store.commit(Some(&own), &[], &[removal(request)], deadline).await;
        return Err(Fault::new(ErrorKind::Mismatch, why));
    }
    if request.supersede && matches!(decide::stand(&answer.queues, &own), Stand::Waits(_)) {
        supersede(store, &own, request, deadline).await?;
        let sent = answer.sent;
        answer = Answer { sent, ..store.read(&own.names, Extent::Needed(&own), deadline).await? };
    }
    Ok((own, answer))
}
