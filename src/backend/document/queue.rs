//! The document: a queue as plain data, and the steps that change it. Pure: no step sends a request.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::backend::mixing::{Use, mismatch};
use crate::backend::record::Record;
use crate::lock::{ClaimId, FencingToken, Granted, Holder, LockName, Mode, Request, queue};

/// The version of the format that this dlock writes and reads.
const FORM: u32 = 1;

/// The addition to the longest ttl for which an item without further writes is kept.
const KEPT_BEYOND: Duration = Duration::from_secs(5);

/// How long an item without claims is kept: it exists for a claim that enters within an exchange or two.
pub const EMPTY_LIFE: Duration = Duration::from_secs(10);

/// The claims on one lock, in order of arrival. The holders are the first ones ([`queue::held`]); each step grants
/// their holds.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Document {
    /// The version of the format.
    dlock: u32,
    /// The lock.
    pub lock: String,
    /// The claim for which the item was created. It differs if the store dropped the item and another claim created it
    /// again.
    pub born: String,
    /// The claims.
    pub claims: Vec<QueueEntry>,
}

/// One claim in the queue.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct QueueEntry {
    /// The claim's own description.
    pub about: Record,
    /// Its fencing token, drawn on arrival.
    pub token: u64,
    /// Incremented with each renewal.
    pub beat: u64,
    /// The time of its arrival, in milliseconds since 1970, by the clock of its host: for display only.
    pub since: u64,
    /// The hold, if it holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<Held>,
    /// The client that asked it to leave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<Holder>,
    /// The first observation of it since its last renewal, by an arriving claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<Observation>,
}

/// An arriving claim's observation of a holder.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Observation {
    /// The holder's counter.
    pub beat: u64,
    /// The time, in milliseconds by the store's clock.
    pub at: u64,
}

/// The properties of a hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Held {
    /// Its slot, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<u32>,
    /// Its start, on the scale of [`QueueEntry::since`].
    pub since: u64,
}

/// The content of an item.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Content {
    /// A queue.
    Queue(Document),
    /// The item of another program, or of a dlock with another format. It holds the lock by its existence.
    Foreign,
}

/// Why a claim cannot enter, with the claim in the way.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mismatch(pub String);

impl Content {
    /// Parses the bytes of an item.
    pub fn parse(bytes: &[u8]) -> Self {
        // serde would accept arrays in place of objects.
        if bytes.first() != Some(&b'{') {
            return Self::Foreign;
        }
        match serde_json::from_slice::<Document>(bytes) {
            Ok(document) if document.dlock == FORM => Self::Queue(document),
            _ => Self::Foreign,
        }
    }
}

impl QueueEntry {
    /// Returns the claim's id, if this dlock can read it.
    pub fn id(&self) -> Option<ClaimId> {
        self.about.id()
    }

    /// Returns the mode; a mode that this dlock does not know counts as exclusive.
    pub fn mode(&self) -> Mode {
        self.about.mode().unwrap_or(Mode::Exclusive)
    }

    /// Returns its ttl.
    pub fn ttl(&self) -> Duration {
        Duration::from_millis(self.about.ttl_ms)
    }

    /// Returns its grant, if it holds.
    pub fn granted(&self) -> Option<Granted> {
        let held = self.held?;
        Some(Granted { token: FencingToken::new(self.token)?, slot: held.slot })
    }
}

impl Document {
    /// Creates a queue without claims, for the claim `id`.
    pub fn empty(lock: &LockName, id: ClaimId) -> Self {
        Self { dlock: FORM, lock: lock.to_string(), born: id.to_string(), claims: Vec::new() }
    }

    /// Returns the stored form.
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Returns how long the store must keep it without further writes.
    pub fn life(&self) -> Duration {
        let longest = self.claims.iter().map(QueueEntry::ttl).max();
        longest.map_or(EMPTY_LIFE, |ttl| ttl + KEPT_BEYOND)
    }

    /// Returns the index of the claim `id`.
    pub fn position(&self, id: ClaimId) -> Option<usize> {
        let text = id.to_string();
        self.claims.iter().position(|place| place.about.claim == text)
    }

    /// Returns the claim `id`.
    pub fn find(&self, id: ClaimId) -> Option<&QueueEntry> {
        self.position(id).map(|at| &self.claims[at])
    }

