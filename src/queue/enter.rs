//! Joining queues.

use super::decide::{self, Stand};
use super::store::{Answer, Extent, Note, Own, Step, Store};
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
        store.commit(Some(&own), &[], &[removal(request)], deadline).await?;
        return Err(Fault::new(ErrorKind::Mismatch, why));
    }
    if request.supersede && matches!(decide::stand(&answer.queues, &own), Stand::Waits(_)) {
        supersede(store, &own, request, deadline).await?;
        let sent = answer.sent;
        answer = Answer { sent, ..store.read(&own.names, Extent::Needed(&own), deadline).await? };
    }
    Ok((own, answer))
}

/// Removes older waiters with `--supersede`. Each is removed only while entries are present that keep it waiting.
async fn supersede(store: &dyn Store, own: &Own, request: &Request, deadline: Moment) -> FaultResult<()> {
    let queues = store.read(&own.names, Extent::Whole, deadline).await?.queues;
    for older in decide::older(&queues, own) {
        loop {
            let queues = store.read(&older.names, Extent::Whole, deadline).await?.queues;
            if !decide::may_stand(&queues, own) {
                return Ok(());
            }
            let each = queues.iter().map(|queue| Some((queue, decide::of_claim(queue, older.id)?)));
            let Some(found) = each.collect::<Option<Vec<_>>>() else { break };
            let proof = found.iter().map(|(queue, item)| (queue, decide::evidence(queue, item)));
            let Some((queue, keys)) = proof.into_iter().find(|(_, keys)| !keys.is_empty()) else { break };
            let own_key =
                found.iter().find(|(of, _)| of.name == queue.name).map(|(_, item)| item.key.clone());
            let when: Vec<_> = keys.into_iter().chain(own_key).map(|key| (queue.name.clone(), key)).collect();
            if when.len() > store.most_conditions() {
                break;
            }
            let step = Step::Remove {
                id: older.id,
                names: older.names.clone(),
                found: found.iter().map(|(_, item)| (*item).clone()).collect(),
                note: Some(Note::Superseded(request.holder.clone())),
            };
            if store.commit(Some(own), &when, &[step], deadline).await?.0 {
                break;
            }
        }
    }
    Ok(())
}
