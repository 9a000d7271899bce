//! Joining the queue: first the lease, then the entries, which need it.

use std::time::Duration;

use etcd_client::{LeaseGrantOptions, Txn};

use super::dial::Connection;
use super::fault::{self, LEASE_EXISTS, LEASE_GONE, NOT_PERMITTED};
use super::keys::Layout;
use super::ops::{MOST_NAMES, put, stands};
use super::renew::LEAST_BEHIND_PROXY;
use super::stored::Stored;
use super::view::Claimed;
use super::wire::Wire;
use crate::clock;
use crate::lock::{ErrorKind, Moment, Request};
use crate::net::cause;
use crate::net::fault::{Fault, FaultResult};
use crate::queue::store::{Answer, Key, Own};

/// One attempt to join.
struct Attempt<'a> {
    wire: &'a Wire,
    layout: &'a Layout,
    claimed: Claimed,
    request: &'a Request,
    /// The record of each entry.
    record: String,
    deadline: Moment,
}

/// Implements [`crate::queue::store::Store::append`].
pub(super) async fn append(
    wire: &Wire,
    layout: &Layout,
    request: &Request,
    deadline: Moment,
) -> FaultResult<(Own, Answer)> {
    let Request { id, names, mode, ttl, .. } = request;
    let begun = clock::now();
    let attempt = Attempt {
        wire,
        layout,
        claimed: Claimed::new(layout, *id, names, *mode, 0),
        request,
        record: Stored::of(request, *ttl).to_text(),
        deadline,
    };
    attempt.check_size()?;
    attempt.check_ttl().await?;
    let (ttl, mut answer) = attempt.join().await.map_err(|fault| attempt.explain(fault))?;
    answer.sent = begun;
    let keys = answer.queues.iter().map(|queue| {
        let own = queue.items.iter().find(|item| item.id == *id).map(|item| item.key.clone());
        // A claim that was removed before its entries arrived has none, and is found gone.
        own.unwrap_or_else(|| Key { order: answer.seen, text: String::new() })
    });
    let keys = keys.collect();
    Ok((Own { id: *id, names: names.clone(), mode: *mode, ttl, keys }, answer))
}

impl Attempt<'_> {
    fn check_size(&self) -> FaultResult<()> {
        let names = self.request.names.len();
        if names <= MOST_NAMES {
            return Ok(());
        }
        let reason =
            format!("{names} names are too many for one step of etcd; take at most {MOST_NAMES} together");
        Err(Fault::new(ErrorKind::Invalid, reason))
    }

    async fn check_ttl(&self) -> FaultResult<()> {
        let ask = |c: Connection| async move { Ok(c.is_proxied().await?) };
        if self.request.ttl >= LEAST_BEHIND_PROXY || !self.wire.call(self.deadline, ask).await? {
            return Ok(());
        }
        let reason = "etcd's grpc-proxy renews leases by itself, too slowly for this --ttl; take 5s or more, or connect to the servers";
        Err(Fault::new(ErrorKind::Invalid, reason))
    }

    async fn join(&self) -> FaultResult<(Duration, Answer)> {
        loop {
            match self.lease_and_entries().await {
                // The lease expired between two of the steps.
                Err(fault) if fault.code == LEASE_GONE => {}
                joined => return joined,
            }
        }
    }

    async fn lease_and_entries(&self) -> FaultResult<(Duration, Answer)> {
        let ttl = match self.grant().await? {
            Some(ttl) => ttl,
            None => self.keep().await?,
        };
        let answer = self.wire.txn(self.entries(), self.deadline).await?;
        Ok((ttl, self.claimed.answer(&answer, clock::now())?))
    }

    /// Adds to a `fault` about missing rights the keys that this user needs, which are more than for `etcdctl lock`.
    fn explain(&self, fault: Fault) -> Fault {
        if fault.code != NOT_PERMITTED {
            return fault;
        }
        let each = self.claimed.queues.iter().flat_map(|queue| [queue.entries().0, queue.beside().0]);
        let keys = each.chain([self.layout.notes()]).map(|keys| format!("{keys:?}"));
        let remedy = format!("grant readwrite with --prefix on {}", keys.collect::<Vec<_>>().join(", "));
        Fault::new(ErrorKind::Denied, cause::no_right(&fault.reason.to_string(), &remedy))
    }

    /// Requests the lease; `None` if it exists from an earlier attempt.
    async fn grant(&self) -> FaultResult<Option<Duration>> {
        let seconds = self.request.ttl.as_secs() + u64::from(self.request.ttl.subsec_nanos() > 0);
        let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
        let granted = self.wire.call(self.deadline, |mut c| async move {
            c.client.lease_grant(seconds, Some(LeaseGrantOptions::new().with_id(self.claimed.lease))).await
        });
        match granted.await {
            Ok(answer) => Ok(Some(length(answer.ttl())?)),
            Err(fault) if fault.code == LEASE_EXISTS => Ok(None),
            Err(fault) => Err(fault),
        }
    }

    /// Renews the lease of an earlier attempt, and returns its length.
    async fn keep(&self) -> FaultResult<Duration> {
        // In parallel, since a slow cluster was given the time for one answer.
        let kept = self.wire.call(self.deadline, |mut c| async move {
            let mut other = c.client.clone();
            let kept = c.client.lease_keep_alive(self.claimed.lease);
            let (_, length) = tokio::try_join!(kept, other.lease_time_to_live(self.claimed.lease, None))?;
            Ok(length)
        });
        length(kept.await?.granted_ttl())
    }

    /// Returns the transaction that creates the entries. It requires that none exists, and that the claim was not
    /// removed already: a request that was given up in flight may arrive late.
    fn entries(&self) -> Txn {
        let claimed = &self.claimed;
        let (mode, lease) = (claimed.mode, claimed.lease);
        let label = self.request.holder.label.clone().unwrap_or_default();
        let mut compares = vec![stands(self.layout.note(lease), 0)];
        compares.extend(claimed.queues.first().map(|first| stands(first.entry(mode, lease), 0)));
        let make = claimed.queues.iter().flat_map(|queue| {
            let (entry, record) = (queue.entry(mode, lease), queue.record(mode, lease));
            [put(entry, label.clone(), lease), put(record, self.record.clone(), lease)]
        });
        let reads = claimed.reads();
        Txn::new().when(compares).and_then(make.chain(reads.clone()).collect::<Vec<_>>()).or_else(reads)
    }
}

fn length(seconds: i64) -> FaultResult<Duration> {
    u64::try_from(seconds)
        .ok()
        .filter(|s| *s > 0)
        .map(Duration::from_secs)
        .ok_or_else(|| fault::corrupt("a lease without a length"))
}
