//! Queues as the engine knows them, read from their keys: whole, or as far as the decisions of one claim need them.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use etcd_client::{
    Compare, CompareOp, GetOptions, GetResponse, KeyValue, PutOptions, ResponseHeader, SortOrder, SortTarget,
    Txn, TxnOp, TxnOpResponse, TxnResponse,
};

use super::cluster::Cluster;
use super::keys::{Arrived, Hold, Layout, QueueKeys, Span, instant, note};
use crate::backend::record::foreign_claim;
use crate::clock;
use crate::lock::{ClaimId, FencingToken, LockName, Mode, Moment};
use crate::net::fault::{Fault, FaultResult};
use crate::queue::store::{About, Answer, Item, Key, Own, Queue};

/// The most operations in one transaction, by default.
pub(super) const MOST_OPERATIONS: usize = 128;
/// The number of keys in one request of a listing.
const PAGE: i64 = 512;

/// Returns the comparison that a key exists and was created at that revision; 0 for a missing key.
pub(super) fn stands(key: impl Into<Vec<u8>>, created: i64) -> Compare {
    Compare::create_revision(key, CompareOp::Equal, created)
}

/// Returns the comparison that a key was last written at that revision; 0 for a missing key.
pub(super) fn unchanged(key: impl Into<Vec<u8>>, revision: i64) -> Compare {
    Compare::mod_revision(key, CompareOp::Equal, revision)
}

/// Returns the write of a key that ends with its lease.
pub(super) fn put(key: String, value: impl Into<Vec<u8>>, lease: i64) -> TxnOp {
    TxnOp::put(key, value, Some(PutOptions::new().with_lease(lease)))
}

/// Returns the revision of the store in an answer.
fn revision(header: Option<&ResponseHeader>) -> u64 {
    header.map_or(0, |header| header.revision().cast_unsigned())
}

/// Returns the key of an entry: its bytes as characters, because other programs' keys need not be text.
fn key(entry: &KeyValue) -> Key {
    let text = entry.key().iter().copied().map(char::from).collect();
    Key { order: entry.create_revision().cast_unsigned(), text }
}

/// Returns the bytes of an entry's key.
pub(super) fn bytes(key: &Key) -> Vec<u8> {
    key.text.chars().map(|byte| u8::try_from(byte).unwrap_or_default()).collect()
}

/// Returns the lease that an entry's key names.
pub(super) fn lease_in(key: &Key) -> Option<i64> {
    i64::from_str_radix(key.text.rsplit('/').next()?, 16).ok()
}

/// Returns the comparison that an entry exists.
pub(super) fn present(key: &Key) -> Compare {
    stands(bytes(key), key.order.cast_signed())
}

/// A claim of this client by its keys.
#[derive(Clone, Debug)]
pub(super) struct Claimed {
    pub(super) queues: Vec<QueueKeys>,
    pub(super) mode: Mode,
    pub(super) lease: i64,
    /// The key of the note to it.
    pub(super) note: String,
    /// The revision that created its entries; 0 if that is unknown.
    pub(super) created: i64,
    id: ClaimId,
}

impl Claimed {
    pub(super) fn of(layout: &Layout, own: &Own) -> Self {
        let created = own.keys.first().map_or(0, |key| key.order.cast_signed());
        Self { created, ..Self::new(layout, own.id, &own.names, own.mode) }
    }

    pub(super) fn new(layout: &Layout, id: ClaimId, names: &[LockName], mode: Mode) -> Self {
        let lease = layout.lease_of(id);
        let queues = names.iter().map(|name| layout.queue(name)).collect();
        Self { queues, mode, lease, note: layout.note(lease), created: 0, id }
    }

    /// Returns the key of the entry in a queue.
    pub(super) fn entry(&self, queue: &QueueKeys) -> String {
        queue.entry(self.mode, self.lease)
    }

    /// Returns the comparisons that all entries exist.
    pub(super) fn stand(&self) -> impl Iterator<Item = Compare> {
        self.queues.iter().map(|queue| stands(self.entry(queue), self.created))
    }

    /// Returns the reads for [`Claimed::answer`].
    pub(super) fn reads(&self) -> Vec<TxnOp> {
        let note = TxnOp::get(self.note.clone(), None);
        self.queues.iter().flat_map(|keys| reads(keys, Some(self))).chain([note]).collect()
    }

