//! Entries as their keys show them, and the queues of a claim as its decisions need them.

use std::collections::HashMap;

use etcd_client::{Compare, GetOptions, KeyValue, TxnOp, TxnResponse};

use super::keys::{Layout, QueueKeys, last_part};
use super::ops::{self, Answers, created_first, range};
use super::stored::{Hold, Stored, instant, note};
use crate::backend::foreign;
use crate::lock::{ClaimId, FencingToken, LockName, Mode, Moment};
use crate::net::fault::FaultResult;
use crate::queue::store::{About, Answer, Item, Key, Own, Queue};

/// Returns the key of an entry: its bytes as characters, because other programs' keys need not be text.
fn key(entry: &KeyValue) -> Key {
    let text = entry.key().iter().copied().map(char::from).collect();
    Key { order: entry.create_revision().cast_unsigned(), text }
}

/// Returns the bytes of an entry's key.
pub(super) fn bytes(key: &Key) -> Vec<u8> {
    key.text.chars().map(|byte| u8::try_from(byte).unwrap_or_default()).collect()
}

/// Returns the comparison that an entry exists.
pub(super) fn present(key: &Key) -> Compare {
    ops::stands(bytes(key), key.order.cast_signed())
}

/// Returns an entry without its description. Its keys tell its mode, since this version may be unable to read its
/// record.
fn bare(
    queue: &QueueKeys,
    at: usize,
    entry: &KeyValue,
    slots: Option<Mode>,
    hold: Option<&KeyValue>,
) -> Item {
    let is_slot = queue.is_slot(entry.key());
    let other = if queue.is_shared(entry.key()) { Mode::Shared } else { Mode::Exclusive };
    // A claim without a slot has no token yet.
    let unproved = Some(entry.create_revision()).filter(|_| !is_slot);
    let token = hold.map(KeyValue::mod_revision).or(unproved);
    Item {
        at,
        key: key(entry),
        id: ClaimId::from_number(u128::from(entry.lease().cast_unsigned())),
        foreign: false,
        mode: if is_slot { slots } else { Some(other) },
        slot: hold.and_then(|hold| Hold::parse(hold.value())?.slot),
        token: token.and_then(|token| FencingToken::new(token.cast_unsigned())),
        left: None,
        about: None,
    }
}

/// Returns an entry with its description. Without a `record` that was created with it, it is another program's. `slots`
/// is the mode of such an entry in the place of those with slots.
pub(super) fn item(
    queue: &QueueKeys,
    at: usize,
    entry: &KeyValue,
    slots: Option<Mode>,
    record: Option<&KeyValue>,
    hold: Option<&KeyValue>,
) -> Item {
    let record = record.filter(|record| record.create_revision() == entry.create_revision());
    let item = bare(queue, at, entry, record.and_then(|record| queue.slots_of(record.key())).or(slots), hold);
    let mut about = if let Some(stored) = record.and_then(|record| Stored::parse(record.value())) {
        let held_since = hold.and_then(|hold| instant(Hold::parse(hold.value())?.since_ms));
        About { held_since, ..About::of(&stored.record, &queue.name, instant(stored.since_ms)) }
    } else {
        let id = foreign::identity([entry.key(), &entry.create_revision().to_be_bytes()]);
        let called = format!("key {}", String::from_utf8_lossy(entry.key()));
        let mut about = About::foreign(&queue.name, id, called);
        about.entry.mode = item.mode.or(Some(Mode::Exclusive));
        about.entry.label = entry.value_str().ok().filter(|value| !value.is_empty()).map(str::to_owned);
        about
    };
    // It costs a request.
    about.entry.ttl = None;
    let id = about.entry.claim.unwrap_or(item.id);
    let token = item.token.filter(|_| !about.entry.foreign);
    Item { id, foreign: about.entry.foreign, token, about: Some(Box::new(about)), ..item }
}

