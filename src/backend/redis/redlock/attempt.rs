//! Attempts to acquire, and the events that refused ones wait for.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};

use super::core::Core;
use super::keys::{Attempt, Hold};
use super::nodes::{Answer, Answers, Question, answered};
use super::view::{Held, counts};
use crate::backend::claim_state::{POLL, due};
use crate::backend::record::Record;
use crate::backend::record::mismatch;
use crate::backend::redis::connection::Connection;
use crate::backend::redis::rows::foreign_entry;
use crate::clock::Clock;
use crate::lock::{ClaimState, Entry, ErrorKind, FencingToken, Granted, Mode, Moment};
use crate::net::fault::{Fault, FaultResult};

/// How long before the caller's deadline an attempt ends.
const EARLIER: Duration = Duration::from_millis(25);
/// The longest delay before a new attempt if no claim has a majority.
const LONGEST_DELAY: Duration = Duration::from_millis(500);

/// The result of an attempt that did not acquire.
pub(super) enum Refused {
    /// Other claims hold a majority of the nodes.
    Taken(Box<Taken>),
    /// No claim has a majority, as far as is known.
    Contested,
}

/// The knowledge about the holders.
pub(super) struct Taken {
    /// One of them.
    holder: Entry,
    /// When enough of them have expired for a majority to be free.
    expires: Moment,
    /// The connections that report the next change at each taken node.
    told: Vec<(Arc<Connection>, u64)>,
    /// The number of nodes that must change before a majority may be free.
    needed: usize,
}

impl Taken {
    /// Completes when a majority of the nodes may be free.
    pub(super) async fn is_over(&self, clock: Clock) {
        let mut changes: FuturesUnordered<_> =
            self.told.iter().map(|(connection, told)| connection.notified_after(*told)).collect();
        let all = async {
            for _ in 0..self.needed {
                changes.next().await;
            }
        };
        tokio::select! {
            () = all, if self.told.len() >= self.needed => {}
            () = clock.sleep_until(self.expires) => {}
        }
    }

    /// Returns the resulting state of the claim.
    pub(super) fn state(&self) -> ClaimState {
        ClaimState::Waiting { ahead: None, holder: Some(Box::new(self.holder.clone())) }
    }
}

/// Returns a random number.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Returns the delay before a new attempt after `attempts` in a row without a majority, of which the last one took
/// `took`. It is random, so that one contender is alone. Its limit doubles with each attempt, in case there are many.
pub(super) fn delay(attempts: u32, took: Duration) -> Duration {
    let longest =
        (took * 4).max(Duration::from_millis(4)).saturating_mul(1 << attempts.min(8)).min(LONGEST_DELAY);
    longest.mul_f64(f64::from(u32::try_from(random() >> 32).unwrap_or(0)) / f64::from(u32::MAX))
}

/// One node's view of the other claims' holds, and the connection that reports their next change.
struct Look {
    held: Vec<Held>,
    told: Option<(Arc<Connection>, u64)>,
}

impl Look {
    fn is_free(&self, slot: Option<u32>) -> bool {
        !self.held.iter().any(|held| slot.is_none() || held.slot.is_none() || held.slot == slot)
    }
}

impl Core {
    /// Returns the keys of which a claim may hold one.
    pub(super) fn slots(&self) -> Vec<Option<u32>> {
        match self.mode {
            Mode::Slots(slots) => (1..=slots.get()).map(Some).collect(),
            _ => vec![None],
        }
    }

    /// Tries to acquire one key after another in random order, while they seem to be free. `Ok(None)` is a hold, which
    /// is published.
    ///
    /// Errors: too few usable nodes, or answers that rule out a hold. Keys that were set are removed.
    pub(super) async fn attempt(self: &Arc<Self>, deadline: Moment) -> FaultResult<Option<Refused>> {
        // It ends before the caller's deadline, so that the caller receives a reason.
        let deadline = deadline - (deadline.since(self.nodes.clock.now()) / 20).min(EARLIER);
        let mut untried = self.slots();
        loop {
            let slot = untried.swap_remove(usize::try_from(random()).unwrap_or(0) % untried.len());
            let number = self.nodes.attempts.fetch_add(1, Ordering::Relaxed);
            let attempt = Attempt { id: self.id, number, slot };
            let Some(found) = self.attempt_at(attempt, deadline).await else { return Ok(None) };
            let looks = self.take_back(attempt, deadline).await;
            self.nodes.refuse_unfit(&found)?;
            self.nodes.refuse_too_few(answered(&found).count(), &found)?;
            self.nodes.refuse_few_votes(&found)?;
            untried.retain(|slot| free(&looks, *slot) >= self.nodes.majority());
            if untried.is_empty() {
                return self.refused(looks).map(Some);
            }
        }
    }

