//! What a claim without a hold wants of the nodes for one name.

use std::time::Duration;

use super::majority;
use super::node_claim::NodeClaim;
use super::reply::Row;
use crate::lock::{Granted, Mode, Moment};

/// Which slot of a name a claim wants everywhere, if it knows one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Want {
    slot: Option<u32>,
    /// Whether a majority gave it the name.
    pub(super) won: bool,
}

impl Want {
    /// That of a claim which stands so, for its `n`th name.
    pub(super) fn of(node_claims: &[NodeClaim], n: usize, mode: Mode, ttl: Duration, now: Moment) -> Self {
        match majority::won_name(node_claims, n, mode, ttl, now) {
            Some(won) => Self { slot: won.given.slot, won: true },
            None => Self { slot: majority::slot_to_want(node_claims, n, mode, now), won: false },
        }
    }

    /// The slot that it may have at a node which says `row`, if it wants one.
    pub(super) fn wish(self, row: &Row) -> Option<u32> {
        self.slot.filter(|slot| !row.taken.contains(slot))
    }

    /// What goes back of what the node gave for the `n`th name: somebody who comes first waits for it, it is another slot, or
    /// the node takes it for a part of a majority that there is no more. Also what was given back and is still there.
    pub(super) fn goes_back(self, node_claim: &NodeClaim, n: usize) -> Option<Granted> {
        let row = &node_claim.rows[n];
        let wish = self.wish(row);
        row.granted().filter(|given| {
            let other = wish.is_some_and(|slot| given.slot != Some(slot));
            let untrue = row.assured && !self.won;
            row.behind || other || untrue || node_claim.present(n).is_none()
        })
    }

    /// What the node gave for the `n`th name and does not know to be a part of what a majority gave.
    pub(super) fn to_assure(self, node_claim: &NodeClaim, n: usize) -> Option<Granted> {
        let given = node_claim.present(n).filter(|given| given.slot.is_some() && given.slot == self.slot)?;
        (self.won && !node_claim.rows[n].assured).then_some(given)
    }
}