/// A claim of this client by its keys.
#[derive(Clone, Debug)]
pub(super) struct Claimed {
    pub(super) queues: Vec<QueueKeys>,
    pub(super) mode: Mode,
    pub(super) lease: i64,
    /// The revision that created its entries; 0 if that is unknown.
    pub(super) created: i64,
    id: ClaimId,
    note: String,
}

impl Claimed {
    pub(super) fn of(layout: &Layout, own: &Own) -> Self {
        let created = own.keys.first().map_or(0, |key| key.order.cast_signed());
        Self::new(layout, own.id, &own.names, own.mode, created)
    }

    pub(super) fn new(layout: &Layout, id: ClaimId, names: &[LockName], mode: Mode, created: i64) -> Self {
        let lease = layout.lease_of(id);
        let queues = names.iter().map(|name| layout.queue(name)).collect();
        Self { queues, mode, lease, created, id, note: layout.note(lease) }
    }

    /// Returns the key of the entry in a queue.
    pub(super) fn entry(&self, queue: &QueueKeys) -> String {
        queue.entry(self.mode, self.lease)
    }

    /// Returns the comparisons that all entries exist.
    pub(super) fn stand(&self) -> impl Iterator<Item = Compare> {
        self.queues.iter().map(|queue| ops::stands(self.entry(queue), self.created))
    }

    /// Returns the reads for [`Claimed::answer`].
    pub(super) fn reads(&self) -> Vec<TxnOp> {
        let entries = created_first().with_keys_only().with_max_create_revision(self.created);
        let reads = |queue: &QueueKeys| {
            [
                range(queue.entries(), entries.clone()),
                range(queue.records(), created_first().with_limit(1)),
                range(queue.holds(), GetOptions::new()),
            ]
        };
        let note = TxnOp::get(self.note.clone(), None);
        self.queues.iter().flat_map(reads).chain([note]).collect()
    }

    /// Returns the answer to [`Claimed::reads`] that is part of `answer`.
    pub(super) fn answer(&self, answer: &TxnResponse, sent: Moment) -> FaultResult<Answer> {
        let mut answers = Answers::of(answer);
        let queues = self.queues.iter().map(|queue| self.queue(queue, &mut answers));
        let queues = queues.collect::<FaultResult<_>>()?;
        let note = answers.read()?.kvs().first().and_then(|kv| note(kv.value()));
        Ok(Answer { queues, note, sent, seen: ops::revision(answer.header()) })
    }

    /// Returns all entries ahead of the own one, the own one, and those behind that have a slot.
    fn queue(&self, queue: &QueueKeys, answers: &mut Answers) -> FaultResult<Queue> {
        let (entries, first, holds) = (answers.read()?, answers.read()?, answers.read()?);
        let record = first.kvs().first();
        let mut holds: HashMap<_, _> = holds.kvs().iter().map(|hold| (last_part(hold.key()), hold)).collect();
        let own = Some(self.mode).filter(|mode| matches!(mode, Mode::Slots(_)));
        // Entries of another number leave at once.
        let slots = record.and_then(|record| queue.slots_of(record.key()));
        let own_key = self.entry(queue);
        let mut items = Vec::new();
        for (at, entry) in entries.kvs().iter().enumerate() {
            let hold = holds.remove(last_part(entry.key()));
            if entry.key() == own_key.as_bytes() {
                let item = bare(queue, at, entry, own, hold);
                items.push(Item { id: self.id, mode: Some(self.mode), ..item });
                break;
            }
            let has_record = record.is_some_and(|record| record.create_revision() == entry.create_revision());
            items.push(if at == 0 || has_record {
                item(queue, at, entry, slots, record, hold)
            } else {
                // An entry without slots among entries with slots is another program's, or leaves at once.
                let item = bare(queue, at, entry, slots, hold);
                Item { foreign: own.is_some() && !queue.is_slot(entry.key()), ..item }
            });
        }
        // An entry behind that was faster has a slot, too.
        for hold in holds.into_values().filter(|_| own.is_some()) {
            items.push(Item { mode: own, ..bare(queue, items.len(), hold, own, Some(hold)) });
        }
        Ok(Queue { name: queue.name.clone(), items })
    }
}