    /// Tries once to acquire that key. Returns the answers of the nodes, or `None` for a hold, which is published.
    async fn attempt_at(self: &Arc<Self>, attempt: Attempt, deadline: Moment) -> Option<Answers> {
        let begin = self.nodes.clock.now();
        let (majority, all) = (self.nodes.majority(), self.nodes.all.len());
        let value = self.value_of(attempt);
        let step = self.keys.acquire(attempt, &value, self.ttl, self.mode);
        let (core, undo) = (Arc::clone(self), self.keys.take_back(attempt));
        // No key may be set once the claim has begun to leave.
        let steps = move || vec![if core.publisher.is_leaving() { undo.clone() } else { step.clone() }];
        let given = |found: &Answers| {
            let given = self.nodes.votes(found).filter_map(|answer| answer.number(0)?.try_into().ok());
            given.filter_map(FencingToken::new).collect::<Vec<_>>()
        };
        let enough = |found: &Answers| {
            let given = given(found).len();
            given >= majority || answered(found).count() - given > all - majority
        };
        let question = Question::by(deadline.min(begin + self.patience()));
        let found = self.nodes.ask(question, steps, enough).await;
        let given = given(&found);
        if given.len() < majority || self.publisher.is_leaving() || self.nodes.refuse_unfit(&found).is_err() {
            return Some(found);
        }
        let Some(token) = given.iter().max().copied() else { return Some(found) };
        let hold = Hold { attempt, value, token };
        // A majority must not issue a lower token later.
        if given.iter().filter(|one| **one == token).count() < majority
            && self.extend(&hold, self.nodes.clock.now() + self.patience()).await.1.is_err()
        {
            return Some(found);
        }
        if self.nodes.clock.now() >= begin + self.ttl / 2 {
            return Some(found);
        }
        self.publisher.prove(begin);
        let _ = self.hold.set(hold);
        self.publisher.publish_held(vec![Granted { token, slot: attempt.slot }]);
        None
    }

    /// Removes the keys that this attempt and earlier ones have set, at all nodes: also at silent ones, since the
    /// request may arrive late. Returns the nodes' views of other claims, with notifications of the next change.
    async fn take_back(&self, attempt: Attempt, deadline: Moment) -> Vec<Look> {
        let steps = [self.keys.take_back(attempt), self.keys.inspect(&self.slots())];
        let until = self.nodes.clock.now() + self.patience();
        let question = Question { listens: true, give_up_at: deadline.min(until), ..Question::by(until) };
        let found =
            self.nodes.ask(question, move || steps.to_vec(), |found| self.nodes.is_enough(found)).await;
        let look = |answer: Answer| {
            let mut held = Held::all(&answer, 1, &self.keys.lock).ok()?;
            held.retain(|held| held.entry.claim != Some(self.id));
            Some(Look { held, told: answer.told })
        };
        found.into_iter().flatten().flatten().filter_map(look).collect()
    }

    /// Returns the meaning of a failure to acquire any key.
    ///
    /// Errors: the holder's lock is of another kind.
    fn refused(&self, looks: Vec<Look>) -> FaultResult<Refused> {
        let (now, majority) = (self.nodes.clock.now(), self.nodes.majority());
        let all = looks.iter().flat_map(|look| &look.held);
        let most = counts(all.clone().map(|held| (held.slot, &held.value)));
        let most = most.into_iter().max_by_key(|(_, count)| *count).filter(|(_, count)| *count >= majority);
        let holder = most.and_then(|(key, _)| all.clone().find(|held| (held.slot, &held.value) == key));
        let Some(holder) = holder else { return Ok(Refused::Contested) };
        if let Some(record) = &holder.record
            && !record.mode().is_some_and(|mode| mode.mixes_with(self.mode))
        {
            let (name, owner) = (&self.keys.name, record.holder.to_string());
            let reason = mismatch(name, Some(&owner), record.mode(), self.mode);
            return Err(Fault::new(ErrorKind::Mismatch, reason));
        }
        let free = self.slots().into_iter().map(|slot| free(&looks, slot)).max().unwrap_or(0);
        let Some(needed) = majority.checked_sub(free).filter(|needed| *needed > 0) else {
            return Ok(Refused::Contested);
        };
        let first = |look: &Look| look.held.iter().map(|held| due(now, held.left)).min().unwrap_or(now);
        let mut lives: Vec<Moment> = looks.iter().map(first).collect();
        lives.sort_unstable();
        let expires = lives.get(majority - 1).map_or(now + POLL, |end| *end + delay(0, POLL / 8));
        // Without the details that change from read to read.
        let shown = || foreign_entry(&self.keys.lock, None, None);
        let holder = holder.record.as_ref().map_or_else(shown, Record::entry);
        let taken = looks.into_iter().filter(|look| !self.slots().into_iter().any(|slot| look.is_free(slot)));
        let (told, deaf): (Vec<_>, Vec<_>) = taken.map(|look| look.told).partition(Option::is_some);
        let told: Vec<_> = told.into_iter().flatten().collect();
        let is_deaf = !deaf.is_empty() || told.len() < needed;
        let expires = if is_deaf { expires.min(now + POLL) } else { expires };
        Ok(Refused::Taken(Box::new(Taken { holder, expires, told, needed })))
    }
}

/// Returns the number of nodes at which the key of that slot is free.
fn free(looks: &[Look], slot: Option<u32>) -> usize {
    looks.iter().filter(|look| look.is_free(slot)).count()
}
