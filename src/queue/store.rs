//! The operations that a service supports so that the engine can keep queues in it.
//!
//! A store keeps entries in order of arrival and decides nothing. Each operation is one step, and may be repeated.

use std::fmt::Debug;
use std::os::fd::OwnedFd;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;

use crate::backend::record::Record;
use crate::backend::{Examination, ServiceClient};
use crate::lock::{
    ClaimId, Entry, FencingToken, Holder, LockName, LossReason, Mode, Moment, Request, Result,
};
use crate::net::fault::FaultResult;

/// The place of an entry in a queue. No other entry of the lock ever has the same key.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Key {
    /// Rises with each arrival.
    pub order: u64,
    /// The service's name of the entry.
    pub text: String,
}

/// One entry of a queue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Item {
    /// The number of entries ahead of it.
    pub at: usize,
    /// Its place.
    pub key: Key,
    /// The claim; for another program's entry that of [`crate::backend::record::foreign_claim`].
    pub id: ClaimId,
    /// Whether another program's client made it.
    pub foreign: bool,
    /// Its mode; `None` for one that this version cannot read, which counts as exclusive.
    pub mode: Option<Mode>,
    /// The slot that it has taken, from 1.
    pub slot: Option<u32>,
    /// The token, as far as it is known before the entry holds.
    pub token: Option<FencingToken>,
    /// The rest of its time to live, if the store knows it without a further request.
    pub left: Option<Duration>,
    /// The description. The first entry of a queue has it, and each entry of a queue that was read whole.
    pub about: Option<Box<About>>,
}

impl Item {
    /// Returns the entry of another program at the front of a queue.
    pub fn foreign(key: Key, left: Option<Duration>, about: About) -> Self {
        Self {
            at: 0,
            key,
            id: about.entry.claim.unwrap_or_else(|| ClaimId::from_number(0)),
            foreign: true,
            mode: about.entry.mode,
            slot: None,
            token: None,
            left,
            about: Some(Box::new(about)),
        }
    }
}

/// The description of an entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct About {
    /// The entry for display, with the time of its arrival, and without grant and place in the queue.
    pub entry: Entry,
    /// Since when it holds, if that is recorded.
    pub held_since: Option<SystemTime>,
    /// All names of its claim.
    pub names: Vec<LockName>,
    /// The length of its lease.
    pub ttl: Duration,
    /// Whether a newer claim with this flag may remove it while it waits (`--supersede`).
    pub supersede: bool,
}

impl About {
    /// Describes the claim of `record`, which arrived at `since` in the queue of `name`.
    pub fn of(record: &Record, name: &LockName, since: Option<SystemTime>) -> Self {
        Self {
            entry: Entry { since, ..record.entry() },
            held_since: None,
            names: record.names(name),
            ttl: Duration::from_millis(record.ttl_ms),
            supersede: record.supersede,
        }
    }

    /// Describes the entry `id` of another program in the queue of `name`. Its clients call it `called`.
    pub fn foreign(name: &LockName, id: ClaimId, called: String) -> Self {
        Self {
            entry: Entry { claim: Some(id), foreign: true, key: Some(called), ..Entry::default() },
            held_since: None,
            names: vec![name.clone()],
            ttl: Duration::ZERO,
            supersede: false,
        }
    }
}

/// The entries of one lock, in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Queue {
    /// The lock.
    pub name: LockName,
    /// All entries, or those that [`Extent::Needed`] promises.
    pub items: Vec<Item>,
}

/// A claim of this client, as its store knows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Own {
    /// Its identity.
    pub id: ClaimId,
    /// Its locks.
    pub names: Vec<LockName>,
    /// Its mode.
    pub mode: Mode,
    /// The granted length of the lease.
    pub ttl: Duration,
    /// The keys of its entries, in the order of the names. Empty if another program's object kept the claim out of the
    /// queue; then [`Store::append`] is to be repeated.
    pub keys: Vec<Key>,
}

impl Own {
    /// Returns the keys of its entries, each with its lock.
    pub fn entries(&self) -> impl Iterator<Item = (LockName, Key)> + '_ {
        self.names.iter().cloned().zip(self.keys.iter().cloned())
    }
}

