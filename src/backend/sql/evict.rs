//! What is done to entries of others: removing them, asking them to leave, publishing what a holder proclaims.

use std::sync::Arc;

use super::dialect::{Session, Sets, unstored};
use super::sessions::Sessions;
use super::steps::Steps;
use crate::backend::Evict;
use crate::lock::{ClaimId, Holder, LockName, Mode, Moment, Request};
use crate::net::fault::{Fault, FaultResult};
use crate::net::request::Patience;

/// Does to the claim `id`, of which an entry may stand in the queue of `name`, what `how` says; on all of its locks.
pub(super) async fn evict(
    service: &Sessions,
    name: &LockName,
    id: ClaimId,
    how: Evict,
    by: &Holder,
    deadline: Moment,
) -> FaultResult<bool> {
    let only = std::slice::from_ref(name);
    let question = |_: &Arc<dyn Session>| Steps::new(&*service.dialect, only, id).names();
    let answer = service.call(deadline, Patience::Deadline, question).await?;
    let column = |n: usize| answer.sets.iter().flatten().filter_map(move |row| row.get(n)?.as_deref());
    let names: Vec<LockName> = column(0).filter_map(unstored).collect();
    // Nobody waits for a claim that is not there.
    let mode = column(1).find_map(|mode| mode.parse().ok()).unwrap_or(Mode::Exclusive);
    // A claim that is in other queues only is not the one that is meant.
    let names = if names.contains(name) { names } else { only.to_vec() };
    let batch = |_: &Arc<dyn Session>| Steps::new(&*service.dialect, &names, id).evict(mode, how, by);
    let answer = service.call(deadline, Patience::Deadline, batch).await?;
    found_any(&answer.sets)
}

/// As [`crate::backend::Backend::withdraw`]: in one step, since all names are known.
pub(super) async fn withdraw(service: &Sessions, request: &Request, deadline: Moment) -> FaultResult<()> {
    let Request { names, id, mode, holder, .. } = request;
    let steps = Steps::new(&*service.dialect, names, *id);
    let batch = |_: &Arc<dyn Session>| steps.evict(*mode, Evict::Force, holder);
    service.call(deadline, Patience::Deadline, batch).await.map(drop)
}

/// As [`crate::backend::Backend::publish`].
pub(super) async fn publish(
    service: &Sessions,
    name: &LockName,
    id: ClaimId,
    value: &str,
    deadline: Moment,
) -> FaultResult<bool> {
    let only = std::slice::from_ref(name);
    let batch = |_: &Arc<dyn Session>| Steps::new(&*service.dialect, only, id).publish(value);
    let answer = service.call(deadline, Patience::Deadline, batch).await?;
    found_any(&answer.sets)
}

/// Whether the count that a batch begins with says that there was something.
fn found_any(sets: &Sets) -> FaultResult<bool> {
    let count = sets.first().and_then(|set| set.first()).and_then(|row| row.first()?.as_deref());
    count.map(|count| count != "0").ok_or_else(|| Fault::nonsense("no count"))
}
