//! Detecting dead claims by the observer's own clock, from its first observation of an unchanged entry.

use std::collections::HashMap;
use std::time::Duration;

use super::queue::{Document, QueueEntry};
use crate::lock::{ClaimId, Moment};

/// How much longer than its ttl an entry must be unchanged, because clocks differ in rate. With the second by which a
/// read may come later, an entry is gone 5 s after its ttl.
pub(super) const MARGIN: Duration = Duration::from_secs(4);

/// An observer's knowledge of a queue. An owner counts its ttl from before it sent the observed state. So no owner
/// relies on an entry that was unchanged for its ttl after the observation.
#[derive(Debug, Default)]
pub(super) struct Watch {
    seen: HashMap<ClaimId, Seen>,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    /// The number of entries ahead of it.
    ahead: usize,
    beat: u64,
    /// When it was first seen with this beat.
    at: Moment,
    ttl: Duration,
}

impl Seen {
    fn dies_at(&self) -> Moment {
        self.at + self.ttl + MARGIN
    }
}

impl Watch {
    /// Applies `document`, which was read before `now`.
    pub(super) fn look(&mut self, document: &Document, now: Moment) {
        let known = |(ahead, place): (usize, &QueueEntry)| {
            let (id, beat, ttl) = (place.id()?, place.beat, place.ttl());
            let old = self.seen.get(&id).filter(|old| (old.beat, old.ttl) == (beat, ttl));
            Some((id, Seen { ahead, beat, at: old.map_or(now, |old| old.at), ttl }))
        };
        self.seen = document.claims.iter().enumerate().filter_map(known).collect();
    }

    /// Returns the number of entries ahead of the claim `id`, if it is there.
    pub(super) fn ahead(&self, id: ClaimId) -> Option<usize> {
        self.seen.get(&id).map(|seen| seen.ahead)
    }

    /// Returns the claims other than `own` that are dead at `now`.
    pub(super) fn dead(&self, own: ClaimId, now: Moment) -> Vec<ClaimId> {
        let dead = |(id, seen): (&ClaimId, &Seen)| (*id != own && now >= seen.dies_at()).then_some(*id);
        self.seen.iter().filter_map(dead).collect()
    }

    /// Returns when the next claim other than `own` is dead, if nothing changes.
    pub(super) fn next_death(&self, own: ClaimId) -> Moment {
        let others = self.seen.iter().filter(|(id, _)| **id != own);
        others.map(|(_, seen)| seen.dies_at()).min().unwrap_or(Moment::NEVER)
    }

    /// Returns the rest of the ttl of the claim `id`, as far as this observer knows.
    pub(super) fn left(&self, id: ClaimId, now: Moment) -> Option<Duration> {
        self.seen.get(&id).map(|seen| (seen.at + seen.ttl).since(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::record::Record;
    use crate::lock::{Holder, Mode, Request};

    fn at(seconds: u64) -> Moment {
        Moment::from_nanos(seconds * 1_000_000_000)
    }

    fn document(id: ClaimId) -> Document {
        let request = Request {
            names: vec!["a".parse().expect("valid")],
            id,
            mode: Mode::Exclusive,
            ttl: Duration::from_secs(10),
            holder: Holder::default(),
            ancestors: Vec::new(),
            supersede: false,
        };
        let mut document = Document::empty(&request.names[0], id);
        document.enter(id, Record::of(&request, request.ttl), 1, 0);
        document
    }

    #[test]
    fn claim_is_dead_after_standing_still_for_ttl_and_margin() {
        let (id, other) = (ClaimId::from_number(7), ClaimId::from_number(8));
        let (mut watch, mut document) = (Watch::default(), document(id));
        watch.look(&document, at(100));
        watch.look(&document, at(105));
        assert_eq!((watch.dead(other, at(113)), watch.dead(other, at(114))), (vec![], vec![id]));
        assert_eq!(watch.dead(id, at(114)), []);
        assert_eq!((watch.next_death(other), watch.next_death(id)), (at(114), Moment::NEVER));
        assert_eq!(watch.left(id, at(104)), Some(Duration::from_secs(6)));
        document.renewed(id);
        watch.look(&document, at(113));
        assert_eq!((watch.dead(other, at(126)), watch.dead(other, at(127))), (vec![], vec![id]));
    }

    #[test]
    fn returning_claim_is_observed_anew() {
        let (id, other) = (ClaimId::from_number(7), ClaimId::from_number(8));
        let (mut watch, mut document) = (Watch::default(), document(id));
        let full = document.clone();
        watch.look(&document, at(100));
        document.remove(id);
        watch.look(&document, at(101));
        assert_eq!(watch.dead(other, at(200)), []);
        watch.look(&full, at(200));
        assert_eq!((watch.dead(other, at(213)), watch.dead(other, at(214))), (vec![], vec![id]));
    }
}