/// A notice to a claim. Nothing is decided by it: an entry is gone only if it is absent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Note {
    /// A client asks it to leave.
    Asked(Holder),
    /// A newer claim superseded it.
    Superseded(Holder),
    /// A client removed it.
    Evicted(Option<Holder>),
    /// The store has lost it.
    Forgotten(LossReason),
}

impl Note {
    /// Returns the word that services store for a removal, and who made it; `None` for another notice.
    pub fn stored(&self) -> Option<(&'static str, Option<&Holder>)> {
        match self {
            Self::Superseded(by) => Some(("superseded", Some(by))),
            Self::Evicted(by) => Some(("evicted", by.as_ref())),
            Self::Asked(_) | Self::Forgotten(_) => None,
        }
    }

    /// Returns the removal that is stored as `word`.
    pub fn removal(word: &str, by: Option<Holder>) -> Option<Self> {
        match (word, by) {
            ("superseded", Some(by)) => Some(Self::Superseded(by)),
            ("evicted", by) => Some(Self::Evicted(by)),
            _ => None,
        }
    }
}

/// The answer to a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    /// The queues, in the order of the names.
    pub queues: Vec<Queue>,
    /// The notice to the own claim.
    pub note: Option<Note>,
    /// When the answered attempt was sent.
    pub sent: Moment,
    /// The state of the store that the answer shows: [`Store::changed`] completes on any later change.
    pub seen: Seen,
}

/// The store's own mark of what it has read, such as a revision.
pub type Seen = u64;

/// How much of a queue to read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Extent<'a> {
    /// At least what a decision on the own claim needs: the first entry (with slots as many first ones as slots), the
    /// one before the own, the nearest one ahead of another mode, and the own one.
    Needed(&'a Own),
    /// All entries.
    Whole,
    /// All entries, with the rest of their time to live, for display.
    Shown,
}

/// A change of an entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// A client asks it to leave.
    Asked(Holder),
    /// The value that it publishes.
    Label(String),
    /// It has held for so long; nothing yet, if it has come to the first ones of a queue with slots and waits in another
    /// one. A store that reports this to the claims behind it saves them the time until they renew.
    HeldFor(Duration),
}

/// One step of a [`Store::commit`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// Takes what the own claim holds by: a slot of each name, a later token, another program's object. Refused if a
    /// slot is taken, if another program has the object, or if the own entry has another token than `seen`. A claim
    /// that was woken makes this step before it knows whether it holds; the answer shows that, and otherwise the step
    /// means nothing.
    Hold {
        /// The slot of each name.
        slots: Vec<Option<u32>>,
        /// The token of the own entry as it was read last.
        seen: Option<FencingToken>,
    },
    /// Removes all entries of a claim in the queues of `names`, whether they hold or not, and also those that `found`
    /// lacks. A request of that claim that is still in flight is refused.
    Remove {
        /// The claim.
        id: ClaimId,
        /// Its locks.
        names: Vec<LockName>,
        /// Its entries, as far as they were read.
        found: Vec<Item>,
        /// The notice to its owner.
        note: Option<Note>,
    },
    /// Removes another program's entry in the queue of this lock.
    RemoveForeign(LockName, Key),
    /// Changes an entry in the queue of this lock.
    Change(LockName, Item, Change),
    /// Records, with the removal of the own entry, a success of the run that acquired so long ago.
    Success {
        /// How long ago it acquired.
        held_for: Duration,
    },
}

/// An entry whose end may let a claim hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    /// The index of its lock among the names of the claim.
    pub name: usize,
    /// The entry.
    pub key: Key,
    /// Whether it is enough that the entry takes a slot.
    pub or_holds: bool,
}

/// The changes that a client waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Watched<'a> {
    /// A change of the own entry, a notice to it, or the end of a target.
    Claim {
        /// The own claim.
        own: &'a Own,
        /// The targets.
        on: &'a [Target],
    },
    /// Any change of a queue.
    Queue(&'a LockName),
}

/// A service that keeps ordered entries.
///
/// Each call returns by its deadline. After an `Unavailable` fault a step may or may not have been made, and may still
/// be made later. Leases end, and times are recorded, by the clock of the service alone; a [`Moment`] is this client's.
#[async_trait]
pub trait Store: ServiceClient {
    /// Returns whether `answer` may show a later state than that in which the claim `own` arrived.
    fn is_past_arrival(&self, own: &Own, answer: &Answer) -> bool {
        let _ = (own, answer);
        false
    }