    /// Returns the answer to [`Claimed::reads`] that is part of `answer`.
    pub(super) fn answer(&self, answer: &TxnResponse, sent: Moment) -> FaultResult<Answer> {
        let found = found(answer, 3 * self.queues.len() + 1)?;
        let queues = self.queues.iter().zip(found.chunks_exact(3));
        let queues = queues.map(|(keys, found)| queue(keys, found, Some(self))).collect();
        let note = found.last().and_then(|found| note(found.kvs().first()?.value()));
        Ok(Answer { queues, note, sent, seen: revision(answer.header()) })
    }
}

/// Returns the reads for [`queue`].
fn reads(keys: &QueueKeys, own: Option<&Claimed>) -> [TxnOp; 3] {
    let all = GetOptions::new().with_sort(SortTarget::Create, SortOrder::Ascend);
    let (entries, records) = match own {
        Some(own) => {
            let ahead = all.clone().with_keys_only().with_max_create_revision(own.created);
            (ahead, all.with_limit(1))
        }
        None => (all.clone(), all),
    };
    let range = |(from, to): Span, options: GetOptions| TxnOp::get(from, Some(options.with_range(to)));
    [range(keys.entries(), entries), range(keys.records(), records), range(keys.holds(), GetOptions::new())]
}

/// Returns the answers to the `count` reads of a transaction, in order.
fn found(answer: &TxnResponse, count: usize) -> FaultResult<Vec<GetResponse>> {
    let each = answer.op_responses().into_iter().filter_map(|answer| match answer {
        TxnOpResponse::Get(found) => Some(found),
        _ => None,
    });
    let found: Vec<_> = each.collect();
    if found.len() == count { Ok(found) } else { Err(Fault::nonsense("an answer is missing")) }
}

/// Returns a queue from the answers to its [`reads`]. With `own` it has all entries ahead of that, its entry, and those
/// behind that have a slot; only those are described whose record was read.
fn queue(keys: &QueueKeys, found: &[GetResponse], own: Option<&Claimed>) -> Queue {
    let by_lease = |kvs: &GetResponse| kvs.kvs().iter().map(|kv| (kv.lease(), kv.clone())).collect();
    let (records, mut holds): (HashMap<_, _>, HashMap<_, _>) = (by_lease(&found[1]), by_lease(&found[2]));
    // The oldest record tells the number of slots. Entries of another number leave at once.
    let oldest = found[1].kvs().first();
    let slots = oldest.and_then(|record| keys.slots_of(record.key()));
    let own_slots = own.map(|own| own.mode).filter(|mode| matches!(mode, Mode::Slots(_)));
    let mut items = Vec::new();
    for (at, entry) in found[0].kvs().iter().enumerate() {
        let hold = holds.remove(&entry.lease());
        // Without a record that was created with it, an entry is another program's.
        let record = records.get(&entry.lease());
        let record = record.filter(|record| record.create_revision() == entry.create_revision());
        let slots = record.and_then(|record| keys.slots_of(record.key())).or(slots);
        let item = bare(keys, at, entry, hold.as_ref(), slots);
        if let Some(own) = own
            && entry.key() == own.entry(keys).as_bytes()
        {
            items.push(Item { id: own.id, mode: Some(own.mode), ..item });
            break;
        }
        items.push(if own.is_none() || at == 0 || record.is_some() {
            described(keys, item, entry, record, hold.as_ref())
        } else {
            // An entry without slots among entries with slots is another program's, or leaves at once.
            Item { foreign: own_slots.is_some() && !keys.is_at("slot", entry.key()), ..item }
        });
    }
    // An entry behind that was faster has a slot, too.
    for hold in holds.into_values().filter(|_| own_slots.is_some()) {
        items.push(Item { mode: own_slots, ..bare(keys, items.len(), &hold, Some(&hold), None) });
    }
    Queue { name: keys.name.clone(), items }
}

/// Returns an entry without its description. Its key tells its mode, since this version may be unable to read its
/// record; `slots` is that of one with slots.
fn bare(keys: &QueueKeys, at: usize, entry: &KeyValue, hold: Option<&KeyValue>, slots: Option<Mode>) -> Item {
    let is_slot = keys.is_at("slot", entry.key());
    let other = if keys.is_at("read", entry.key()) { Mode::Shared } else { Mode::Exclusive };
    // A claim without a slot has no token yet.
    let unproved = Some(entry.create_revision()).filter(|_| !is_slot);
    let token = hold.map(KeyValue::mod_revision).or(unproved);
    Item {
        at,
        key: key(entry),
        id: ClaimId::from_number(u128::from(entry.lease().cast_unsigned())),
        foreign: false,
        mode: if is_slot { slots } else { Some(other) },
        slot: hold.and_then(|hold| held(hold)?.slot),
        token: token.and_then(|token| FencingToken::new(token.cast_unsigned())),
        left: None,
        about: None,
    }
}

