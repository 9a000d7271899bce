//! Queues in the terms of the engine.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::change::{DocumentStore, Found};
use super::items::Item as Stored;
use super::queue::QueueEntry;
use crate::backend::foreign;
use crate::lock::{ClaimId, FencingToken, Holder, LockName, Moment};
use crate::queue::store::{About, Answer, Item, Key, Note, Own, Queue, Seen};
use crate::sync::locked;

/// Why a claim is gone, noted by the client that removed it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Gone {
    /// `superseded` or `evicted`.
    pub(super) why: String,
    /// The client that removed it, if known.
    pub(super) by: Option<Holder>,
}

pub(super) fn is_at(place: &QueueEntry, key: &Key) -> bool {
    place.token == key.order && place.about.claim == key.text
}

/// Returns the entry of a claim.
fn item(name: &LockName, at: usize, place: &QueueEntry, left: Option<Duration>) -> Item {
    let time = |milliseconds| SystemTime::UNIX_EPOCH + Duration::from_millis(milliseconds);
    let about = About::of(&place.about, name, Some(time(place.since)));
    let about = About { held_since: place.held_ms.map(time), ..about };
    Item {
        at,
        key: Key { order: place.token, text: place.about.claim.clone() },
        id: place.id().unwrap_or_else(|| foreign::identity([place.about.claim.as_bytes()])),
        foreign: false,
        mode: place.about.mode(),
        slot: place.slot,
        token: FencingToken::new(place.token),
        left,
        about: Some(Box::new(about)),
    }
}

/// Returns the mark of what was read. Renewals and entries behind `own` do not change it.
pub(super) fn seen(found: &Found, own: Option<&Own>) -> Seen {
    let mut hasher = DefaultHasher::new();
    if let Some(document) = found.document() {
        let own = own.and_then(|own| document.position(own.id));
        let mut claims = document.claims[..own.map_or(document.claims.len(), |at| at + 1)].to_vec();
        for place in &mut claims {
            (place.beat, place.seen) = (0, None);
        }
        (&document.born, serde_json::to_vec(&claims).ok()).hash(&mut hasher);
    } else if let Found::Foreign(item) = found {
        item.version.write.hash(&mut hasher);
    }
    hasher.finish()
}

impl DocumentStore {
    /// Returns the other claims that are dead by this client's clock.
    pub(super) fn dead(&self, name: &LockName, own: ClaimId) -> Vec<ClaimId> {
        let now = self.clock.now();
        locked(&self.seats).get(name).map(|seat| seat.watch.dead(own, now)).unwrap_or_default()
    }

    /// Returns the number of entries ahead of `own`, and when the next other claim is dead.
    pub(super) fn outlook(&self, name: &LockName, own: Option<&Own>) -> (usize, Moment) {
        let seats = locked(&self.seats);
        let both = seats.get(name).zip(own).and_then(|(seat, own)| {
            Some((seat.known.document.position(own.id)?, seat.watch.next_death(own.id)))
        });
        both.unwrap_or((1, Moment::NEVER))
    }

    /// Returns when the lease of a claim of this client ends.
    pub(super) fn expires(&self, id: ClaimId) -> Moment {
        locked(&self.leases).get(&id).map_or(Moment::NEVER, |lease| lease.expires)
    }

    pub(super) fn has_expired(&self, id: ClaimId) -> bool {
        self.clock.now() >= self.expires(id)
    }

    /// Returns a queue. With `shown` it has the rest of each ttl, as far as this client knows.
    pub(super) fn queue(&self, name: &LockName, found: &Found, shown: bool) -> Queue {
        let items = match found {
            Found::Queue(known) => {
                let (seats, now) = (locked(&self.seats), self.clock.now());
                let watch = seats.get(name).filter(|_| shown).map(|seat| &seat.watch);
                let left = |place: &QueueEntry| watch?.left(place.id()?, now);
                let places = known.document.claims.iter().enumerate();
                places.map(|(at, place)| item(name, at, place, left(place))).collect()
            }
            Found::Foreign(stored) => vec![self.foreign(name, stored)],
            Found::Nothing => Vec::new(),
        };
        Queue { name: name.clone(), items }
    }

    /// Returns the entry of another program.
    fn foreign(&self, name: &LockName, stored: &Stored) -> Item {
        let write = &stored.version.write;
        let id = foreign::identity([name.as_str().as_bytes(), write.as_bytes()]);
        let about = About::foreign(name, id, self.items.called(name));
        Item::foreign(Key { order: 0, text: write.clone() }, None, about)
    }

    /// Returns the answer to `own`, which shows no own entry once that has expired by this client's clock.
    pub(super) fn answer(&self, own: &Own, name: &LockName, found: &Found, sent: Moment) -> Answer {
        let mut queue = self.queue(name, found, false);
        if self.has_expired(own.id) {
            queue.items.retain(|item| item.id != own.id);
        }
        let asked = found.document().and_then(|document| {
            let at = document.position(own.id)?;
            document.claims[at].asked.clone()
        });
        Answer { queues: vec![queue], note: asked.map(Note::Asked), sent, seen: seen(found, Some(own)) }
    }
}
