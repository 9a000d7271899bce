//! A keep-alive and a subsequent transaction, over one connection.
//!
//! etcd's grpc-proxy keeps leases alive by itself. It sends a keep-alive within half a second after a stream for the
//! lease was opened, then every third of the ttl, and answers each client with its last answer, of any age. So a claim
//! behind a proxy opens a stream for each renewal, and then requests the rest of the lease, which the proxy forwards.

use std::time::Duration;

use etcd_client::{LeaseKeepAliveStream, LeaseKeeper, ResponseHeader, Txn, TxnResponse};

use super::dial::Connection;
use crate::clock;
use crate::lock::Moment;

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
pub(super) fn term(header: Option<&ResponseHeader>) -> Option<u64> {
    header.map(ResponseHeader::raft_term)
}

/// The proof that a lease lives, and the answer about its keys.
pub(super) struct Checked {
    /// The stream for the next renewal.
    pub(super) kept: Option<Kept>,
    /// The term of that proof.
    pub(super) term: Option<u64>,
    /// The earliest moment from which the ttl counts, if that may be before the keep-alive was sent.
    pub(super) since: Option<Moment>,
    pub(super) answer: TxnResponse,
}

fn gone() -> etcd_client::Error {
    etcd_client::Error::LeaseKeepAliveError("lease not found".to_owned())
}

/// Sends one keep-alive for `lease`, over `kept` if that belongs to this connection, and then `txn`.
pub(super) async fn keep_and_check(
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
