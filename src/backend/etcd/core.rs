//! The state that the tasks of one claim share.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use etcd_client::{GetOptions, GetResponse, Txn, TxnOp, TxnResponse};
use tokio::sync::Notify;

use super::fault::{self, LEASE_GONE};
use super::keep_alive::Kept;
use super::keys::{Layout, QueueKeys};
use super::look::{self, Answers, Seen, Target};
use super::stored::{Note, wall_clock};
use super::wire::Wire;
use crate::backend::claim_state::Publisher;
use crate::clock::{self, Clock};
use crate::lock::{ClaimState, FencingToken, Granted, Mode, Moment};
use crate::net::fault::FaultResult;

/// The time to find the reason for a vanished entry before its end is published without one.
const WHY: Duration = Duration::from_millis(200);
/// The pause between two attempts to take a slot after another claim was faster.
const PAUSE: Duration = Duration::from_millis(20);

/// One claim, shared by its waiter, its renewals and its release.
pub(super) struct Core {
    pub(super) wire: Arc<Wire>,
    pub(super) layout: Layout,
    pub(super) queues: Vec<QueueKeys>,
    pub(super) mode: Mode,
    pub(super) lease: i64,
    /// The granted ttl.
    pub(super) ttl: Duration,
    /// The revision that created the entry.
    pub(super) created: i64,
    pub(super) publisher: Publisher,
    /// The revision of the last write of its proofs, as far as is known; 0 if there are none.
    pub(super) proved_at: Mutex<i64>,
    /// When it acquired the lock, by the clock of this host.
    pub(super) acquired_ms: Mutex<Option<u64>>,
    /// Its slots, in the order of the names.
    pub(super) slots: Mutex<Vec<Option<u32>>>,
    /// Makes the follower read the queue, because the claim may be at the front.
    pub(super) look: Notify,
    /// The stream of keep-alives, between two renewals.
    pub(super) kept: Mutex<Option<Kept>>,
}

