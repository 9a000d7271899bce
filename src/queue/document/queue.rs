//! The document: a queue as plain data, and the changes of it. Pure: none sends a request.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::backend::record::Record;
use crate::lock::{ClaimId, Holder, LockName};

/// The version of the format that this dlock writes and reads.
const FORM: u32 = 1;

/// The addition to the longest ttl for which an item without further writes is kept.
const KEPT_BEYOND: Duration = Duration::from_secs(5);

/// How long an item without claims is kept: it exists for a claim that enters within an exchange or two.
pub(super) const EMPTY_LIFE: Duration = Duration::from_secs(10);

/// The claims on one lock, in order of arrival.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Document {
    /// The version of the format.
    dlock: u32,
    /// The lock.
    pub(super) lock: String,
    /// The claim for which the item was created. It differs if the store dropped the item and another claim created it
    /// again.
    pub(super) born: String,
    /// The claims.
    pub(super) claims: Vec<QueueEntry>,
}

/// One claim in the queue.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct QueueEntry {
    /// The claim's own description.
    pub(super) about: Record,
    /// Its fencing token, drawn on arrival.
    pub(super) token: u64,
    /// Incremented with each renewal.
    pub(super) beat: u64,
    /// The time of its arrival, in milliseconds since 1970, by the clock of its host: for display only.
    pub(super) since: u64,
    /// The slot that it has taken, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) slot: Option<u32>,
    /// The start of its hold, on the scale of `since`, if it has held for a while.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) held_ms: Option<u64>,
    /// The client that asked it to leave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) asked: Option<Holder>,
    /// When an arriving claim first saw it, since its last renewal, in milliseconds by the store's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) seen: Option<u64>,
}

impl QueueEntry {
    /// Returns the claim's id, if this dlock can read it.
    pub(super) fn id(&self) -> Option<ClaimId> {
        self.about.id()
    }

    /// Returns its ttl.
    pub(super) fn ttl(&self) -> Duration {
        Duration::from_millis(self.about.ttl_ms)
    }
}

