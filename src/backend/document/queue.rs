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
    pub claims: Vec<Place>,
}

/// One claim in the queue.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Place {
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
}

/// What a hold has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Held {
    /// Its slot, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<u32>,
    /// Since when, as [`Place::since`].
    pub since: u64,
}

/// An item, as dlock understands it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Content {
    /// A queue.
    Queue(Document),
    /// Another program has it, and holds the lock by having it.
    Foreign,
    /// A newer dlock wrote it in a form that this one cannot read.
    Newer,
}

/// Why a claim cannot enter: what to say of the claim in the way.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mismatch(pub String);

impl Content {
    /// Understands the bytes of an item.
    pub fn parse(bytes: &[u8]) -> Self {
        #[derive(Deserialize)]
        struct Form {
            dlock: u32,
        }
        // Arrays would be taken for objects without their names.
        if bytes.first() != Some(&b'{') {
            return Self::Foreign;
        }
        match serde_json::from_slice::<Document>(bytes) {
            Ok(document) if document.dlock == FORM => Self::Queue(document),
            _ => match serde_json::from_slice::<Form>(bytes) {
                // Not readable in a form that is known: better waited for than overwritten.
                Ok(Form { dlock }) if dlock >= FORM => Self::Newer,
                _ => Self::Foreign,
            },
        }
    }
}

impl Place {
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
        let longest = self.claims.iter().map(Place::ttl).max();
        longest.map_or(EMPTY_LIFE, |ttl| ttl + KEPT_BEYOND)
    }

    /// Where the claim `id` stands.
    pub fn position(&self, id: ClaimId) -> Option<usize> {
        let text = id.to_string();
        self.claims.iter().position(|place| place.about.claim == text)
    }

    /// The claim `id`.
    pub fn find(&self, id: ClaimId) -> Option<&Place> {
        self.position(id).map(|at| &self.claims[at])
    }

    /// The highest token that a claim in the queue has.
    pub fn highest_token(&self) -> u64 {
        self.claims.iter().map(|place| place.token).max().unwrap_or(0)
    }

    /// Gives holds to the claims that may hold now and have none. A departure takes no hold away.
    pub fn settle(&mut self, now: u64) {
        let modes: Vec<Mode> = self.claims.iter().map(Place::mode).collect();
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
        let older = |place: &&Place| request.supersede && place.about.supersede && place.held.is_none();
        let superseded: Vec<ClaimId> = self.claims.iter().filter(older).filter_map(Place::id).collect();
        self.claims.retain(|place| !older(&place));
        self.claims.push(Place { about, token, beat: 0, since: now, held: None, asked: None });
        self.settle(now);
        Ok(superseded)
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
mod tests {
    use std::num::NonZeroU32;

    use proptest::prelude::*;

    use super::*;

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

    fn enter(document: &mut Document, request: &Request) -> Result<Vec<ClaimId>, Mismatch> {
        let about = Record::of(request, request.ttl);
        document.enter(request, about, document.highest_token() + 1, 5)
    }

    fn queue_of(modes: &[Mode]) -> Document {
        let mut document = Document::empty(&"a".parse().expect("valid"), id(0));
        for (n, mode) in modes.iter().enumerate() {
            let n = u8::try_from(n + 1).expect("few");
            enter(&mut document, &request(n, *mode)).expect("enters");
        }
        document
    }

    fn slots(n: u32) -> Mode {
        Mode::Slots(NonZeroU32::new(n).expect("positive"))
    }

    /// Those that have a hold are exactly those that may.
    fn is_settled(document: &Document) -> bool {
        let modes: Vec<Mode> = document.claims.iter().map(Place::mode).collect();
        let holds = document.claims.iter().take_while(|place| place.held.is_some()).count();
        let any_later = document.claims[holds..].iter().any(|place| place.held.is_some());
        holds == queue::held(&modes) && !any_later
    }

    proptest! {
        #[test]
        fn holds_follow_the_rule_whoever_comes_and_goes(
            steps in prop::collection::vec((any::<bool>(), any::<bool>(), 0u8..20), 0..60)
        ) {
            let mut document = queue_of(&[]);
            for (comes, shared, n) in steps {
                let mode = if shared { Mode::Shared } else { Mode::Exclusive };
                if comes {
                    enter(&mut document, &request(n, mode)).expect("mixes");
                } else {
                    document.remove(id(n), 6);
                }
                prop_assert!(is_settled(&document));
            }
        }

        #[test]
        fn slots_are_all_different(steps in prop::collection::vec((any::<bool>(), 0u8..8), 0..60)) {
            let mut document = queue_of(&[]);
            for (comes, n) in steps {
                if comes {
                    enter(&mut document, &request(n, slots(3))).expect("mixes");
                } else {
                    document.remove(id(n), 6);
                }
                let mut taken: Vec<u32> =
                    document.claims.iter().filter_map(|place| place.held?.slot).collect();
                taken.sort_unstable();
                taken.dedup();
                prop_assert_eq!(taken.len(), document.claims.len().min(3));
                prop_assert!(is_settled(&document));
            }
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let document = queue_of(&[Mode::Shared, Mode::Exclusive]);
        assert_eq!(Content::parse(&document.to_bytes()), Content::Queue(document));
    }

    #[test]
    fn what_others_wrote_is_theirs() {
        for text in
            ["", "1", "{}", "dlock", "[1,\"a\",\"b\",[]]", "{\"dlock\":\"x\"}", "[1]", "{\"claims\":[]}"]
        {
            assert_eq!(Content::parse(text.as_bytes()), Content::Foreign, "{text}");
        }
        for text in ["{\"dlock\":2}", "{\"dlock\":1,\"claims\":7}", "{\"dlock\":9,\"lock\":\"a\"}"] {
            assert_eq!(Content::parse(text.as_bytes()), Content::Newer, "{text}");
        }
    }

    #[test]
    fn entering_again_is_one_entry_and_another_ttl() {
        let mut document = queue_of(&[Mode::Exclusive]);
        enter(&mut document, &request(1, Mode::Exclusive)).expect("enters");
        assert_eq!((document.claims.len(), document.claims[0].beat), (1, 1));
    }

    #[test]
    fn kinds_do_not_mix_and_nothing_is_changed() {
        let mut document = queue_of(&[slots(2)]);
        let before = document.clone();
        for mode in [Mode::Exclusive, Mode::Shared, slots(3)] {
            let Mismatch(why) = enter(&mut document, &request(9, mode)).expect_err("does not mix");
            assert!(why.contains("u@h1") && why.contains("uses a as a lock with 2 slots"), "{why}");
        }
        assert_eq!(document, before);
    }

    #[test]
    fn superseding_spares_holders_and_those_who_did_not_say_so() {
        let mut document = queue_of(&[]);
        let newest = |n| Request { supersede: true, ..request(n, Mode::Exclusive) };
        enter(&mut document, &newest(1)).expect("enters");
        enter(&mut document, &request(2, Mode::Exclusive)).expect("enters");
        enter(&mut document, &newest(3)).expect("enters");
        assert_eq!(enter(&mut document, &newest(4)), Ok(vec![id(3)]));
        let left: Vec<_> = document.claims.iter().filter_map(Place::id).collect();
        assert_eq!(left, [id(1), id(2), id(4)]);
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
            enter(&mut document, &request).expect("enters");
        }
        assert!(document.to_bytes().len() < 900_000, "{}", document.to_bytes().len());
    }
}
