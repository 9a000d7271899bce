//! The document: a queue as plain data, and the steps that change it. Pure; no step asks anybody.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::backend::mixing::{Use, mismatch};
use crate::backend::record::Record;
use crate::lock::{ClaimId, FencingToken, Granted, Holder, LockName, Mode, Request, queue};

/// The version of the form that this dlock writes and reads.
const FORM: u32 = 1;

/// How much longer than the longest ttl an item is kept that nobody writes.
const KEPT_BEYOND: Duration = Duration::from_secs(5);

/// How long an item without claims is kept: it is made for a claim that enters within an exchange or two.
pub const EMPTY_LIFE: Duration = Duration::from_secs(10);

/// The claims on one lock, in order of arrival. Those that hold are the first ones ([`queue::held`]); each step settles who
/// they are.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Document {
    /// The version of the form.
    dlock: u32,
    /// The lock.
    pub lock: String,
    /// The claim for which the item was made: another one if the store forgot the item and somebody made it anew.
    pub born: String,
    /// The claims.
    pub claims: Vec<QueueEntry>,
}

/// One claim in the queue.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct QueueEntry {
    /// What the claim says of itself.
    pub about: Record,
    /// Its fencing token, drawn when it arrived.
    pub token: u64,
    /// Raised with each renewal.
    pub beat: u64,
    /// When it arrived, in milliseconds since 1970, by the clock of its host: shown, and nothing else.
    pub since: u64,
    /// The hold, if it holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<Held>,
    /// Who asked it to leave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<Holder>,
    /// The first observation of it since its last renewal, by those who came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<Observation>,
}

/// When somebody who came saw a claim as it was.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Observation {
    /// Its counter.
    pub beat: u64,
    /// When, in milliseconds by the store's clock.
    pub at: u64,
}

/// What a hold has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Held {
    /// Its slot, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<u32>,
    /// Since when, as [`QueueEntry::since`].
    pub since: u64,
}

/// An item, as dlock understands it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Content {
    /// A queue.
    Queue(Document),
    /// Another program has it, or a dlock that writes another form, and holds the lock by having it.
    Foreign,
}

/// Why a claim cannot enter: what to say of the claim in the way.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mismatch(pub String);

impl Content {
    /// Understands the bytes of an item.
    pub fn parse(bytes: &[u8]) -> Self {
        // Arrays would be taken for objects without their names.
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
    /// The claim's id, if this dlock can read it.
    pub fn id(&self) -> Option<ClaimId> {
        self.about.id()
    }

    /// The mode; one that this dlock does not know excludes everybody.
    pub fn mode(&self) -> Mode {
        self.about.mode().unwrap_or(Mode::Exclusive)
    }

    /// Its ttl.
    pub fn ttl(&self) -> Duration {
        Duration::from_millis(self.about.ttl_ms)
    }

    /// What it was given, if it holds.
    pub fn granted(&self) -> Option<Granted> {
        let held = self.held?;
        Some(Granted { token: FencingToken::new(self.token)?, slot: held.slot })
    }
}

impl Document {
    /// A queue of nobody, made for the claim `id`.
    pub fn empty(lock: &LockName, id: ClaimId) -> Self {
        Self { dlock: FORM, lock: lock.to_string(), born: id.to_string(), claims: Vec::new() }
    }

    /// As it is kept.
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// How long the store must keep it if nobody writes it.
    pub fn life(&self) -> Duration {
        let longest = self.claims.iter().map(QueueEntry::ttl).max();
        longest.map_or(EMPTY_LIFE, |ttl| ttl + KEPT_BEYOND)
    }

    /// Where the claim `id` stands.
    pub fn position(&self, id: ClaimId) -> Option<usize> {
        let text = id.to_string();
        self.claims.iter().position(|place| place.about.claim == text)
    }

    /// The claim `id`.
    pub fn find(&self, id: ClaimId) -> Option<&QueueEntry> {
        self.position(id).map(|at| &self.claims[at])
    }

    /// The highest token that a claim in the queue has.
    pub fn highest_token(&self) -> u64 {
        self.claims.iter().map(|place| place.token).max().unwrap_or(0)
    }

    /// Gives holds to the claims that may hold now and have none. A departure takes no hold away.
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

    /// Adds the claim of `request` at the end, or gives it another ttl if it stands in the queue already. Returns the
    /// waiters whose place it takes (`--supersede`).
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

    /// Notes how those who hold, but for `own`, stand at `now`, by the store's clock, for others who come. Returns those that
    /// have stood still for `margin` longer than their ttl since somebody noted that.
    ///
    /// Whoever looks on judges by its own clock. This is for those who look once and go, one after another, each of which gives
    /// the item another life.
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

    /// Raises the counter of the claim `id`; says whether it is there.
    pub fn renew(&mut self, id: ClaimId) -> bool {
        let Some(at) = self.position(id) else { return false };
        self.claims[at].beat += 1;
        true
    }

    /// Takes the claim `id` out; says whether it was there.
    pub fn remove(&mut self, id: ClaimId, now: u64) -> bool {
        let Some(at) = self.position(id) else { return false };
        self.claims.remove(at);
        self.settle(now);
        true
    }

    /// Asks the claim `id` to leave; says whether it is there.
    pub fn ask(&mut self, id: ClaimId, by: &Holder) -> bool {
        let Some(at) = self.position(id) else { return false };
        self.claims[at].asked = Some(by.clone());
        true
    }

    /// Changes the label of the claim `id`, if it holds; says whether it does.
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
