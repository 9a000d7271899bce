//! Superseding older waiters.

use super::decide;
use super::store::{Extent, Note, Own, Step, Store};
use crate::lock::{Moment, Request};
use crate::net::fault::FaultResult;

/// Removes older waiters with `--supersede`. Each is removed only while entries are present that keep it waiting.
pub(super) async fn supersede(
    store: &dyn Store,
    own: &Own,
    request: &Request,
    deadline: Moment,
) -> FaultResult<()> {
    let queues = store.read(&own.names, Extent::Whole, deadline).await?.queues;
    for (id, names) in decide::older(&queues, own) {
        loop {
            let queues = store.read(&names, Extent::Whole, deadline).await?.queues;
            if !decide::may_stand(&queues, own) {
                return Ok(());
            }
            let each = queues.iter().map(|queue| Some((queue, decide::of_claim(queue, id)?)));
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
                id,
                names: names.clone(),
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
