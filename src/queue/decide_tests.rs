//! The decisions over random queues, and by example.

use std::num::NonZeroU32;

use proptest::prelude::*;

use super::*;
use crate::lock::FencingToken;

fn slots_of(n: u32) -> Mode {
    Mode::Slots(NonZeroU32::new(n).expect("positive"))
}

fn key(at: usize) -> Key {
    Key { order: at as u64, text: format!("e{at}") }
}

fn item(at: usize, mode: Option<Mode>, foreign: bool) -> Item {
    let entry = Entry { host: Some(format!("h{at}")), mode, foreign, ..Entry::default() };
    let about = About {
        entry,
        held_since: None,
        names: vec![name()],
        ttl: Duration::from_secs(9),
        supersede: at.is_multiple_of(2),
    };
    Item {
        at,
        key: key(at),
        id: ClaimId::from_number(at as u128),
        foreign,
        mode,
        slot: None,
        token: FencingToken::new(at as u64 + 1),
        left: Some(Duration::from_secs(at as u64 + 1)),
        about: Some(Box::new(about)),
    }
}

fn name() -> LockName {
    "x".parse().expect("a name")
}

fn queue_of(modes: &[Option<Mode>]) -> Queue {
    let items = modes.iter().enumerate().map(|(at, mode)| item(at, *mode, false)).collect();
    Queue { name: name(), items }
}

fn own(at: usize, mode: Mode) -> Own {
    let id = ClaimId::from_number(at as u128);
    Own { id, names: vec![name()], mode, ttl: Duration::from_secs(9), keys: vec![key(at)] }
}

/// Returns the queue as [`super::super::store::Extent::Needed`] shows it to its last entry.
fn needed(whole: &Queue, mode_of: Mode) -> Queue {
    let last = whole.items.len() - 1;
    let first = if let Mode::Slots(n) = mode_of { number(n) } else { 1 };
    let other = whole.items[..last].iter().rposition(|item| mode(item) != mode_of);
    let is_shown = |item: &&Item| item.at < first || item.at + 1 >= last || Some(item.at) == other;
    Queue { name: name(), items: whole.items.iter().filter(is_shown).cloned().collect() }
}

fn without(queue: &Queue, gone: usize) -> Queue {
    let left = queue.items.iter().filter(|item| item.at != gone).cloned();
    let items = left.map(|item| Item { at: item.at - usize::from(item.at > gone), ..item }).collect();
    Queue { name: name(), items }
}

fn waits_on(queue: &Queue, own: &Own) -> Option<Vec<Target>> {
    match stand(std::slice::from_ref(queue), own) {
        Stand::Waits(wait) => Some(wait.on),
        Stand::Holds => None,
        Stand::Gone => panic!("it is in the queue"),
    }
}

/// Queues of exclusive, shared and unreadable entries, or with slots, or of both kinds by chance.
fn queues() -> impl Strategy<Value = Vec<Option<Mode>>> {
    let plain = prop_oneof![Just(Some(Mode::Exclusive)), Just(Some(Mode::Shared)), Just(None)];
    let slotted = prop_oneof![20 => Just(Some(slots_of(3))), 1 => Just(Some(Mode::Exclusive))];
    prop_oneof![prop::collection::vec(plain, 1..14), prop::collection::vec(slotted, 1..14)]
}

proptest! {
    #[test]
    fn a_claim_waits_for_nothing_exactly_if_it_holds(modes in queues()) {
        let whole = queue_of(&modes);
        let last = modes.len() - 1;
        let mode_of = modes[last].unwrap_or(Mode::Exclusive);
        let all: Vec<Mode> = whole.items.iter().map(mode).collect();
        let on = waits_on(&needed(&whole, mode_of), &own(last, mode_of));
        prop_assert_eq!(on.is_none(), queue::held(&all) > last);
        prop_assert!(on.is_none_or(|on| !on.is_empty()));
    }

    #[test]
    fn needed_entries_decide_as_the_whole_queue_does(modes in queues()) {
        let whole = queue_of(&modes);
        let last = modes.len() - 1;
        let mode_of = modes[last].unwrap_or(Mode::Exclusive);
        let part = needed(&whole, mode_of);
        prop_assert_eq!(waits_on(&part, &own(last, mode_of)), waits_on(&whole, &own(last, mode_of)));
    }

    #[test]
    fn departure_before_a_hold_is_of_a_target(
        modes in queues(), gone in any::<prop::sample::Index>()
    ) {
        let whole = queue_of(&modes);
        let last = modes.len() - 1;
        prop_assume!(last > 0);
        let gone = gone.index(last);
        let own = own(last, modes[last].unwrap_or(Mode::Exclusive));
        if let Some(on) = waits_on(&whole, &own) && waits_on(&without(&whole, gone), &own).is_none() {
            prop_assert!(on.iter().any(|target| target.key == key(gone)), "{on:?} without {gone}");
        }
    }

    #[test]
    fn a_claim_waits_while_its_evidence_is_present(
        modes in queues(), gone in prop::collection::vec(any::<prop::sample::Index>(), 0..12)
    ) {
        let whole = queue_of(&modes);
        let last = whole.items.last().expect("an entry").clone();
        let proof = evidence(&whole, &last);
        prop_assert_eq!(proof.is_empty(), holds(&whole, &last, mode(&last)));
        let mut left = whole;
        for gone in gone {
            let at = gone.index(left.items.len());
            if !proof.contains(&left.items[at].key) && left.items[at].key != last.key {
                left = without(&left, at);
            }
        }
        let item = find(&left, &last.key).expect("it stays");
        prop_assert!(proof.is_empty() || !holds(&left, item, mode(item)));
    }

    #[test]
    fn a_free_slot_is_the_lowest_untaken_one(taken in prop::collection::vec(1u32..=3, 0..3)) {
        let mut queue = queue_of(&[Some(slots_of(3)); 4]);
        for (item, slot) in queue.items.iter_mut().zip(&taken) {
            item.slot = Some(*slot);
        }
        let free = (1..=3).find(|slot| !taken.contains(slot));
        prop_assert_eq!(slots(&[queue], &own(3, slots_of(3)), 0), free.map(|slot| vec![Some(slot)]));
    }
}

