//! Proving that a claim lives.
//!
//! A keep-alive is answered by the member that believes to be the leader, without asking the others. A leader that is
//! cut off continues to answer while the others let the lease expire. So a linearizable read of the claim's entry
//! follows, and both must be answered in the same term, which has one leader. Then the leader that received the
//! keep-alive still was the leader afterwards.
//!
//! The members that answer do not matter, and behind a balancer dlock cannot choose them. A transaction without an
//! operation would be answered from the member's own data, so it has one.
//!
//! etcd's grpc-proxy keeps leases alive by itself. It sends a keep-alive within half a second after a stream for the
//! lease was opened, then every third of the ttl, and answers each client with its last answer, of any age. So a claim
//! behind a proxy opens a stream for each renewal, and then requests the rest of the lease, which the proxy forwards.

use std::sync::Mutex;
use std::time::Duration;

use etcd_client::{LeaseKeepAliveStream, LeaseKeeper, ResponseHeader, Txn, TxnOp, TxnResponse};

use super::dial::Connection;
use super::fault::LEASE_GONE;
use super::ops::{act, revision};
use super::view::Claimed;
use super::wire::Wire;
use crate::clock::{self, Clock};
use crate::lock::Moment;
use crate::net::fault::FaultResult;
use crate::queue::store::Answer;
use crate::sync::locked;

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
    let txn = &Txn::new().when(claimed.stand().collect::<Vec<_>>()).and_then(reads);
    loop {
        let checked = wire.call(deadline, |c| async move {
            let stream = locked(kept).take();
            let mut checked = keep_and_check(c, claimed.lease, stream, txn.clone()).await?;
            *locked(kept) = checked.kept.take();
            Ok(checked)
        });
        match checked.await {
            Ok(checked) if !checked.answer.succeeded() => return Ok(None),
            Ok(Checked { term: Some(kept_in), since, answer, .. })
                if term(answer.header()) == Some(kept_in) =>
            {
                let shown = if waits {
                    claimed.answer(&answer, begun)?
                } else {
                    Answer { queues: Vec::new(), note: None, sent: begun, seen: revision(answer.header()) }
                };
                return Ok(Some((since.unwrap_or(begun), shown)));
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

/// The shortest ttl behind a grpc-proxy: the rest of a lease is reported in whole seconds, and a renewal takes half a
/// second.
pub(super) const LEAST_BEHIND_PROXY: Duration = Duration::from_secs(5);

/// An open stream of keep-alives. Answers do not name their request, so the stream is dropped unless each answer was
/// received.
#[derive(Debug)]
pub(super) struct Kept {
    connection: u64,
    keeper: LeaseKeeper,
    answers: LeaseKeepAliveStream,
}

/// Returns the raft term of an answer.
fn term(header: Option<&ResponseHeader>) -> Option<u64> {
    header.map(ResponseHeader::raft_term)
}

/// The proof that a lease lives, and the answer about its keys.
struct Checked {
    /// The stream for the next renewal.
    kept: Option<Kept>,
    /// The term of that proof.
    term: Option<u64>,
    /// The earliest moment from which the ttl counts, if that may be before the keep-alive was sent.
    since: Option<Moment>,
    answer: TxnResponse,
}

fn gone() -> etcd_client::Error {
    etcd_client::Error::LeaseKeepAliveError("lease not found".to_owned())
}

/// Sends one keep-alive for `lease`, over `kept` if that belongs to this connection, and then `txn`.
async fn keep_and_check(
    mut c: Connection,
    lease: i64,
    kept: Option<Kept>,
    txn: Txn,
) -> Result<Checked, etcd_client::Error> {
    if c.is_proxied().await? {
        // Closing the stream also stops the proxy's own keep-alives.
        drop(c.client.lease_keep_alive(lease).await?);
        let asked = clock::now();
        let left = c.client.lease_time_to_live(lease, None).await?;
        let spent = left.granted_ttl() - left.ttl();
        if left.ttl() <= 0 {
            return Err(gone());
        }
        let since = Some(asked - Duration::from_secs(u64::try_from(spent).unwrap_or(0)));
        return Ok(Checked {
            kept: None,
            term: term(left.header()),
            since,
            answer: c.client.txn(txn).await?,
        });
    }
    let mut kept = if let Some(kept) = kept.filter(|kept| kept.connection == c.number) {
        kept
    } else {
        // The client library consumes the first answer; the second one counts.
        let (keeper, answers) = c.client.lease_keep_alive(lease).await?;
        Kept { connection: c.number, keeper, answers }
    };
    kept.keeper.keep_alive().await?;
    let ended = || etcd_client::Error::LeaseKeepAliveError("the server closed the stream".to_owned());
    let answer = kept.answers.message().await?.ok_or_else(ended)?;
    if answer.ttl() <= 0 {
        return Err(gone());
    }
    let term = term(answer.header());
    Ok(Checked { kept: Some(kept), term, since: None, answer: c.client.txn(txn).await? })
}
