//! Counting: what a majority of the nodes says.
//!
//! The algorithm is Redlock (<https://redis.io/docs/latest/develop/use/patterns/distributed-locks/>): a claim holds
//! if more than half of the nodes gave it the lock, for as long as the shortest-lived of some majority lasts.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use super::node_claim::{NodeClaim, Phase};
use crate::lock::{FencingToken, Grant, Granted, Mode, Moment};

/// How many are more than half of `nodes`.
pub(super) const fn of(nodes: usize) -> usize {
    nodes / 2 + 1
}

/// What a majority gave.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Won<T = Vec<Granted>> {
    /// Its slot and the highest token, of one name or of each.
    pub(super) given: T,
    /// From when the ttl certainly counts.
    pub(super) counts_from: Moment,
    /// Whether a majority of those that gave it gives no token that is not higher: whoever follows has what it gets from
    /// one of these.
    pub(super) firm: bool,
}

/// What the node claims give together for the `n`th name, if that is a majority.
pub(super) fn won_name(
    node_claims: &[NodeClaim],
    n: usize,
    mode: Mode,
    ttl: Duration,
    now: Moment,
) -> Option<Won<Granted>> {
    let most = of(node_claims.len());
    let mut by_slot: BTreeMap<Option<u32>, Vec<(Moment, &NodeClaim)>> = BTreeMap::new();
    let mut highest: BTreeMap<Option<u32>, FencingToken> = BTreeMap::new();
    for node_claim in node_claims.iter().filter(|node_claim| now < node_claim.from + ttl) {
        // One that holds a majority may be here without a slot.
        let whole = |granted: &Granted| granted.slot.is_some() == matches!(mode, Mode::Slots(_));
        if let Some(granted) = node_claim.counted(n, now).filter(whole) {
            by_slot.entry(granted.slot).or_default().push((node_claim.from, node_claim));
            let token = highest.entry(granted.slot).or_insert(granted.token);
            *token = (*token).max(granted.token);
        }
    }
    let (slot, mut given) = by_slot.into_iter().find(|(_, given)| given.len() >= most)?;
    given.sort_by_key(|(from, _)| Reverse(*from));
    let token = *highest.get(&slot)?;
    let gives_no_lower = |(_, node_claim): &&(Moment, &NodeClaim)| node_claim.rows[n].fence >= token.get();
    Some(Won {
        given: Granted { token, slot },
        counts_from: given[most - 1].0,
        firm: given.iter().filter(gives_no_lower).count() >= most,
    })
}

/// What the node claims give together, if that is a majority for every name.
pub(super) fn won(
    node_claims: &[NodeClaim],
    names: usize,
    mode: Mode,
    ttl: Duration,
    now: Moment,
) -> Option<Won> {
    let nothing = Won { given: Vec::with_capacity(names), counts_from: Moment::NEVER, firm: true };
    (0..names).try_fold(nothing, |mut won, n| {
        let name = won_name(node_claims, n, mode, ttl, now)?;
        won.given.push(name.given);
        won.counts_from = won.counts_from.min(name.counts_from);
        won.firm &= name.firm;
        Some(won)
    })
}

/// How many node claims are in all their queues, with a part of the hold if there is one, and have not run out.
pub(super) fn alive(node_claims: &[NodeClaim], hold: Option<&Grant>, ttl: Duration, now: Moment) -> usize {
    let carries = |node_claim: &NodeClaim| {
        hold.is_none_or(|hold| {
            hold.names.iter().enumerate().all(|(n, hold)| node_claim.carries(n, hold, now))
        })
    };
    node_claims
        .iter()
        .filter(|node_claim| {
            node_claim.phase == Phase::In && now < node_claim.from + ttl && carries(node_claim)
        })
        .count()
}

/// Whether so many node claims are out that no majority is left.
pub(super) fn lost(node_claims: &[NodeClaim], now: Moment) -> bool {
    node_claims.iter().filter(|node_claim| node_claim.is_out(now)).count() >= of(node_claims.len())
}

