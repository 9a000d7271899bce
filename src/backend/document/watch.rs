//! Detecting dead claims by the observer's own clock, from its first observation of an unchanged entry.

use std::collections::HashMap;
use std::time::Duration;

use super::queue::{Document, QueueEntry};
use crate::lock::{ClaimId, Moment};

/// How much longer than its ttl an entry must be unchanged, because clocks differ in rate. With the second by which a
/// read may come later, an entry is gone 5 s after its ttl.
pub const MARGIN: Duration = Duration::from_secs(4);

/// An observer's knowledge of a queue. An owner counts its ttl from before it sent the observed state. So no owner
/// relies on an entry that was unchanged for its ttl after the observation.
#[derive(Debug, Default)]
pub struct Watch {
    seen: HashMap<ClaimId, Seen>,
}

#[derive(Debug)]
struct Seen {
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
    /// Applies `document`, which was read before `now`; `None` means that there is no queue.
    pub fn look(&mut self, document: Option<&Document>, now: Moment) {
        let places: &[QueueEntry] = document.map_or(&[], |document| &document.claims);
        let present = |id: &ClaimId| document.is_some_and(|document| document.position(*id).is_some());
        self.seen.retain(|id, _| present(id));
        for place in places {
            let Some(id) = place.id() else { continue };
            let new = Seen { beat: place.beat, at: now, ttl: place.ttl() };
            self.seen
                .entry(id)
                .and_modify(|seen| {
                    if (seen.beat, seen.ttl) != (new.beat, new.ttl) {
                        *seen = Seen { ..new };
                    }
                })
                .or_insert(Seen { beat: place.beat, at: now, ttl: place.ttl() });
        }
    }

    /// Returns whether the claim `id` is dead at `now`.
    pub fn is_dead(&self, id: ClaimId, now: Moment) -> bool {
        self.seen.get(&id).is_some_and(|seen| now >= seen.dies_at())
    }

    /// Returns when the next claim other than `own` is dead, if nothing changes.
    pub fn next_death(&self, own: Option<ClaimId>) -> Moment {
        let others = self.seen.iter().filter(|(id, _)| Some(**id) != own);
        others.map(|(_, seen)| seen.dies_at()).min().unwrap_or(Moment::NEVER)
    }

    /// Returns the rest of the ttl of the claim `id`, as far as this observer knows.
    pub fn left(&self, id: ClaimId, now: Moment) -> Option<Duration> {
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
        document.enter(&request, Record::of(&request, request.ttl), 1, 0).expect("enters");
        document
    }

    #[test]
    fn claim_is_dead_after_standing_still_for_ttl_and_margin() {
        let id = ClaimId::from_number(7);
        let (mut watch, mut document) = (Watch::default(), document(id));
        watch.look(Some(&document), at(100));
        watch.look(Some(&document), at(105));
        assert!(!watch.is_dead(id, at(113)) && watch.is_dead(id, at(114)));
        assert_eq!((watch.next_death(None), watch.next_death(Some(id))), (at(114), Moment::NEVER));
        assert_eq!(watch.left(id, at(104)), Some(Duration::from_secs(6)));
        document.renew(id);
        watch.look(Some(&document), at(113));
        assert!(!watch.is_dead(id, at(126)) && watch.is_dead(id, at(127)));
    }

    #[test]
    fn returning_claim_is_observed_anew() {
        let id = ClaimId::from_number(7);
        let (mut watch, document) = (Watch::default(), document(id));
        watch.look(Some(&document), at(100));
        watch.look(None, at(101));
        assert!(!watch.is_dead(id, at(200)));
        watch.look(Some(&document), at(200));
        assert!(!watch.is_dead(id, at(213)) && watch.is_dead(id, at(214)));
    }
}
