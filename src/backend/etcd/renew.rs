//! Proving that a claim lives.
//!
//! A keep-alive is answered by the member that believes to be the leader, without asking the others. A leader that is
//! cut off continues to answer while the others let the lease expire. So a linearizable read of the claim's entry
//! follows, and both must be answered in the same term, which has one leader. Then the leader that received the
//! keep-alive still was the leader afterwards.
//!
//! The members that answer do not matter, and behind a balancer dlock cannot choose them. A transaction without an
//! operation would be answered from the member's own data, so it has one.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use etcd_client::{Txn, TxnOp, TxnResponse};

use super::fault::LEASE_GONE;
use super::keep_alive::{Checked, Kept, keep_and_check, term};
use super::ops::{act, revision};
use super::view::Claimed;
use super::wire::Wire;
use crate::clock::{self, Clock};
use crate::lock::Moment;
use crate::net::fault::FaultResult;
use crate::queue::store::Answer;

/// The pause between two attempts if the leader changed in between.
const PAUSE: Duration = Duration::from_millis(20);

/// Implements [`crate::queue::store::Store::renew`], over the stream in `kept` if there is one.
pub(super) async fn renew(
    wire: &Wire,
    claimed: &Claimed,
    waits: bool,
    kept: &Mutex<Option<Kept>>,
    deadline: Moment,
) -> FaultResult<Option<(Moment, Answer)>> {
    let begun = clock::now();
    let reads = if waits {
        claimed.reads()
    } else {
        claimed.queues.iter().take(1).map(|queue| TxnOp::get(claimed.entry(queue), None)).collect()
    };
    let txn = Txn::new().when(claimed.stand().collect::<Vec<_>>()).and_then(reads);
    let Some((since, answer)) = prove(wire, claimed.lease, kept, &txn, deadline).await? else {
        return Ok(None);
    };
    let shown = if waits {
        claimed.answer(&answer, begun)?
    } else {
        Answer { queues: Vec::new(), note: None, sent: begun, seen: revision(answer.header()) }
    };
    Ok(Some((since.unwrap_or(begun), shown)))
}

/// Keeps `lease` alive, over the stream in `kept` if there is one, and then executes `txn`, which checks its keys, in
/// the same term. Returns `None` if they are gone. Also returns from when the ttl counts, if that may be before the
/// call.
async fn prove(
    wire: &Wire,
    lease: i64,
    kept: &Mutex<Option<Kept>>,
    txn: &Txn,
    deadline: Moment,
) -> FaultResult<Option<(Option<Moment>, TxnResponse)>> {
    loop {
        let checked = wire.call(deadline, |c| async move {
            let stream = kept.lock().unwrap_or_else(PoisonError::into_inner).take();
            let mut checked = keep_and_check(c, lease, stream, txn.clone()).await?;
            *kept.lock().unwrap_or_else(PoisonError::into_inner) = checked.kept.take();
            Ok(checked)
        });
        match checked.await {
            Ok(checked) if !checked.answer.succeeded() => return Ok(None),
            Ok(Checked { term: Some(kept_in), since, answer, .. })
                if term(answer.header()) == Some(kept_in) =>
            {
                return Ok(Some((since, answer)));
            }
            // A new leader may not have received the keep-alive.
            Ok(_) => {}
            // The member may not know the lease yet. The keys end with it, and the transaction shows reliably whether
            // they exist.
            Err(fault) if fault.code == LEASE_GONE => {
                if !act(wire, txn.clone(), deadline).await?.is_some_and(|answer| answer.succeeded()) {
                    return Ok(None);
                }
            }
            Err(fault) => return Err(fault),
        }
        Clock::Boot.sleep_until(deadline.min(clock::now() + PAUSE)).await;
    }
}