/// Whether a hold of `given` is certainly no more one: a majority has, or may have, given the lock to somebody else.
pub(super) fn taken_away(node_claims: &[NodeClaim], given: &[Granted], now: Moment) -> bool {
    let without = |node_claim: &&NodeClaim| {
        let other =
            |(n, hold): (usize, &Granted)| node_claim.present(n).is_none_or(|part| part.slot != hold.slot);
        node_claim.is_out(now) || (node_claim.phase == Phase::In && given.iter().enumerate().any(other))
    };
    node_claims.iter().filter(without).count() >= of(node_claims.len())
}

/// Whether a majority of nodes says that the same other one has one of the locks, or that all its slots are held, so that
/// there is nothing to be gained by waiting a moment.
pub(super) fn decided(node_claims: &[NodeClaim], names: usize, mode: Mode) -> bool {
    (0..names).any(|n| {
        if let Mode::Slots(slots) = mode {
            let most = usize::try_from(slots.get()).unwrap_or(usize::MAX);
            let full =
                |node_claim: &&NodeClaim| node_claim.rows.get(n).is_some_and(|row| row.taken.len() >= most);
            return node_claims.iter().filter(full).count() >= of(node_claims.len());
        }
        let mut others: BTreeMap<String, usize> = BTreeMap::new();
        for row in node_claims
            .iter()
            .filter_map(|node_claim| node_claim.rows.get(n))
            .filter(|row| row.granted().is_none())
        {
            let first = row.base.lead.as_ref().and_then(|lead| lead.claim);
            let other = match &row.base.value {
                Some(value) if value.starts_with("redlock:") => first.map(|id| id.to_string()),
                value => value.clone(),
            };
            if let Some(other) = other {
                *others.entry(other).or_default() += 1;
            }
        }
        others.into_values().any(|count| count >= of(node_claims.len()))
    })
}