    /// Returns the highest token of a claim in the queue.
    pub fn highest_token(&self) -> u64 {
        self.claims.iter().map(|place| place.token).max().unwrap_or(0)
    }

    /// Grants holds to claims that may hold now and do not yet. A departure never revokes a hold.
    pub fn settle(&mut self, now: u64) {
        let modes: Vec<Mode> = self.claims.iter().map(QueueEntry::mode).collect();
        for (at, mode) in modes.iter().enumerate().take(queue::held(&modes)) {
            if self.claims[at].held.is_some() {
                continue;
            }
            let slot = match mode {
                Mode::Slots(slots) => {
                    let taken: Vec<u32> = self.claims.iter().filter_map(|place| place.held?.slot).collect();
                    (1..=slots.get()).find(|number| !taken.contains(number))
                }
                Mode::Exclusive | Mode::Shared => None,
            };
            self.claims[at].held = Some(Held { slot, since: now });
        }
    }

    /// Appends the claim of `request`, or renews it if it is in the queue already. Returns the waiters that it
    /// supersedes (`--supersede`).
    ///
    /// Errors: the first claim of another kind; nothing is changed then.
    pub fn enter(
        &mut self,
        request: &Request,
        about: Record,
        token: u64,
        now: u64,
    ) -> Result<Vec<ClaimId>, Mismatch> {
        if let Some(at) = self.position(request.id) {
            self.claims[at].beat += 1;
            return Ok(Vec::new());
        }
        if let Some(odd) = self.claims.iter().find(|place| !place.mode().mixes_with(request.mode)) {
            let who = odd.about.holder.to_string();
            let (name, used) = (LockName::new(self.lock.clone()).ok(), Use::Mode(odd.mode()));
            return Err(Mismatch(mismatch(name.as_ref(), Some(&who), used, request.mode)));
        }
        let older = |place: &&QueueEntry| request.supersede && place.about.supersede && place.held.is_none();
        let superseded: Vec<ClaimId> = self.claims.iter().filter(older).filter_map(QueueEntry::id).collect();
        self.claims.retain(|place| !older(&place));
        self.claims.push(QueueEntry {
            about,
            token,
            beat: 0,
            since: now,
            held: None,
            asked: None,
            seen: None,
        });
        self.settle(now);
        Ok(superseded)
    }

    /// Records the counters of the holders other than `own` at `now`, by the store's clock, for later arrivals. Returns
    /// holders with a counter recorded more than their ttl and `margin` ago and unchanged since.
    ///
    /// Clients that stay judge by their own clocks. This is for clients that arrive one after another, read once and
    /// go: each of them extends the life of the item.
    pub fn observe(&mut self, own: ClaimId, now: u64, margin: Duration) -> Vec<ClaimId> {
        let mut dead = Vec::new();
        let others = |place: &&mut QueueEntry| place.held.is_some() && place.id() != Some(own);
        for place in self.claims.iter_mut().filter(others) {
            match place.seen.filter(|seen| seen.beat == place.beat) {
                Some(seen) => {
                    let still = Duration::from_millis(now.saturating_sub(seen.at));
                    dead.extend(place.id().filter(|_| still >= place.ttl() + margin));
                }
                None => place.seen = Some(Observation { beat: place.beat, at: now }),
            }
        }
        dead
    }

    /// Increments the counter of the claim `id`. Returns whether it is there.
    pub fn renew(&mut self, id: ClaimId) -> bool {
        let Some(at) = self.position(id) else { return false };
        self.claims[at].beat += 1;
        true
    }

    /// Removes the claim `id`. Returns whether it was there.
    pub fn remove(&mut self, id: ClaimId, now: u64) -> bool {
        let Some(at) = self.position(id) else { return false };
        self.claims.remove(at);
        self.settle(now);
        true
    }

    /// Asks the claim `id` to leave. Returns whether it is there.
    pub fn ask(&mut self, id: ClaimId, by: &Holder) -> bool {
        let Some(at) = self.position(id) else { return false };
        self.claims[at].asked = Some(by.clone());
        true
    }

    /// Changes the label of the claim `id`, if it holds. Returns whether it does.
    pub fn publish(&mut self, id: ClaimId, value: &str) -> bool {
        let holds = |at: &usize| self.claims[*at].held.is_some();
        let Some(at) = self.position(id).filter(holds) else { return false };
        self.claims[at].about.holder.label = Some(value.to_owned());
        true
    }
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
