//! The decisions, as pure functions of queues.
//!
//! Two facts carry them. A finding lasts: an arrival changes no holder, and a departure takes no hold away. So an entry
//! that one read shows as a holder holds until it is gone, and an entry waits as long as certain entries ahead are
//! present. A queue may lack entries that [`Extent::Needed`](super::store::Extent::Needed) leaves out: they have the mode
//! of the own claim.

use std::time::Duration;

use super::store::{About, Item, Key, Own, Queue, Target};
use crate::backend::record::mismatch as sentence;
use crate::lock::{ClaimId, Entry, LockName, LockStatus, Mode, queue};

/// The position of a claim.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Stand {
    /// An entry is absent.
    Gone,
    /// It holds all its names, except for a [`Step::Hold`](super::store::Step::Hold) that the store may ask for.
    Holds,
    /// It waits.
    Waits(Wait),
}

/// The position of a waiter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Wait {
    /// The number of entries ahead in the longest of its queues.
    pub(super) ahead: usize,
    /// The first entry of that queue.
    pub(super) first: Option<Box<Entry>>,
    /// The entries whose end may let it hold.
    pub(super) on: Vec<Target>,
    /// When the first of these ends without renewal.
    pub(super) due: Option<Duration>,
}

fn mode(item: &Item) -> Mode {
    item.mode.unwrap_or(Mode::Exclusive)
}

fn number(n: std::num::NonZeroU32) -> usize {
    usize::try_from(n.get()).unwrap_or(usize::MAX)
}

fn find<'a>(queue: &'a Queue, key: &Key) -> Option<&'a Item> {
    queue.items.iter().find(|item| item.key == *key)
}

fn ahead<'a>(queue: &'a Queue, of: &Item) -> impl DoubleEndedIterator<Item = &'a Item> {
    let at = of.at;
    queue.items.iter().filter(move |item| item.at < at)
}

/// Returns whether `item`, of `mode`, holds.
fn holds(queue: &Queue, item: &Item, mode_of: Mode) -> bool {
    let mut modes = vec![mode_of; item.at + 1];
    for other in ahead(queue, item) {
        modes[other.at] = mode(other);
    }
    queue::held(&modes) > item.at
}

/// Returns the entries whose end may let `item` hold, which waits in `mode_of`, and whether their hold is enough.
fn targets<'a>(queue: &'a Queue, item: &Item, mode_of: Mode) -> (Vec<&'a Item>, bool) {
    let nearest = |blocks: &dyn Fn(&Item) -> bool| ahead(queue, item).rev().find(|other| blocks(other));
    let one = |other: Option<&'a Item>| other.into_iter().collect();
    match mode_of {
        Mode::Exclusive => (one(nearest(&|_| true)), false),
        Mode::Shared => (one(nearest(&|other| mode(other) != Mode::Shared)), false),
        Mode::Slots(n) => match nearest(&|other| mode(other) != mode_of) {
            Some(other) => (vec![other], false),
            // The first waiter holds when any holder leaves.
            None if item.at == number(n) => (ahead(queue, item).collect(), false),
            None => (one(nearest(&|_| true)), true),
        },
    }
}

/// Returns the position of `own`.
pub(super) fn stand(queues: &[Queue], own: &Own) -> Stand {
    let mut longest: Option<(usize, &Queue)> = None;
    let (mut on, mut due) = (Vec::new(), None);
    if own.keys.is_empty() {
        longest = queues.first().map(|queue| (queue.items.len(), queue));
    } else if queues.len() < own.keys.len() {
        return Stand::Gone;
    }
    for (name, (queue, key)) in queues.iter().zip(&own.keys).enumerate() {
        let Some(item) = find(queue, key) else { return Stand::Gone };
        if holds(queue, item, own.mode) {
            continue;
        }
        let (items, or_holds) = targets(queue, item, own.mode);
        due = items.iter().filter_map(|item| item.left).chain(due).min();
        on.extend(items.iter().map(|item| Target { name, key: item.key.clone(), or_holds }));
        if longest.is_none_or(|(ahead, _)| item.at > ahead) {
            longest = Some((item.at, queue));
        }
    }
    let Some((ahead, queue)) = longest else { return Stand::Holds };
    let first = queue.items.first().and_then(|item| item.about.as_ref());
    Stand::Waits(Wait { ahead, first: first.map(|about| Box::new(about.entry.clone())), on, due })
}

/// Returns why `own` cannot stay, if an entry of dlock that is shown ahead is of another kind.
pub(super) fn mismatch(queues: &[Queue], own: &Own) -> Option<String> {
    queues.iter().zip(&own.keys).find_map(|(queue, key)| {
        let odd = |other: &&Item| !other.foreign && !mode(other).mixes_with(own.mode);
        let other = ahead(queue, find(queue, key)?).find(odd)?;
        let owner = other.about.as_ref().map(|about| about.entry.owner().to_string());
        Some(sentence(&queue.name, owner.as_deref(), other.mode, own.mode))
    })
}