/// For a claim that a majority gave slots of the `n`th name, but different ones: the slot that it wants everywhere. `None`
/// if there is nothing to choose, or, until more is heard of those who have left, nothing that a majority can give.
pub(super) fn slot_to_want(node_claims: &[NodeClaim], n: usize, mode: Mode, now: Moment) -> Option<u32> {
    let Mode::Slots(slots) = mode else { return None };
    let given: Vec<(&NodeClaim, Granted)> =
        node_claims.iter().filter_map(|node_claim| Some((node_claim, node_claim.counted(n, now)?))).collect();
    let most = of(node_claims.len());
    if given.len() < most {
        return None;
    }
    let taken = given.iter().map(|(node_claim, _)| node_claim.rows[n].taken.len()).sum::<usize>();
    let last = slots.get().min(u32::try_from(taken + node_claims.len() + 1).unwrap_or(u32::MAX));
    let score = |slot: u32| {
        let own = given.iter().filter(|(_, granted)| granted.slot == Some(slot)).count();
        let open = given.iter().filter(|(node_claim, _)| !node_claim.rows[n].taken.contains(&slot)).count();
        (open, own, Reverse(slot))
    };
    let best = (1..=last).map(score).filter(|(open, _, _)| *open >= most).max();
    best.map(|(_, _, Reverse(slot))| slot)
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::super::reply::{Position, Row};
    use super::*;
    use crate::backend::redis::redlock::row;
    use proptest::prelude::*;

    const TTL: Duration = Duration::from_secs(10);
    const BEGIN: Moment = Moment::from_nanos(3_600_000_000_000);

    /// A node claim that gave `token` and `slot` for one name, `seconds` after the beginning, by a node of that uptime.
    fn node_claim(token: Option<u64>, slot: Option<u32>, seconds: u64, uptime: u64) -> NodeClaim {
        let granted = token.and_then(FencingToken::new).map(|token| Granted { token, slot });
        let base = row::Row { granted, ..row::Row::default() };
        let rows = vec![Row { base, score: Some(1), fence: token.unwrap_or(0), ..Row::default() }];
        let mut node_claim = NodeClaim::new(1);
        node_claim.from = BEGIN + Duration::from_secs(seconds);
        node_claim.take(
            1,
            Position { found: true, rows, uptime: Duration::from_secs(uptime), run: String::new() },
            TTL,
            BEGIN,
        );
        node_claim
    }

    fn has(node_claims: &[NodeClaim], mode: Mode, seconds: u64) -> Option<Won> {
        won(node_claims, 1, mode, TTL, BEGIN + Duration::from_secs(seconds))
    }

    #[test]
    fn a_hold_lasts_as_long_as_the_shortest_lived_of_the_best_majority() {
        let node_claims: Vec<NodeClaim> =
            [4, 1, 3, 0, 2].into_iter().map(|at| node_claim(Some(7), None, at, 60)).collect();
        let won = has(&node_claims, Mode::Exclusive, 5).expect("a majority");
        assert_eq!(won.counts_from, BEGIN + Duration::from_secs(2));
        assert!(won.firm);
        assert!(has(&node_claims, Mode::Exclusive, 12).is_none(), "three have run out");
        assert_eq!(alive(&node_claims, None, TTL, BEGIN + Duration::from_secs(12)), 2);
    }

    #[test]
    fn the_highest_token_counts_once_a_majority_knows_it() {
        let mut node_claims: Vec<NodeClaim> =
            [7, 7, 9, 7].into_iter().map(|token| node_claim(Some(token), None, 0, 60)).collect();
        node_claims.push(node_claim(None, None, 0, 60));
        let won = has(&node_claims, Mode::Exclusive, 1).expect("a majority");
        assert_eq!((won.given[0].token.get(), won.firm), (9, false));
        node_claims[0].rows[0].fence = 9;
        node_claims[4].rows[0].fence = 10;
        assert!(
            !has(&node_claims, Mode::Exclusive, 1).expect("a majority").firm,
            "one that gave nothing proves nothing"
        );
        node_claims[1].rows[0].fence = 10;
        assert!(has(&node_claims, Mode::Exclusive, 1).expect("a majority").firm);
    }

    #[test]
    fn a_node_that_is_too_young_has_no_say() {
        let mut node_claims: Vec<NodeClaim> =
            (0..5).map(|n| node_claim(Some(7), None, 9, if n < 2 { 60 } else { 6 })).collect();
        assert!(has(&node_claims, Mode::Exclusive, 3).is_none());
        assert!(has(&node_claims, Mode::Exclusive, 4).is_some());
        node_claims[4].give_back(0, FencingToken::new(7).expect("positive"));
        node_claims[3].give_back(0, FencingToken::new(7).expect("positive"));
        node_claims[2].give_back(0, FencingToken::new(7).expect("positive"));
        assert!(has(&node_claims, Mode::Exclusive, 4).is_none(), "what was given back counts no more");
    }

    #[test]
    fn a_slot_counts_if_a_majority_gave_the_same() {
        let mode = Mode::Slots(NonZeroU32::new(3).expect("positive"));
        let given = |slots: [Option<u32>; 5]| -> Vec<NodeClaim> {
            slots.into_iter().map(|slot| node_claim(Some(7), slot, 0, 60)).collect()
        };
        assert_eq!(
            has(&given([Some(1), Some(2), Some(2), Some(3), Some(2)]), mode, 1).expect("2").given[0].slot,
            Some(2)
        );
        let split = given([Some(1), Some(2), Some(1), Some(2), None]);
        assert!(has(&split, mode, 1).is_none());
        assert!(has(&given([None, None, None, Some(1), Some(2)]), mode, 1).is_none(), "no slot is none");
        assert!([1, 2].contains(&slot_to_want(&split, 0, mode, BEGIN).expect("one to fan_out on")));
    }

    proptest! {
        /// Whatever five nodes gave to two claims, each to one of them, not both hold.
        #[test]
        fn two_majorities_are_never(given in prop::collection::vec(0u8..3, 5)) {
            let of = |claim: u8| -> Vec<NodeClaim> {
                given.iter().map(|to| node_claim((*to == claim).then_some(7), None, 0, 60)).collect()
            };
            let both = [1, 2].map(|claim| has(&of(claim), Mode::Exclusive, 1).is_some());
            prop_assert!(both != [true, true]);
        }
    }
}
