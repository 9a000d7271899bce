//! The grant rule.

use super::mode::Mode;

/// Returns how many of the first entries of a queue hold, given the modes of its live entries in order of arrival.
///
/// First come, first served: the holders are always a prefix of the queue, and an entry that could hold by its mode
/// still waits behind one that cannot. No other code decides which entries hold.
pub fn held(queue: &[Mode]) -> usize {
    match queue.first() {
        None => 0,
        Some(Mode::Exclusive) => 1,
        Some(Mode::Shared) => queue.iter().take_while(|m| **m == Mode::Shared).count(),
        Some(Mode::Slots(n)) => {
            let most = usize::try_from(n.get()).unwrap_or(usize::MAX);
            queue.iter().take(most).take_while(|m| **m == Mode::Slots(*n)).count()
        }
    }
}

/// Returns the indices of the entries ahead of `queue[index]` that must end before it can hold. These are all entries
/// for an exclusive one, and the entries that are not shared for a shared one. An entry with slots waits for any one of
/// the entries ahead if they are as many as slots; otherwise for none.
pub fn blockers(queue: &[Mode], index: usize) -> Vec<usize> {
    match queue[index] {
        Mode::Exclusive => (0..index).collect(),
        Mode::Shared => (0..index).filter(|i| queue[*i] != Mode::Shared).collect(),
        Mode::Slots(n) => {
            let most = usize::try_from(n.get()).unwrap_or(usize::MAX);
            if index < most { Vec::new() } else { (0..index).collect() }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::num::NonZeroU32;

    fn slots(n: u32) -> Mode {
        Mode::Slots(NonZeroU32::new(n).expect("positive"))
    }

    fn mixed() -> impl Strategy<Value = Vec<Mode>> {
        prop::collection::vec(prop_oneof![Just(Mode::Exclusive), Just(Mode::Shared)], 0..30)
    }

    #[test]
    fn grant_rule_matches_the_table() {
        use Mode::{Exclusive as X, Shared as S};
        for (queue, holders) in [
            (vec![], 0),
            (vec![X], 1),
            (vec![X, X], 1),
            (vec![X, S], 1),
            (vec![S, S, X, S], 2),
            (vec![slots(2)], 1),
            (vec![slots(2), slots(2), slots(2)], 2),
            (vec![slots(1), slots(1)], 1),
        ] {
            assert_eq!(held(&queue), holders, "{queue:?}");
        }
    }

    proptest! {
        #[test]
        fn holders_are_compatible(queue in mixed()) {
            let holders = &queue[..held(&queue)];
            prop_assert!(holders.len() <= 1 || holders.iter().all(|m| *m == Mode::Shared));
        }

        #[test]
        fn a_queue_with_entries_has_a_holder(queue in mixed()) {
            prop_assert_eq!(held(&queue) == 0, queue.is_empty());
        }

        #[test]
        fn an_arrival_changes_no_holder(queue in mixed(), new in prop_oneof![Just(Mode::Exclusive), Just(Mode::Shared)]) {
            let mut longer = queue.clone();
            longer.push(new);
            let before = held(&queue);
            prop_assert!(held(&longer) == before || (held(&longer) == before + 1 && before == queue.len()));
        }

        #[test]
        fn a_departure_takes_no_hold_away(queue in mixed(), at in any::<prop::sample::Index>()) {
            prop_assume!(!queue.is_empty());
            let gone = at.index(queue.len());
            let before = held(&queue);
            let mut shorter = queue.clone();
            shorter.remove(gone);
            prop_assert!(held(&shorter) >= before - usize::from(gone < before));
        }

        #[test]
        fn claim_without_blockers_holds(queue in mixed()) {
            for i in 0..queue.len() {
                prop_assert_eq!(blockers(&queue, i).is_empty(), i < held(&queue));
            }
        }

        #[test]
        fn slots_admit_their_number(n in 1u32..10, waiting in 0usize..30) {
            let queue = vec![slots(n); waiting];
            prop_assert_eq!(held(&queue), waiting.min(n as usize));
        }
    }
}
