//! Changing a queue: read, change, and replace if unchanged. It starts again if the queue has changed meanwhile.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::items::{Item, Items, Version};
use super::queue::Document;
use super::watch::Watch;
use crate::clock::Clock;
use crate::lock::{ClaimId, ErrorKind, LockName, Moment};
use crate::net::fault::{Fault, FaultResult};
use crate::net::request::Patience;
use crate::sync::locked;

/// The pause between two attempts to reach a store that is down.
pub(super) const PAUSE: Duration = Duration::from_millis(50);

/// A queue as it was read.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) document: Document,
    pub(super) version: Version,
}

/// The item of a lock.
#[derive(Clone, Debug)]
pub(super) enum Found {
    Queue(Arc<Known>),
    Foreign(Item),
    Nothing,
}

impl Found {
    /// Returns the queue, if there is one.
    pub(super) fn document(&self) -> Option<&Document> {
        if let Self::Queue(known) = self { Some(&known.document) } else { None }
    }
}

/// The queue of a lock as it was read last, and the observations of it.
#[derive(Debug)]
pub(super) struct Seat {
    pub(super) watch: Watch,
    pub(super) known: Arc<Known>,
}

/// A claim of this client.
#[derive(Debug)]
pub(super) struct Lease {
    /// The claim for which the item was created that it entered.
    pub(super) born: String,
    pub(super) expires: Moment,
}

/// The queues in the items of one service.
#[derive(Debug)]
pub struct DocumentStore {
    pub(super) items: Arc<dyn Items>,
    pub(super) clock: Clock,
    pub(super) seats: Mutex<HashMap<LockName, Seat>>,
    pub(super) leases: Mutex<HashMap<ClaimId, Lease>>,
}

pub(super) fn contended() -> Fault {
    Fault::unavailable("others changed the queue again and again until the deadline")
}

impl DocumentStore {
    /// Creates a store over `items`.
    pub fn new(items: Arc<dyn Items>, clock: Clock) -> Self {
        Self { items, clock, seats: Mutex::default(), leases: Mutex::default() }
    }

    /// Takes note of an item that was read.
    pub(super) fn take(&self, name: &LockName, item: Option<Item>) -> Found {
        let mut seats = locked(&self.seats);
        let Some(item) = item else {
            seats.remove(name);
            return Found::Nothing;
        };
        let Some(document) = Document::parse(&item.bytes) else {
            seats.remove(name);
            return Found::Foreign(item);
        };
        let known = Arc::new(Known { document, version: item.version });
        let mut watch = seats.remove(name).map(|seat| seat.watch).unwrap_or_default();
        watch.look(&known.document, self.clock.now());
        seats.insert(name.clone(), Seat { watch, known: Arc::clone(&known) });
        Found::Queue(known)
    }

    pub(super) async fn look(&self, name: &LockName, deadline: Moment) -> FaultResult<Found> {
        Ok(self.take(name, self.items.read(name, deadline).await?))
    }

    /// Replaces the queue with `document` if it has this `version`. An empty document is removed, so that other
    /// programs' clients can use the key.
    pub(super) async fn put(
        &self,
        name: &LockName,
        version: &Version,
        document: &Document,
        deadline: Moment,
    ) -> FaultResult<(bool, Found)> {
        let replaced = if document.claims.is_empty() {
            self.items.remove(name, version, deadline).await?
        } else {
            self.items.replace(name, version, &document.to_bytes(), document.life(), deadline).await?
        };
        Ok((replaced.done, self.take(name, replaced.item)))
    }

    /// Changes the queue of `name` with `step`, which returns whether to write the document. It may be called several
    /// times, each time with the document read last, and with whether an earlier one may have been written. Without a
    /// queue it is called with an empty one, which is not written.
    pub(super) async fn change(
        &self,
        name: &LockName,
        patience: Patience,
        deadline: Moment,
        mut step: impl FnMut(&mut Document, bool) -> bool + Send,
    ) -> FaultResult<(bool, Found)> {
        let mut again = false;
        loop {
            let fault = match self.attempts(name, &mut again, deadline, &mut step).await {
                Err(fault) if patience == Patience::Deadline && fault.kind.is_transient() => fault,
                answer => return answer,
            };
            let next = self.clock.now() + PAUSE;
            if next >= deadline {
                return Err(fault);
            }
            self.clock.sleep_until(next).await;
        }
    }

    async fn attempts(
        &self,
        name: &LockName,
        again: &mut bool,
        deadline: Moment,
        step: &mut (impl FnMut(&mut Document, bool) -> bool + Send),
    ) -> FaultResult<(bool, Found)> {
        // The queue as it was read last saves a request. It proves nothing: a refusal needs a new one.
        let last =
            if *again { None } else { locked(&self.seats).get(name).map(|seat| Arc::clone(&seat.known)) };
        let (mut is_old, mut found) = match last {
            Some(known) => (true, Found::Queue(known)),
            None => (false, self.look(name, deadline).await?),
        };
        loop {
            let (mut document, version) = match &found {
                Found::Queue(known) => (known.document.clone(), Some(&known.version)),
                Found::Foreign(_) | Found::Nothing => (Document::empty(name, ClaimId::from_number(0)), None),
            };
            let writes = step(&mut document, *again);
            match version.filter(|_| writes) {
                Some(version) => {
                    *again = true;
                    let (done, after) = self.put(name, version, &document, deadline).await?;
                    if done {
                        return Ok((true, after));
                    }
                    (is_old, found) = (false, after);
                    if self.clock.now() >= deadline {
                        return Err(contended());
                    }
                }
                None if is_old => (is_old, found) = (false, self.look(name, deadline).await?),
                None => return Ok((false, found)),
            }
        }
    }

    /// Records the success of the run that acquired so long ago, for the next run to find. Half of the time is reserved
    /// for the release, which other claims wait for. If the record fails, the next run is one too many.
    pub(super) async fn note_success(&self, name: &LockName, held_for: Duration, deadline: Moment) {
        let begun = self.clock.now();
        let until = begun + deadline.since(begun) / 2;
        loop {
            let held_for = held_for + self.clock.now().since(begun);
            match self.items.record_success(name, held_for, until).await {
                // A full store has no room for waiters, either, so it is not retried.
                Err(fault) if fault.kind == ErrorKind::Unavailable && self.clock.now() + PAUSE < until => {}
                Ok(()) | Err(_) => return,
            }
            self.clock.sleep_until(self.clock.now() + PAUSE).await;
        }
    }
}