#[test]
fn choices_of_slots_are_all_free_ones_of_each_name_in_turn() {
    let mut queue = queue_of(&[Some(slots_of(4)); 3]);
    queue.items[0].slot = Some(2);
    let two = [queue.clone(), queue];
    let choices = (0..10).map(|choice| slots(&two, &own(2, slots_of(4)), choice).expect("free ones"));
    let found: Vec<[u32; 2]> = choices.map(|slots| [0, 1].map(|at| slots[at].expect("a slot"))).collect();
    assert_eq!(found, [[1, 1], [3, 1], [4, 1], [1, 3], [3, 3], [4, 3], [1, 4], [3, 4], [4, 4], [1, 1]]);
}

#[test]
fn later_of_two_kinds_is_refused_but_not_behind_another_program() {
    let mut queue = queue_of(&[Some(slots_of(3)), Some(Mode::Exclusive)]);
    let of = |queue: &Queue, at: usize, mode| mismatch(std::slice::from_ref(queue), &own(at, mode));
    assert!(of(&queue, 1, Mode::Exclusive).is_some_and(|why| why.contains("3 slots")));
    assert_eq!(of(&queue, 0, slots_of(3)), None, "the earlier one stays");
    queue.items[0].foreign = true;
    assert_eq!(of(&queue, 1, Mode::Exclusive), None);
}

#[test]
fn superseding_finds_older_waiters_with_the_flag() {
    let queue = queue_of(&[Some(Mode::Exclusive); 5]);
    let found: Vec<_> =
        older(std::slice::from_ref(&queue), &own(4, Mode::Exclusive)).into_iter().map(|(id, _)| id).collect();
    assert_eq!(found, [0, 2].map(ClaimId::from_number));
    assert_eq!(evidence(&queue, &queue.items[2]), [key(1)], "its nearest blocker");
    assert_eq!(evidence(&queue, &queue.items[0]), [], "a holder is left alone");
}

#[test]
fn two_names_are_held_together_or_wait_in_the_longer_queue() {
    let (short, long) = (queue_of(&[Some(Mode::Exclusive)]), queue_of(&[Some(Mode::Exclusive); 3]));
    let both = Own { names: vec![name(), name()], keys: vec![key(0), key(2)], ..own(0, Mode::Exclusive) };
    let Stand::Waits(Wait { ahead, first, on, due }) = stand(&[short.clone(), long], &both) else {
        panic!("waits")
    };
    assert_eq!((ahead, on), (2, vec![Target { name: 1, key: key(1), or_holds: false }]));
    assert_eq!((first.and_then(|entry| entry.host), due), (Some("h0".into()), Some(Duration::from_secs(2))));
    assert_eq!(
        stand(&[short.clone(), short.clone()], &Own { keys: vec![key(0); 2], ..both.clone() }),
        Stand::Holds
    );
    assert_eq!(stand(&[short.clone(), short], &both), Stand::Gone, "an entry is absent");
}

#[test]
fn an_entry_passes_once_it_is_among_as_many_as_slots() {
    let queue = queue_of(&[Some(slots_of(2)); 4]);
    let has_passed = |at: usize, before: &[Item], mode| {
        !passed(std::slice::from_ref(&queue), &own(at, mode), before).is_empty()
    };
    assert!(has_passed(1, &queue.items[2..3], slots_of(2)));
    assert!(!has_passed(1, &queue.items[1..2], slots_of(2)), "it was there before");
    assert!(!has_passed(2, &queue.items[3..4], slots_of(2)), "it is not there yet");
    assert!(!has_passed(1, &[], slots_of(2)), "it arrived there");
    assert!(!has_passed(0, &queue.items[1..2], Mode::Exclusive), "only slots are taken in a step");
}
