//! Whole queues, for display and for decisions on other claims.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use etcd_client::{GetOptions, KeyValue, Txn};

use super::fault::LEASE_GONE;
use super::keys::{Layout, QueueKeys, Span, last_part};
use super::ops::{self, Answers, MOST_OPERATIONS, range};
use super::view::item;
use super::wire::Wire;
use crate::clock;
use crate::lock::{LockName, Moment};
use crate::net::fault::FaultResult;
use crate::queue::store::{Answer, Queue};

/// The number of entries with a displayed ttl; each costs a request.
const TIMED: usize = 32;
/// The number of keys in one request of a listing.
const PAGE: i64 = 512;

/// Returns a queue in order, from all its entries and all other keys, and the lease of each entry.
fn queue(queue: &QueueKeys, mut entries: Vec<KeyValue>, beside: &[KeyValue]) -> (Queue, Vec<i64>) {
    let of = |(first, end): Span| {
        let within = move |kv: &&KeyValue| first.as_bytes() <= kv.key() && kv.key() < end.as_bytes();
        beside.iter().filter(within).map(|kv| (last_part(kv.key()), kv)).collect::<HashMap<_, _>>()
    };
    let (records, holds) = (of(queue.records()), of(queue.holds()));
    let oldest = records.values().min_by_key(|record| record.create_revision());
    let slots = oldest.and_then(|record| queue.slots_of(record.key()));
    entries.sort_by_key(KeyValue::create_revision);
    let each = entries.iter().enumerate().map(|(at, entry)| {
        let lease = last_part(entry.key());
        item(queue, at, entry, slots, records.get(lease).copied(), holds.get(lease).copied())
    });
    let queue = Queue { name: queue.name.clone(), items: each.collect() };
    (queue, entries.iter().map(KeyValue::lease).collect())
}

/// Reads queues, at one revision as far as one transaction suffices, and the rest of the first leases if `timed`.
pub(super) async fn read(
    wire: &Wire,
    layout: &Layout,
    names: &[LockName],
    timed: bool,
    deadline: Moment,
) -> FaultResult<Answer> {
    let mut whole = Answer { queues: Vec::new(), note: None, sent: clock::now(), seen: u64::MAX };
    let mut asked = if timed { 0 } else { TIMED };
    for names in names.chunks(MOST_OPERATIONS / 2) {
        let keys: Vec<QueueKeys> = names.iter().map(|name| layout.queue(name)).collect();
        let each = keys.iter().flat_map(|keys| [keys.entries(), keys.beside()]);
        let each = each.map(|span| range(span, GetOptions::new()));
        let answer = wire.txn(Txn::new().and_then(each.collect::<Vec<_>>()), deadline).await?;
        // Changes after the first of several transactions are reported.
        whole.seen = whole.seen.min(ops::revision(answer.header()));
        let mut answers = Answers::of(&answer);
        for keys in &keys {
            let (mut entries, beside) = (answers.read()?, answers.read()?);
            let (mut queue, leases) = queue(keys, entries.take_kvs(), beside.kvs());
            for (item, lease) in queue.items.iter_mut().zip(leases).filter(|(_, lease)| *lease != 0) {
                if asked < TIMED {
                    item.left = left(wire, lease, deadline).await?;
                    asked += 1;
                }
            }
            whole.queues.push(queue);
        }
    }
    Ok(whole)
}

/// Reads the rest of a lease.
async fn left(wire: &Wire, lease: i64, deadline: Moment) -> FaultResult<Option<Duration>> {
    let lives = wire.call(deadline, |mut c| async move { c.client.lease_time_to_live(lease, None).await });
    // The server rounds down to seconds, so the lease may live up to one longer.
    let left = match lives.await {
        Err(fault) if fault.code == LEASE_GONE => -1,
        other => other.map(|answer| answer.ttl().saturating_add(1).min(answer.granted_ttl()))?,
    };
    Ok(u64::try_from(left).ok().map(Duration::from_secs))
}

/// Returns the names of queues with entries that start with `beginning`, read page by page.
pub(super) async fn names(
    wire: &Wire,
    layout: &Layout,
    beginning: &str,
    deadline: Moment,
) -> FaultResult<Vec<LockName>> {
    let (mut from, end) = layout.names(beginning);
    let mut names = BTreeSet::new();
    loop {
        let options = GetOptions::new().with_range(end.clone()).with_limit(PAGE).with_keys_only();
        let page = wire.get(from, options, deadline).await?;
        let found = page.kvs().iter().filter_map(|kv| layout.name_of(kv.key(), kv.lease()));
        names.extend(found.filter(|name| name.as_str().starts_with(beginning)));
        match page.kvs().last().filter(|_| page.more()) {
            None => return Ok(names.into_iter().collect()),
            Some(last) => {
                from = last.key().to_vec();
                from.push(0);
            }
        }
    }
}
