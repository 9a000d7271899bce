//! Changes to entries of other processes: removing them, asking them to leave, publishing the value of a holder.

use std::sync::Arc;

use super::dialect::{Session, Sets, unstored};
use super::sessions::Sessions;
use super::steps::Steps;
use crate::backend::Evict;
use crate::lock::{ClaimId, Holder, LockName, Mode, Moment, Request};
use crate::net::fault::{Fault, FaultResult};
use crate::net::request::Patience;

/// Applies `how` to the claim `id`, which may be in the queue of `name`, on all of its locks.
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
    // The mode does not matter for an absent claim.
    let mode = column(1).find_map(|mode| mode.parse().ok()).unwrap_or(Mode::Exclusive);
    // A claim that is only in other queues is not meant.
    let names = if names.contains(name) { names } else { only.to_vec() };
    let batch = |_: &Arc<dyn Session>| Steps::new(&*service.dialect, &names, id).evict(mode, how, by);
    let answer = service.call(deadline, Patience::Deadline, batch).await?;
    found_any(&answer.sets)
}

/// Implements [`crate::backend::Backend::withdraw`], in one step, since all names are known.
pub(super) async fn withdraw(service: &Sessions, request: &Request, deadline: Moment) -> FaultResult<()> {
    let Request { names, id, mode, holder, .. } = request;
    let steps = Steps::new(&*service.dialect, names, *id);
    let batch = |_: &Arc<dyn Session>| steps.evict(*mode, Evict::Force, holder);
    service.call(deadline, Patience::Deadline, batch).await.map(drop)
}

/// Implements [`crate::backend::Backend::publish`].
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

/// Returns whether the count at the beginning of a batch's results is not zero.
fn found_any(sets: &Sets) -> FaultResult<bool> {
    let count = sets.first().and_then(|set| set.first()).and_then(|row| row.first()?.as_deref());
    count.map(|count| count != "0").ok_or_else(|| Fault::nonsense("no count"))
}