/// The position of the claim.
#[derive(Debug)]
pub(super) enum Place {
    /// It holds all its names, which is published.
    Held,
    /// It waits for one of these events, each in the queue of that index, after this revision.
    Waits(Vec<(usize, Target)>, i64),
    /// The entry is gone.
    Gone,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Core {
    /// Returns the key of the entry in a queue.
    pub(super) fn entry(&self, queue: &QueueKeys) -> String {
        queue.entry(self.mode, self.lease)
    }

    pub(super) fn is_held(&self) -> bool {
        lock(&self.acquired_ms).is_some()
    }

    /// Publishes the hold, with tokens and slots in the order of the names.
    pub(super) fn publish_held(&self, names: Vec<Granted>) {
        lock(&self.acquired_ms).get_or_insert_with(wall_clock);
        *lock(&self.slots) = names.iter().map(|granted| granted.slot).collect();
        self.publisher.publish_held(names);
    }

    /// Returns the comparisons that all entries exist.
    pub(super) fn all_stand(&self) -> Vec<etcd_client::Compare> {
        self.queues.iter().map(|queue| look::stands(self.entry(queue), self.created)).collect()
    }

    pub(super) fn granted(&self, revision: i64, slots: Option<&[u32]>) -> FaultResult<Vec<Granted>> {
        let token = u64::try_from(revision).ok().and_then(FencingToken::new);
        let token = token.ok_or_else(|| fault::corrupt("a revision below one"))?;
        let slot = |at: usize| slots.and_then(|slots| slots.get(at).copied());
        Ok((0..self.queues.len()).map(|at| Granted { token, slot: slot(at) }).collect())
    }

    /// Reads and publishes the position of the claim. For an exclusive or shared claim, the same transaction proves the
    /// hold, if it holds: it writes the key with the token as its revision.
    pub(super) async fn settle(&self, deadline: Moment) -> FaultResult<Place> {
        loop {
            let slots = if let Mode::Slots(n) = self.mode { Some(n.get()) } else { None };
            let Some((seen, revision)) = self.look(slots.is_none(), deadline).await? else {
                return Ok(Place::Gone);
            };
            let targets = self.targets(&seen);
            if !targets.is_empty() {
                self.publish_waiting(&seen, &targets);
                return Ok(Place::Waits(targets, revision));
            }
            let Some(slots) = slots else {
                self.publish_held(self.granted(revision, None)?);
                return Ok(Place::Held);
            };
            if self.take_slots(&seen, slots, deadline).await? {
                return Ok(Place::Held);
            }
            Clock::Boot.sleep_until(clock::now() + PAUSE).await;
        }
    }

    pub(super) fn targets(&self, seen: &[Seen]) -> Vec<(usize, Target)> {
        let each = self.queues.iter().zip(seen).enumerate();
        each.filter_map(|(at, (queue, seen))| Some((at, seen.target(queue, self.mode)?))).collect()
    }

    /// Publishes its position.
    pub(super) fn publish_waiting(&self, seen: &[Seen], targets: &[(usize, Target)]) {
        let longest = targets.iter().map(|(at, _)| &seen[*at]).max_by_key(|seen| seen.ahead.len());
        let Some(longest) = longest else { return };
        let ahead = u32::try_from(longest.ahead.len()).ok();
        self.publisher.publish(ClaimState::Waiting { ahead, holder: longest.first.clone() });
    }

    /// Reads all queues at one revision, and writes proofs if `proving`; `None` if the entry is gone. Publishes a
    /// request to leave that was missed.
    async fn look(&self, proving: bool, deadline: Moment) -> FaultResult<Option<(Vec<Seen>, i64)>> {
        loop {
            let answer = match self.ask(proving, deadline).await {
                Err(fault) if fault.code == LEASE_GONE => return Ok(None),
                other => other?,
            };
            let mut answers = Answers::of(&answer);
            if !answer.succeeded() {
                let proof = answers.read()?.kvs().first().map_or(0, etcd_client::KeyValue::mod_revision);
                let known = std::mem::replace(&mut *lock(&self.proved_at), proof);
                // An earlier transaction with a lost answer may have written the proof; otherwise the entry is missing.
                if proof == known {
                    return Ok(None);
                }
                continue;
            }
            let revision = answer.header().map_or(0, etcd_client::ResponseHeader::revision);
            if proving {
                *lock(&self.proved_at) = revision;
            }
            let seen = self.queues.iter().map(|_| answers.seen(self.mode, self.created));
            let seen = seen.collect::<FaultResult<Vec<_>>>()?;
            self.hear(&answers.read()?);
            return Ok(Some((seen, revision)));
        }
    }

    /// Returns the comparison that the proofs, which are always written together, are of `revision`. A request that is
    /// executed late must not write them again, since their revision is the token.
    fn proofs_are_of(&self, revision: i64) -> Option<etcd_client::Compare> {
        self.queues.first().map(|queue| look::unchanged(queue.hold(self.lease), revision))
    }

    /// Sends the transaction of [`Core::look`]. If a comparison fails, the answer is the first proof.
    async fn ask(&self, proving: bool, deadline: Moment) -> FaultResult<TxnResponse> {
        let mut operations = Vec::new();
        for queue in &self.queues {
            if proving {
                operations.push(look::proof(queue, self.lease, None));
            }
            operations.extend(look::reads(queue, self.mode, Some(self.created)));
        }
        operations.push(TxnOp::get(self.layout.note(self.lease), None));
        let mut compares = self.all_stand();
        if proving {
            compares.extend(self.proofs_are_of(*lock(&self.proved_at)));
        }
        let proof = self.queues.first().map(|queue| TxnOp::get(queue.hold(self.lease), None));
        let txn =
            Txn::new().when(compares).and_then(operations).or_else(proof.into_iter().collect::<Vec<_>>());
        self.wire.txn(txn, deadline).await
    }

    /// Publishes a request to leave in a read of the claim's note, because the watch begins at a later revision.
    pub(super) fn hear(&self, note: &GetResponse) {
        if let Some(Note::Ask(by)) = note.kvs().first().and_then(|kv| Note::parse(kv.value())) {
            self.publisher.publish(ClaimState::AskedToLeave { by });
        }
    }

    /// Takes a free slot of each name; `false` if all are taken, or another claim was faster.
    async fn take_slots(&self, seen: &[Seen], n: u32, deadline: Moment) -> FaultResult<bool> {
        let mut compares = self.all_stand();
        compares.extend(self.proofs_are_of(0));
        let (mut operations, mut slots) = (Vec::new(), Vec::new());
        for (queue, seen) in self.queues.iter().zip(seen) {
            let Some(slot) = seen.free_slot(n) else { return Ok(false) };
            let key = queue.slot(slot);
            compares.push(look::stands(key.clone(), 0));
            operations.push(look::put(key, "", self.lease));
            operations.push(look::proof(queue, self.lease, Some(slot)));
            slots.push(slot);
        }
        // After a lost answer, this finds the slots of the first attempt.
        let own = self.queues.iter().map(|queue| etcd_client::TxnOp::get(queue.hold(self.lease), None));
        let txn = Txn::new().when(compares).and_then(operations).or_else(own.collect::<Vec<_>>());
        let answer = match self.wire.txn(txn, deadline).await {
            Err(fault) if fault.code == LEASE_GONE => return Ok(false),
            other => other?,
        };
        if answer.succeeded() {
            let revision = answer.header().map_or(0, etcd_client::ResponseHeader::revision);
            self.publish_held(self.granted(revision, Some(&slots))?);
            return Ok(true);
        }
        let mut answers = Answers::of(&answer);
        let mut earlier = Vec::new();
        let mut revision = 0;
        for _ in &self.queues {
            let kvs = answers.read()?.take_kvs();
            let Some(kv) = kvs.first() else { return Ok(false) };
            revision = kv.mod_revision();
            earlier.extend(super::stored::Hold::parse(kv.value()).and_then(|hold| hold.slot));
        }
        let all = earlier.len() == self.queues.len();
        if all {
            self.publish_held(self.granted(revision, Some(&earlier))?);
        }
        Ok(all)
    }

    /// Publishes the end of a claim with a vanished entry, with the reason.
    pub(super) async fn conclude(&self) {
        if !self.publisher.is_over() {
            self.publisher.publish(self.why_gone(clock::now() + WHY).await);
        }
    }

    async fn why_gone(&self, deadline: Moment) -> ClaimState {
        let note = self.wire.get(self.layout.note(self.lease), GetOptions::new(), deadline).await;
        let note = note.ok().and_then(|answer| answer.kvs().first().and_then(|kv| Note::parse(kv.value())));
        let (why, by) = match &note {
            Some(Note::Superseded(by)) => (Some("superseded"), Some(by)),
            Some(Note::Evicted(by)) => (Some("evicted"), Some(by)),
            Some(Note::Ask(_)) | None => (None, None),
        };
        self.publisher.ended(why, by, self.ttl)
    }
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Core").field("lease", &self.lease).field("mode", &self.mode).finish_non_exhaustive()
    }
}
