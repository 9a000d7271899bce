//! The queue as one claim sees it.

use etcd_client::{
    Compare, CompareOp, GetOptions, GetResponse, KeyValue, PutOptions, SortOrder, SortTarget, TxnOp,
    TxnOpResponse, TxnResponse,
};

use super::fault;
use super::keys::{self, QueueKeys, Span};
use super::stored::{Hold, Stored, instant};
use crate::lock::{Entry, Mode};
use crate::net::fault::FaultResult;

/// The most operations in one transaction, by default.
pub(super) const MOST_OPERATIONS: usize = 128;
/// The most operations for a queue in one transaction.
const PER_QUEUE: usize = 5;
/// The most queues for which one transaction can do a step, with one operation for the whole claim.
pub(super) const MOST_NAMES: usize = (MOST_OPERATIONS - 1) / PER_QUEUE;

/// An entry ahead.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Ahead {
    pub(super) key: Vec<u8>,
    pub(super) created: i64,
}

/// The entries ahead of a claim in one queue.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Seen {
    /// In order of arrival.
    pub(super) ahead: Vec<Ahead>,
    /// The oldest entry, if it is ahead.
    pub(super) first: Option<Box<Entry>>,
    /// The taken slots.
    pub(super) slots: Vec<u32>,
}

/// The event that a waiter waits for in one queue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Target {
    /// The end of this key.
    Gone(Vec<u8>),
    /// The end of this entry, or its hold.
    GoneOrHolds(Vec<u8>),
    /// The end of any entry with slots.
    AnySlot,
}

pub(super) fn range(span: Span, options: GetOptions) -> TxnOp {
    TxnOp::get(span.0, Some(options.with_range(span.1)))
}

pub(super) fn created_first(options: GetOptions) -> GetOptions {
    options.with_sort(SortTarget::Create, SortOrder::Ascend)
}

/// Returns the comparison that a key exists and was created at that revision; 0 for a missing key.
pub(super) fn stands(key: impl Into<Vec<u8>>, created: i64) -> Compare {
    Compare::create_revision(key, CompareOp::Equal, created)
}

/// Returns the comparison that a key was last written at that revision; 0 for a missing key.
pub(super) fn unchanged(key: impl Into<Vec<u8>>, revision: i64) -> Compare {
    Compare::mod_revision(key, CompareOp::Equal, revision)
}

/// Returns the comparison that a range is empty.
pub(super) fn empty(span: Span) -> Compare {
    Compare::create_revision(span.0, CompareOp::Equal, 0).with_range(span.1)
}

/// Returns the write of a key that ends with its lease.
pub(super) fn put(key: String, value: impl Into<Vec<u8>>, lease: i64) -> TxnOp {
    TxnOp::put(key, value, Some(PutOptions::new().with_lease(lease)))
}

/// Returns the reads of one queue; `created` is the claim's own revision, or `None` in the transaction that creates it.
pub(super) fn reads(queue: &QueueKeys, mode: Mode, created: Option<i64>) -> Vec<TxnOp> {
    let mut options = created_first(GetOptions::new()).with_keys_only();
    if let Some(created) = created {
        options = options.with_max_create_revision(created - 1);
    }
    let first = created_first(GetOptions::new()).with_limit(1);
    let mut reads = vec![range(queue.entries(), options), range(queue.records(), first)];
    if matches!(mode, Mode::Slots(_)) {
        reads.push(range(queue.slots(), GetOptions::new().with_keys_only()));
    }
    reads
}

/// The answers to a transaction, in order.
pub(super) struct Answers(std::vec::IntoIter<TxnOpResponse>);

impl Answers {
    pub(super) fn of(response: &TxnResponse) -> Self {
        Self(response.op_responses().into_iter())
    }

    /// Returns the next answer to a read, skipping answers to writes.
    pub(super) fn read(&mut self) -> FaultResult<GetResponse> {
        let get = self.0.find_map(|answer| match answer {
            TxnOpResponse::Get(get) => Some(get),
            _ => None,
        });
        get.ok_or_else(|| fault::corrupt("an answer is missing"))
    }

    /// Returns the answers to [`reads`].
    pub(super) fn seen(&mut self, mode: Mode, created: i64) -> FaultResult<Seen> {
        let ahead: Vec<Ahead> = self
            .read()?
            .kvs()
            .iter()
            .filter(|kv| kv.create_revision() < created)
            .map(|kv| Ahead { key: kv.key().to_vec(), created: kv.create_revision() })
            .collect();
        let record = self.read()?.take_kvs().into_iter().next();
        let first = ahead.first().map(|first| Box::new(first_of(first, record.as_ref())));
        let slots = match mode {
            Mode::Slots(_) => self.read()?.kvs().iter().filter_map(slot).collect(),
            _ => Vec::new(),
        };
        Ok(Seen { ahead, first, slots })
    }
}

/// Returns the oldest entry. Without a record of the same revision it is another program's.
fn first_of(first: &Ahead, record: Option<&KeyValue>) -> Entry {
    let own = record.filter(|kv| kv.create_revision() == first.created);
    match own.and_then(|kv| Stored::parse(kv.value())) {
        Some(stored) => Entry { since: instant(stored.since_ms), ..stored.record.entry() },
        None => foreign(&first.key),
    }
}