impl Document {
    /// Parses the bytes of an item; `None` for that of another program, or of a dlock with another format.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        // serde would accept arrays in place of objects.
        let is_object = bytes.first() == Some(&b'{');
        let document = is_object.then(|| serde_json::from_slice::<Self>(bytes).ok())??;
        (document.dlock == FORM).then_some(document)
    }

    /// Creates a queue without claims, for the claim `id`.
    pub(super) fn empty(lock: &LockName, id: ClaimId) -> Self {
        Self { dlock: FORM, lock: lock.to_string(), born: id.to_string(), claims: Vec::new() }
    }

    /// Returns the stored form.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Returns how long the store must keep it without further writes.
    pub(super) fn life(&self) -> Duration {
        let longest = self.claims.iter().map(QueueEntry::ttl).max();
        longest.map_or(EMPTY_LIFE, |ttl| ttl + KEPT_BEYOND)
    }

    /// Returns the index of the claim `id`.
    pub(super) fn position(&self, id: ClaimId) -> Option<usize> {
        let text = id.to_string();
        self.claims.iter().position(|place| place.about.claim == text)
    }

    /// Returns the highest token of a claim in the queue.
    pub(super) fn highest_token(&self) -> u64 {
        self.claims.iter().map(|place| place.token).max().unwrap_or(0)
    }

    /// Appends the claim `id`, or renews it if it is in the queue already. Returns its token.
    pub(super) fn enter(&mut self, id: ClaimId, about: Record, token: u64, now: u64) -> u64 {
        if let Some(place) = self.renewed(id) {
            return place.token;
        }
        let (slot, held_ms, asked, seen) = (None, None, None, None);
        self.claims.push(QueueEntry { about, token, beat: 0, since: now, slot, held_ms, asked, seen });
        token
    }

    /// Records at `now`, by the store's clock, which claims other than `own` are there, for later arrivals. Returns those
    /// that were recorded more than their ttl and `margin` ago and have not renewed since.
    ///
    /// Clients that stay judge by their own clocks. This is for clients that arrive one after another, read once and
    /// go: each of them extends the life of the item.
    pub(super) fn observe(&mut self, own: ClaimId, now: u64, margin: Duration) -> Vec<ClaimId> {
        let mut dead = Vec::new();
        for place in self.claims.iter_mut().filter(|place| place.id() != Some(own)) {
            let still = Duration::from_millis(now.saturating_sub(*place.seen.get_or_insert(now)));
            dead.extend(place.id().filter(|_| still >= place.ttl() + margin));
        }
        dead
    }

    /// Increments the counter of the claim `id`, if it is there, and returns its entry.
    pub(super) fn renewed(&mut self, id: ClaimId) -> Option<&QueueEntry> {
        let at = self.position(id)?;
        let place = &mut self.claims[at];
        (place.beat, place.seen) = (place.beat + 1, None);
        Some(place)
    }

    /// Removes the claim `id`, if it is there.
    pub(super) fn remove(&mut self, id: ClaimId) {
        if let Some(at) = self.position(id) {
            self.claims.remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::{Mode, Request};

    fn id(n: u8) -> ClaimId {
        ClaimId::from_bytes([n; 16])
    }

    fn request(n: u8, mode: Mode) -> Request {
        Request {
            names: vec!["a".parse().expect("valid")],
            id: id(n),
            mode,
            ttl: Duration::from_secs(30),
            holder: Holder { host: format!("h{n}"), user: "u".into(), ..Holder::default() },
            ancestors: Vec::new(),
            supersede: false,
        }
    }

    fn enter(document: &mut Document, request: &Request) {
        let about = Record::of(request, request.ttl);
        document.enter(request.id, about, document.highest_token() + 1, 5);
    }

    fn queue_of(modes: &[Mode]) -> Document {
        let mut document = Document::empty(&"a".parse().expect("valid"), id(0));
        for (n, mode) in modes.iter().enumerate() {
            let n = u8::try_from(n + 1).expect("few");
            enter(&mut document, &request(n, *mode));
        }
        document
    }

    #[test]
    fn content_of_other_programs_is_foreign() {
        for text in
            ["", "1", "{}", "dlock", "[1,\"a\",\"b\",[]]", "{\"dlock\":\"x\"}", "[1]", "{\"claims\":[]}"]
        {
            assert_eq!(Document::parse(text.as_bytes()), None, "{text}");
        }
        let newer =
            String::from_utf8(queue_of(&[Mode::Shared]).to_bytes()).expect("text").replace(":1,", ":2,");
        for text in ["{\"dlock\":2}", "{\"dlock\":1,\"claims\":7}", &newer] {
            assert_eq!(Document::parse(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn claim_unchanged_for_longer_than_its_ttl_is_dead() {
        let margin = Duration::from_secs(6);
        // The last one waits.
        let mut document = queue_of(&[Mode::Shared, Mode::Shared, Mode::Exclusive]);
        let observe = |document: &mut Document, now| document.observe(id(9), now, margin);
        assert_eq!(observe(&mut document, 1_000), []);
        assert_eq!(observe(&mut document, 20_000), []);
        document.renewed(id(2));
        assert_eq!(observe(&mut document, 36_999), []);
        assert_eq!(observe(&mut document, 37_000), [id(1), id(3)]);
        assert_eq!(observe(&mut document, 72_998), [id(1), id(3)]);
        assert_eq!(observe(&mut document, 72_999), [id(1), id(2), id(3)]);
        assert_eq!(document.observe(id(2), 72_999, margin), [id(1), id(3)], "itself it is not");
        // A clock that was set back proves nothing.
        assert_eq!(observe(&mut document, 0), []);
    }

    #[test]
    fn a_thousand_waiters_fit_into_a_mebibyte() {
        let mut document = queue_of(&[]);
        for n in 0..2000u128 {
            let mut request = request(1, Mode::Exclusive);
            request.id = ClaimId::from_number(n);
            request.holder = Holder {
                host: "worker-17.eu-central.example.org".into(),
                pid: 4_194_303,
                user: "deploy".into(),
                command: "/usr/local/bin/backup.sh".into(),
                ..Holder::default()
            };
            enter(&mut document, &request);
        }
        document.observe(id(0), 1 << 41, Duration::ZERO);
        assert!(document.to_bytes().len() < 900_000, "{}", document.to_bytes().len());
    }
}