    /// Returns whether a claim in `mode` holds only after a [`Step::Hold`]. `waited` is whether it did not hold on
    /// arrival, as far as that is known.
    fn hold_is_a_step(&self, mode: Mode, waited: bool) -> bool {
        let _ = waited;
        matches!(mode, Mode::Slots(_))
    }

    /// Returns the present length of the claim's lease.
    fn ttl(&self, own: &Own) -> Duration {
        own.ttl
    }

    /// Returns how many entries one [`Store::commit`] can require.
    fn most_conditions(&self) -> usize {
        usize::MAX
    }

    /// Returns whether the service reports changes. If not, [`Store::changed`] reads again and again.
    fn reports_changes(&self) -> bool {
        true
    }

    /// Joins the queues of all names at the end: all or none, in one step. An entry that is there is renewed in its
    /// place. Orders rise (C02), and tokens with them (C03). The answer shows the queues of that step, and why the
    /// entries are absent if the claim was removed before.
    async fn append(&self, request: &Request, deadline: Moment) -> FaultResult<(Own, Answer)>;

    /// Reads the queues of `names`; changes nothing, except that [`Extent::Needed`] may remove dead entries, and then
    /// shows the queue after it.
    async fn read(&self, names: &[LockName], extent: Extent<'_>, deadline: Moment) -> FaultResult<Answer>;

    /// Makes all steps if each entry in `when`, given with its lock, and the own entry are present; otherwise none.
    /// Returns whether it did, and after a [`Step::Hold`] what [`Extent::Needed`] shows. The answer to other steps may
    /// lack the queues.
    ///
    /// The engine sends one [`Step::Hold`], one [`Step::Change`], one [`Step::RemoveForeign`], one [`Step::Remove`] with a
    /// note, or one without a note of the own claim, alone or with a [`Step::Success`]. A removal of the own claim works
    /// without an entry.
    async fn commit(
        &self,
        own: Option<&Own>,
        when: &[(LockName, Key)],
        steps: &[Step],
        deadline: Moment,
    ) -> FaultResult<(bool, Answer)>;

    /// Gives the claim another ttl and returns the moment from which that counts, not after the beginning of the call;
    /// `None` if an entry is gone. `waits` asks for what [`Extent::Needed`] shows. The queues may be missing if the claim
    /// holds, or if [`Store::changed`] reports each change of them.
    async fn renew(&self, own: &Own, waits: bool, deadline: Moment) -> FaultResult<Option<(Moment, Answer)>>;

    /// Completes when what is watched may have changed after `seen`, at `until`, or if the store cannot tell. The end of
    /// an entry's lease is a change, also of the own one, although few services report it. Cancel-safe.
    async fn changed(&self, watched: Watched<'_>, seen: Seen, until: Moment) -> FaultResult<()>;

    /// Returns why the entries of the claim are gone, if that is known. A claim that `held` was never superseded: a newer
    /// claim may leave its note and find that this one holds.
    async fn why_gone(&self, own: &Own, held: bool, deadline: Moment) -> FaultResult<Option<Note>>;

    /// Reads the queues with entries and with names that start with `prefix`, whole, by name.
    async fn list(&self, prefix: &str, deadline: Moment) -> FaultResult<Vec<Queue>>;

    /// Implements [`crate::backend::Backend::last_success`].
    async fn last_success(&self, name: &LockName, deadline: Moment) -> FaultResult<Option<Duration>>;

    /// Forgets what it keeps for a claim that was dropped.
    fn abandon(&self, id: ClaimId) {
        let _ = id;
    }

    /// Implements [`crate::backend::Backend::examine`].
    async fn examine(&self, deadline: Moment) -> FaultResult<Examination>;

    /// Implements [`crate::backend::Backend::everywhere`].
    async fn everywhere(&self, name: LockName, deadline: Moment) -> FaultResult<Vec<LockName>> {
        let _ = deadline;
        Ok(vec![name])
    }

    /// Implements [`crate::backend::Backend::forget`].
    async fn forget(&self, name: &LockName, deadline: Moment) -> FaultResult<()> {
        let _ = (name, deadline);
        Ok(())
    }

    /// Implements [`crate::backend::Claim::anchors`] for the claim `id`.
    fn anchors(&self, id: ClaimId) -> Result<Vec<OwnedFd>> {
        let _ = id;
        Ok(Vec::new())
    }
}