/// Returns the entry of another program's client.
pub(super) fn foreign(key: &[u8]) -> Entry {
    let key = Some(format!("key {}", String::from_utf8_lossy(key)));
    Entry { mode: Some(Mode::Exclusive), foreign: true, key, ..Entry::default() }
}

fn slot(kv: &KeyValue) -> Option<u32> {
    std::str::from_utf8(keys::last_part(kv.key())).ok()?.parse().ok()
}

impl Seen {
    /// Returns the event that an entry of `mode` waits for; `None` if it holds. The rule is that of
    /// [`crate::lock::queue::held`].
    pub(super) fn target(&self, queue: &QueueKeys, mode: Mode) -> Option<Target> {
        let newest = |blocks: &dyn Fn(&[u8]) -> bool| {
            self.ahead.iter().rev().find(|a| blocks(&a.key)).map(|a| Target::Gone(a.key.clone()))
        };
        match mode {
            Mode::Exclusive => newest(&|_| true),
            Mode::Shared => newest(&|key| !queue.is_shared(key)),
            Mode::Slots(n) => newest(&|key| !queue.is_slot(key)).or_else(|| {
                let most = usize::try_from(n.get()).unwrap_or(usize::MAX);
                let last = self.ahead.last()?;
                match self.ahead.len().cmp(&most) {
                    std::cmp::Ordering::Less => None,
                    // The first waiter holds when any holder leaves.
                    std::cmp::Ordering::Equal => Some(Target::AnySlot),
                    std::cmp::Ordering::Greater => Some(Target::GoneOrHolds(last.key.clone())),
                }
            }),
        }
    }

    /// Returns entries ahead of which at least one must end before an entry of `mode` holds: it waits while all of them
    /// exist.
    pub(super) fn guards(&self, queue: &QueueKeys, mode: Mode) -> Vec<Ahead> {
        match self.target(queue, mode) {
            None => Vec::new(),
            Some(Target::Gone(key)) => self.ahead.iter().filter(|a| a.key == key).cloned().collect(),
            Some(Target::AnySlot | Target::GoneOrHolds(_)) => {
                let Mode::Slots(n) = mode else { return Vec::new() };
                self.ahead.iter().take(usize::try_from(n.get()).unwrap_or(usize::MAX)).cloned().collect()
            }
        }
    }

    /// Returns the lowest free one of `n` slots.
    pub(super) fn free_slot(&self, n: u32) -> Option<u32> {
        (1..=n).find(|number| !self.slots.contains(number))
    }
}

/// Returns the write that proves a hold, with the token as its revision.
pub(super) fn proof(queue: &QueueKeys, lease: i64, slot: Option<u32>) -> TxnOp {
    put(queue.hold(lease), Hold::now(slot).to_text(), lease)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::{LockName, queue};
    use proptest::prelude::*;
    use std::num::NonZeroU32;

    fn queue() -> QueueKeys {
        keys::Layout::new(&keys::Prefix::default()).queue(&LockName::new("a").expect("valid"))
    }

    fn seen(modes: &[Mode]) -> Seen {
        let entry = |(at, mode): (usize, &Mode)| {
            let lease = i64::try_from(at).expect("small") + 1;
            Ahead { key: queue().entry(*mode, lease).into_bytes(), created: lease }
        };
        Seen { ahead: modes.iter().enumerate().map(entry).collect(), ..Seen::default() }
    }

    fn slots(n: u32) -> Mode {
        Mode::Slots(NonZeroU32::new(n).expect("positive"))
    }

    fn some() -> impl Strategy<Value = Vec<Mode>> {
        let mixed = prop_oneof![Just(Mode::Exclusive), Just(Mode::Shared)];
        // Other programs' entries look exclusive and may be among slots.
        let slotted = prop_oneof![4 => Just(slots(3)), 1 => Just(Mode::Exclusive)];
        prop_oneof![prop::collection::vec(mixed, 1..9), prop::collection::vec(slotted, 1..9)]
    }

    #[test]
    fn the_lowest_free_slot_is_given_and_none_beyond_the_last() {
        let around = |slots: &[u32]| Seen { slots: slots.to_vec(), ..Seen::default() };
        assert_eq!(around(&[]).free_slot(2), Some(1));
        assert_eq!(around(&[1]).free_slot(2), Some(2));
        assert_eq!(around(&[2]).free_slot(2), Some(1));
        assert_eq!(around(&[1, 2]).free_slot(2), None);
    }

    proptest! {
        #[test]
        fn claim_without_a_target_holds_by_the_grant_rule(modes in some()) {
            for (at, mode) in modes.iter().enumerate() {
                let target = seen(&modes[..at]).target(&queue(), *mode);
                prop_assert_eq!(target.is_none(), at < queue::held(&modes), "{} of {:?}", at, modes);
            }
        }

        #[test]
        fn claim_waits_while_its_guards_stand(modes in some()) {
            let (mode, ahead) = (modes[modes.len() - 1], &modes[..modes.len() - 1]);
            let around = seen(ahead);
            let guards = around.guards(&queue(), mode);
            prop_assert_eq!(guards.is_empty(), around.target(&queue(), mode).is_none());
            let alone = Seen { ahead: guards.clone(), ..Seen::default() };
            prop_assert!(guards.is_empty() || alone.target(&queue(), mode).is_some());
        }
    }
}