/// Returns entries that prove, while all of them are present, that `item` of a whole queue waits; none if it holds.
pub(super) fn evidence(queue: &Queue, item: &Item) -> Vec<Key> {
    let mode_of = mode(item);
    if holds(queue, item, mode_of) {
        return Vec::new();
    }
    let (mut items, or_holds) = targets(queue, item, mode_of);
    if let (Mode::Slots(n), true) = (mode_of, or_holds || items.len() > 1) {
        items = ahead(queue, item).take(number(n)).collect();
    }
    items.into_iter().map(|item| item.key.clone()).collect()
}

/// Returns the older claims in whole queues that `own` supersedes if they wait, each with its names.
pub(super) fn older(queues: &[Queue], own: &Own) -> Vec<(ClaimId, Vec<LockName>)> {
    let mut all: Vec<(ClaimId, Vec<LockName>)> = Vec::new();
    for (queue, key) in queues.iter().zip(&own.keys) {
        let Some(item) = find(queue, key) else { continue };
        for other in ahead(queue, item) {
            let yields = other.about.as_ref().filter(|about| about.supersede);
            let Some(about) = yields.filter(|_| all.iter().all(|(id, _)| *id != other.id)) else {
                continue;
            };
            all.push((other.id, about.names.clone()));
        }
    }
    all
}

/// Returns whether no queue shows that an entry of `own` is absent.
pub(super) fn may_stand(queues: &[Queue], own: &Own) -> bool {
    let mut each = own.names.iter().zip(&own.keys);
    each.all(|(name, key)| queues.iter().all(|queue| queue.name != *name || find(queue, key).is_some()))
}

/// Returns a free slot of each name, or `None` for each in another mode. `None` if a queue shows no free one.
///
/// The choice 0 is the lowest slots. The next choice is for a claim whose slots were refused while the queue shows them as
/// free, because this user cannot read the slot of another user's entry. The first choice follows the last one.
pub(super) fn slots(queues: &[Queue], own: &Own, mut choice: usize) -> Option<Vec<Option<u32>>> {
    let Mode::Slots(n) = own.mode else { return Some(vec![None; own.names.len()]) };
    let slot_of = |queue: &Queue| {
        let is_free = |slot: &u32| queue.items.iter().all(|item| item.slot != Some(*slot));
        // One of so many is free, since the own entry has none.
        let free: Vec<u32> = (1..=n.get()).filter(is_free).take(queue.items.len()).collect();
        let at = choice.checked_rem(free.len())?;
        choice /= free.len();
        Some(Some(free[at]))
    };
    queues.iter().map(slot_of).collect()
}

/// Returns the own entries, in the order of the names.
pub(super) fn own_items<'a>(queues: &'a [Queue], own: &Own) -> Vec<&'a Item> {
    queues.iter().zip(&own.keys).filter_map(|(queue, key)| find(queue, key)).collect()
}

/// Returns the own entries, each with its lock, that are among as many first ones as slots now, and that were not `before`.
pub(super) fn passed(queues: &[Queue], own: &Own, before: &[Item]) -> Vec<(LockName, Item)> {
    let Mode::Slots(n) = own.mode else { return Vec::new() };
    let each = own.names.iter().zip(own_items(queues, own)).zip(before);
    let passed = each.filter(|((_, now), before)| now.at < number(n) && before.at >= number(n));
    passed.map(|((name, now), _)| (name.clone(), now.clone())).collect()
}

/// Returns whether each own entry has a slot.
pub(super) fn has_slots(queues: &[Queue], own: &Own) -> bool {
    own_items(queues, own).iter().all(|item| item.slot.is_some())
}

/// Returns the entry of dlock's claim `id`.
pub(super) fn of_claim(queue: &Queue, id: ClaimId) -> Option<&Item> {
    queue.items.iter().find(|item| item.id == id && !item.foreign)
}

/// Returns the entry of the claim `id` in a whole queue if it holds.
pub(super) fn holder(queue: &Queue, id: ClaimId) -> Option<&Item> {
    of_claim(queue, id).filter(|item| holds(queue, item, mode(item)))
}

/// Returns a whole queue for display.
pub(super) fn status(queue: &Queue) -> LockStatus {
    let modes: Vec<Mode> = queue.items.iter().map(mode).collect();
    let (holders, waiters) = queue.items.split_at(queue::held(&modes));
    let shown = |item: &Item, is_holder: bool| {
        let Some(about) = &item.about else { return Entry { claim: Some(item.id), ..Entry::default() } };
        let About { entry, held_since, .. } = &**about;
        Entry {
            slot: item.slot.filter(|_| is_holder),
            token: item.token.filter(|_| is_holder),
            since: held_since.filter(|_| is_holder).or(entry.since),
            ttl: item.left.or(entry.ttl),
            ..entry.clone()
        }
    };
    let each = |items: &[Item], is_holder| items.iter().map(|item| shown(item, is_holder)).collect();
    LockStatus::of(&queue.name, each(holders, true), each(waiters, false))
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;
