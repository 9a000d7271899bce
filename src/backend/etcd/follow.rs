//! The two streams by which a claim is kept and followed: of keep-alives, and of watched keys.
//!
//! **Renewals.** A keep-alive is answered by the member that believes to be the leader, without asking the others. A
//! leader that is cut off continues to answer while the others let the lease expire. So a linearizable read of the
//! claim's entry follows, and both must be answered in the same term, which has one leader. Then the leader that
//! received the keep-alive still was the leader afterwards.
//!
//! The members that answer do not matter, and behind a balancer dlock cannot choose them. A transaction without an
//! operation would be answered from the member's own data, so it has some.
//!
//! etcd's grpc-proxy keeps leases alive by itself. It sends a keep-alive within half a second after a stream for the
//! lease was opened, then every third of the ttl, and answers each client with its last answer, of any age. So a claim
//! behind a proxy opens a stream for each renewal, and then requests the rest of the lease, which the proxy forwards.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use etcd_client::{
    Error, LeaseKeepAliveStream, LeaseKeeper, ResponseHeader, Txn, TxnResponse, WatchOptions, WatchStream,
};
use tokio::sync::Mutex as Turn;

use super::cluster::{Cluster, Connection};
use super::fault::LEASE_GONE;
use super::queue::{Claimed, bytes, lease_in};
use crate::clock::{self, Clock};
use crate::lock::Moment;
use crate::net::fault::FaultResult;
use crate::queue::store::{Answer, Seen, Watched};
use crate::sync::locked;

/// The shortest ttl behind a grpc-proxy: the rest of a lease is reported in whole seconds, and a renewal takes half a
/// second.
pub(super) const LEAST_BEHIND_PROXY: Duration = Duration::from_secs(5);
/// The pause between two attempts to renew if the leader changed in between.
const NEW_LEADER: Duration = Duration::from_millis(20);
/// The time limit for a connection for watches.
const CONNECTED: Duration = Duration::from_secs(5);
/// The pause after a stream of watches has failed, because the next one may fail at once, too.
const FAILED: Duration = Duration::from_millis(100);

/// The open streams of one claim.
#[derive(Debug, Default)]
pub(super) struct Streams {
    /// The stream of keep-alives, between two renewals.
    kept: Mutex<Option<Kept>>,
    watching: Turn<Option<Watching>>,
}

/// A stream of keep-alives. Answers do not name their request, so it is dropped unless each answer was received.
#[derive(Debug)]
struct Kept {
    connection: Arc<Connection>,
    keeper: LeaseKeeper,
    answers: LeaseKeepAliveStream,
}

/// A stream of changes.
#[derive(Debug)]
struct Watching {
    connection: Arc<Connection>,
    events: WatchStream,
    spans: Vec<Span>,
}

/// A watched range: the first key, and the one after the last.
type Span = (Vec<u8>, Vec<u8>);

/// The proof that a lease lives, and the answer about its keys.
struct Checked {
    /// The term of that proof.
    term: Option<u64>,
    /// The earliest moment from which the ttl counts, if that may be before the keep-alive was sent.
    since: Option<Moment>,
    answer: TxnResponse,
}

/// Implements [`crate::queue::store::Store::renew`].
pub(super) async fn renew(
    cluster: &Cluster,
    claimed: &Claimed,
    streams: &Streams,
    deadline: Moment,
) -> FaultResult<Option<(Moment, Answer)>> {
    let begun = clock::now();
    let txn = &Txn::new().when(claimed.stand().collect::<Vec<_>>()).and_then(claimed.reads());
    loop {
        let request = |c| keep_and_check(c, claimed.lease, &streams.kept, txn);
        let Checked { term: kept_in, since, answer } = match cluster.call(deadline, request).await {
            // The member may not know the lease yet. The keys end with it, and the transaction shows reliably whether
            // they exist.
            Err(fault) if fault.code == LEASE_GONE => {
                Checked { term: None, since: None, answer: cluster.txn(txn.clone(), deadline).await? }
            }
            checked => checked?,
        };
        if !answer.succeeded() {
            return Ok(None);
        }
        if kept_in.is_some() && kept_in == answer.header().map(ResponseHeader::raft_term) {
            return Ok(Some((since.unwrap_or(begun), claimed.answer(&answer, begun)?)));
        }
        // A new leader may not have received the keep-alive.
        Clock::Boot.sleep_until(deadline.min(clock::now() + NEW_LEADER)).await;
    }
}

