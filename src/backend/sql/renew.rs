//! Renewing a claim that no process keeps.

use std::sync::Arc;
use std::time::Duration;

use super::dialect::Session;
use super::inspect;
use super::position::Standing;
use super::sessions::Sessions;
use super::steps::Steps;
use crate::lock::{ClaimId, LockName, Moment};
use crate::net::fault::{Fault, FaultResult};
use crate::net::request::Patience;

/// Implements [`crate::backend::Backend::renew`].
pub(super) async fn renew(
    service: &Sessions,
    name: &LockName,
    id: ClaimId,
    deadline: Moment,
) -> FaultResult<bool> {
    let Some(answer) = service.read(deadline, &inspect::question(&*service.dialect, Some(name))).await?
    else {
        return Ok(false);
    };
    let queues = inspect::queues(&answer.sets)?;
    let holders = inspect::status_of(name, &queues).holders;
    if !holders.iter().any(|entry| entry.claim == Some(id)) {
        return Ok(false);
    }
    let Some(found) = queues.get(name).and_then(|queue| queue.iter().find(|found| found.id == Some(id)))
    else {
        return Ok(false);
    };
    let record = found.record.as_ref().ok_or_else(|| Fault::nonsense("no entry of a queue"))?;
    let (names, mode, ttl) = (record.names(name), found.mode(), Duration::from_millis(record.ttl_ms));
    let batch =
        |_: &Arc<dyn Session>| Steps::new(&*service.dialect, &names, id).renew(mode, ttl, true, false);
    let answer = service.call(deadline, Patience::Once, batch).await?;
    // A claim that is missing in the queue of one of its locks does not hold.
    Ok(Standing::all(&answer.sets, names.len())?.iter().all(|position| position.holds(mode)))
}