fn held(hold: &KeyValue) -> Option<Hold> {
    serde_json::from_slice(hold.value()).ok()
}

/// Returns `item` with its description.
fn described(
    keys: &QueueKeys,
    item: Item,
    entry: &KeyValue,
    record: Option<&KeyValue>,
    hold: Option<&KeyValue>,
) -> Item {
    let mut about = if let Some(arrived) = record.and_then(|record| Arrived::parse(record.value())) {
        let held_since = hold.and_then(|hold| instant(held(hold)?.since_ms));
        About { held_since, ..About::of(&arrived.record, &keys.name, instant(arrived.since_ms)) }
    } else {
        let id = foreign_claim([entry.key(), &entry.create_revision().to_be_bytes()]);
        let called = format!("key {}", String::from_utf8_lossy(entry.key()));
        let mut about = About::foreign(&keys.name, id, called);
        about.entry.mode = item.mode.or(Some(Mode::Exclusive));
        about.entry.label = entry.value_str().ok().filter(|value| !value.is_empty()).map(str::to_owned);
        about
    };
    // It costs a request.
    about.entry.ttl = None;
    let (id, foreign) = (about.entry.claim.unwrap_or(item.id), about.entry.foreign);
    let token = item.token.filter(|_| !foreign);
    Item { id, foreign, token, about: Some(Box::new(about)), ..item }
}

/// Reads whole queues, at one revision as far as one transaction suffices, and the rest of the leases of the first
/// `timed` entries; each costs a request.
pub(super) async fn read(
    cluster: &Cluster,
    names: &[LockName],
    mut timed: usize,
    deadline: Moment,
) -> FaultResult<Answer> {
    let mut whole = Answer { queues: Vec::new(), note: None, sent: clock::now(), seen: u64::MAX };
    for names in names.chunks(MOST_OPERATIONS / 3) {
        let keys: Vec<QueueKeys> = names.iter().map(|name| cluster.layout.queue(name)).collect();
        let each: Vec<TxnOp> = keys.iter().flat_map(|keys| reads(keys, None)).collect();
        let answer = cluster.txn(Txn::new().and_then(each), deadline).await?;
        // Changes after the first of several transactions are reported.
        whole.seen = whole.seen.min(revision(answer.header()));
        let found = found(&answer, 3 * keys.len())?;
        for (keys, found) in keys.iter().zip(found.chunks_exact(3)) {
            let mut queue = queue(keys, found, None);
            let leased = queue.items.iter_mut().zip(found[0].kvs()).filter(|(_, entry)| entry.lease() != 0);
            for (item, entry) in leased.take(timed) {
                timed -= 1;
                item.left = left(cluster, entry.lease(), deadline).await?;
            }
            whole.queues.push(queue);
        }
    }
    Ok(whole)
}

/// Reads the rest of a lease.
async fn left(cluster: &Cluster, lease: i64, deadline: Moment) -> FaultResult<Option<Duration>> {
    let asked =
        cluster.call(deadline, |c| async move { c.client.clone().lease_time_to_live(lease, None).await });
    let lease = asked.await?;
    // The server rounds down to seconds, so the lease may live up to one longer.
    let left = lease.ttl().saturating_add(1).min(lease.granted_ttl());
    Ok(u64::try_from(left).ok().map(Duration::from_secs))
}

/// Returns the names of queues with entries that start with `beginning`, read page by page.
pub(super) async fn names(
    cluster: &Cluster,
    beginning: &str,
    deadline: Moment,
) -> FaultResult<Vec<LockName>> {
    let (from, end) = cluster.layout.names(beginning);
    let (mut from, mut names) = (from.into_bytes(), BTreeSet::new());
    loop {
        let options = GetOptions::new().with_range(end.clone()).with_limit(PAGE).with_keys_only();
        let page = cluster.get(from, options, deadline).await?;
        let found = page.kvs().iter().filter_map(|kv| cluster.layout.name_of(kv.key(), kv.lease()));
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
