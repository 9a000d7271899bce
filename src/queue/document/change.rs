//! Reading a queue, and changing it: read, change, and replace if unchanged. A change starts again if the queue has
//! changed meanwhile.

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use super::items::{Items, Stored, Version, Which};
use super::queue::{Document, QueueEntry};
use super::watch::Watch;
use crate::backend::record::foreign_claim;
use crate::clock::Clock;
use crate::lock::{ClaimId, FencingToken, LockName, Moment};
use crate::net::fault::{Fault, FaultResult};
use crate::queue::store::{About, Answer, Item, Key, Note, Own, Queue, Seen};
use crate::sync::locked;

/// The item of a lock.
#[derive(Debug)]
pub(super) enum Found {
    Queue(Document, Version),
    Foreign(Stored),
    Nothing,
}

impl Found {
    /// Returns the queue, if there is one.
    pub(super) fn document(&self) -> Option<&Document> {
        if let Self::Queue(document, _) = self { Some(document) } else { None }
    }
}

/// The queues in the items of one service.
#[derive(Debug)]
pub struct DocumentStore {
    pub(super) items: Arc<dyn Items>,
    pub(super) clock: Clock,
    /// The observations of each queue.
    pub(super) watches: Mutex<HashMap<LockName, Watch>>,
    /// When the leases of this client's claims end.
    pub(super) leases: Mutex<HashMap<ClaimId, Moment>>,
}

impl DocumentStore {
    /// Creates a store over `items`.
    pub fn new(items: Arc<dyn Items>, clock: Clock) -> Self {
        Self { items, clock, watches: Mutex::default(), leases: Mutex::default() }
    }

    /// Takes note of an item that was read.
    pub(super) fn take(&self, name: &LockName, item: Option<Stored>) -> Found {
        let mut watches = locked(&self.watches);
        let found = match item.map(|item| (Document::parse(&item.bytes), item)) {
            Some((Some(document), item)) => {
                watches.entry(name.clone()).or_default().look(&document, self.clock.now());
                return Found::Queue(document, item.version);
            }
            Some((None, item)) => Found::Foreign(item),
            None => Found::Nothing,
        };
        watches.remove(name);
        found
    }

    pub(super) async fn look(&self, name: &LockName, deadline: Moment) -> FaultResult<Found> {
        Ok(self.take(name, self.items.read(Which::Queue(name), deadline).await?))
    }

    /// Replaces the queue with `document` if it has this `version`. An empty document is removed, so that other
    /// programs' clients can use the key.
    pub(super) async fn put(
        &self,
        name: &LockName,
        version: &Version,
        document: &Document,
        deadline: Moment,
    ) -> FaultResult<bool> {
        let new = (!document.claims.is_empty()).then(|| (document.to_bytes(), document.life()));
        self.items.swap(name, version, new, deadline).await
    }

    /// Changes the queue of `name` with `step`, which returns whether it changed the document, and returns the queue
    /// then. It may be called several times, each time with the document read last, and with whether an earlier one may
    /// have been written. Without a queue it is called with an empty one, which is not written.
    pub(super) async fn change(
        &self,
        name: &LockName,
        deadline: Moment,
        mut step: impl FnMut(&mut Document, bool) -> FaultResult<bool> + Send,
    ) -> FaultResult<Found> {
        let mut again = false;
        loop {
            let (mut document, version) = match self.look(name, deadline).await? {
                Found::Queue(document, version) => (document, version),
                found => {
                    step(&mut Document::empty(name, ClaimId::from_number(0)), again)?;
                    return Ok(found);
                }
            };
            if !step(&mut document, again)? || self.put(name, &version, &document, deadline).await? {
                return Ok(Found::Queue(document, version));
            }
            again = true;
            if self.clock.now() >= deadline {
                return Err(contended());
            }
        }
    }

    pub(super) fn has_expired(&self, id: ClaimId) -> bool {
        self.clock.now() >= self.expires(id)
    }

    /// Returns when the lease of a claim of this client ends.
    pub(super) fn expires(&self, id: ClaimId) -> Moment {
        locked(&self.leases).get(&id).copied().unwrap_or(Moment::NEVER)
    }

    /// Returns a queue in the terms of the engine. With `shown` it has the rest of each ttl, as far as this client
    /// knows.
    pub(super) fn queue(&self, name: &LockName, found: &Found, shown: bool) -> Queue {
        let items = match found {
            Found::Queue(document, _) => {
                let (watches, now) = (locked(&self.watches), self.clock.now());
                let watch = watches.get(name).filter(|_| shown);
                let left = |place: &QueueEntry| watch?.left(place.id()?, now);
                let places = document.claims.iter().enumerate();
                places.map(|(at, place)| item(name, at, place, left(place))).collect()
            }
            Found::Foreign(stored) => {
                let write = &stored.version.write;
                let id = foreign_claim([name.as_str().as_bytes(), write.as_bytes()]);
                // A name that cannot be a key is refused before an item can be found.
                let key = self.items.key(Which::Queue(name)).unwrap_or_default();
                let about = About::foreign(name, id, format!("key {}", String::from_utf8_lossy(&key)));
                vec![Item::foreign(Key { order: 0, text: write.clone() }, None, about)]
            }
            Found::Nothing => Vec::new(),
        };
        Queue { name: name.clone(), items }
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

pub(super) fn contended() -> Fault {
    Fault::unavailable("others changed the queue again and again until the deadline")
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
        id: place.id().unwrap_or_else(|| foreign_claim([place.about.claim.as_bytes()])),
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
    } else if let Found::Foreign(stored) = found {
        stored.version.write.hash(&mut hasher);
    }
    hasher.finish()
}
