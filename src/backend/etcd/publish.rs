//! The value of a holder.

use etcd_client::{PutOptions, Txn, TxnOp};

use super::evict::act;
use super::keys::QueueKeys;
use super::look;
use super::queue;
use super::wire::Wire;
use crate::lock::{ClaimId, Moment};
use crate::net::fault::FaultResult;

/// Implements [`crate::backend::Backend::publish`]. The value is in the entry itself, as in Go's `Election`, and in the
/// record. An entry that was seen to hold does so until it is gone, and the transaction requires it.
pub(super) async fn publish(
    wire: &Wire,
    queue: &QueueKeys,
    id: ClaimId,
    value: &str,
    deadline: Moment,
) -> FaultResult<bool> {
    let snapshot = queue::read(wire, queue, deadline).await?;
    let Some(member) = snapshot.holder(id) else { return Ok(false) };
    let Some(mut stored) = member.stored.clone() else { return Ok(false) };
    stored.record.holder.label = Some(value.to_owned());
    let same_lease = || Some(PutOptions::new().with_ignore_lease());
    let steps = [
        TxnOp::put(member.key.clone(), value, same_lease()),
        TxnOp::put(queue.record(member.mode, member.lease), stored.to_text(), same_lease()),
    ];
    let stands = look::stands(member.key.clone(), member.created);
    act(wire, Txn::new().when([stands]).and_then(steps), deadline).await
}