/// Sends one keep-alive for `lease`, over the stream in `kept` if that belongs to this connection, and then `txn`.
async fn keep_and_check(
    c: Arc<Connection>,
    lease: i64,
    kept: &Mutex<Option<Kept>>,
    txn: &Txn,
) -> Result<Checked, Error> {
    let gone = || Error::LeaseKeepAliveError("lease not found".to_owned());
    let last = locked(kept).take().filter(|kept| Arc::ptr_eq(&kept.connection, &c));
    let mut client = c.client.clone();
    if c.is_proxied().await? {
        // Closing the stream also stops the proxy's own keep-alives.
        drop(client.lease_keep_alive(lease).await?);
        let asked = clock::now();
        let left = client.lease_time_to_live(lease, None).await?;
        if left.ttl() <= 0 {
            return Err(gone());
        }
        let spent = u64::try_from(left.granted_ttl() - left.ttl()).unwrap_or(0);
        let (term, since) =
            (left.header().map(ResponseHeader::raft_term), Some(asked - Duration::from_secs(spent)));
        return Ok(Checked { term, since, answer: client.txn(txn.clone()).await? });
    }
    let mut next = if let Some(last) = last {
        last
    } else {
        // The client library consumes the first answer; the second one counts.
        let (keeper, answers) = client.lease_keep_alive(lease).await?;
        Kept { connection: c, keeper, answers }
    };
    next.keeper.keep_alive().await?;
    let ended = || Error::LeaseKeepAliveError("the server closed the stream".to_owned());
    let answer = next.answers.message().await?.ok_or_else(ended)?;
    if answer.ttl() <= 0 {
        return Err(gone());
    }
    let term = answer.header().map(ResponseHeader::raft_term);
    let checked = Checked { term, since: None, answer: client.txn(txn.clone()).await? };
    *locked(kept) = Some(next);
    Ok(checked)
}

/// Returns the spans of what is watched.
fn spans(cluster: &Cluster, watched: Watched<'_>) -> Vec<Span> {
    let one = |key: Vec<u8>| {
        let next = [&key, &[0][..]].concat();
        (key, next)
    };
    match watched {
        Watched::Queue(name) => {
            let queue = cluster.layout.queue(name);
            [queue.entries(), queue.beside()].map(|(from, to)| (from.into(), to.into())).to_vec()
        }
        Watched::Claim { own, on } => {
            let claimed = Claimed::of(&cluster.layout, own);
            let mut spans = vec![one(claimed.note.clone().into())];
            for target in on {
                if let Some(lease) = lease_in(&target.key).filter(|_| target.or_holds) {
                    spans.push(one(claimed.queues[target.name].hold(lease).into()));
                }
                spans.push(one(bytes(&target.key)));
            }
            spans.extend(claimed.queues.iter().map(|queue| one(claimed.entry(queue).into())));
            spans
        }
    }
}

/// Completes at a change of what is `watched` after `seen`, or a moment after the stream of changes has failed.
/// Cancel-safe.
pub(super) async fn changed(cluster: &Cluster, watched: Watched<'_>, streams: &Streams, seen: Seen) {
    let mut watching = streams.watching.lock().await;
    let connection = match watching.as_ref() {
        Some(open) => Ok(Arc::clone(&open.connection)),
        None => cluster.call(clock::now() + CONNECTED, |c| async move { Ok(c) }).await,
    };
    if let Ok(connection) = connection {
        let spans = spans(cluster, watched);
        let has_failed = tokio::select! {
            news = news(&connection, &mut watching, &spans, seen.cast_signed()) => match news {
                Ok(true) => return,
                news => news.is_err(),
            },
            () = cluster.link.given_up(&connection) => false,
        };
        *watching = None;
        if has_failed {
            cluster.link.give_up(&connection);
        }
    }
    Clock::Boot.sleep_until(clock::now() + FAILED).await;
}

/// Returns true at a change of `spans` after `seen`, and false if the server has refused a watch. Errors: the stream has
/// failed. Cancel-safe.
async fn news(
    connection: &Arc<Connection>,
    watching: &mut Option<Watching>,
    spans: &[Span],
    seen: i64,
) -> Result<bool, Error> {
    let ended = || Error::WatchError("the stream has ended".to_owned());
    for span @ (from, to) in spans {
        let options = Some(WatchOptions::new().with_range(to.as_slice()).with_start_revision(seen + 1));
        match watching {
            Some(open) if open.spans.contains(span) => {}
            Some(open) => {
                open.events.watch(from.as_slice(), options).await?;
                open.spans.push(span.clone());
            }
            // The server opens the stream with the first watch.
            None => {
                let events = connection.client.clone().watch(from.as_slice(), options).await?;
                let connection = Arc::clone(connection);
                *watching = Some(Watching { connection, events, spans: vec![span.clone()] });
            }
        }
    }
    let events = &mut watching.as_mut().ok_or_else(ended)?.events;
    loop {
        let message = events.message().await?.ok_or_else(ended)?;
        if message.canceled() {
            // It may have been refused for the login token, which other requests do not notice. If this fails, the next
            // request reports the reason.
            let _ = connection.client.refresh_token().await;
            return Ok(false);
        }
        let is_watched =
            |key: &[u8]| spans.iter().any(|(from, to)| from.as_slice() <= key && key < to.as_slice());
        let mut changes = message.events().iter().filter_map(|event| event.kv());
        if changes.any(|kv| kv.mod_revision() > seen && is_watched(kv.key())) {
            return Ok(true);
        }
    }
}
