//! The steps of a claim: attempts to acquire, renewal, and the events that refused attempts wait for.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};

use super::keys::{Hold, proposal};
use super::nodes::{Answer, Answers, Nodes, Question, answered};
use super::view::{Held, merge};
use crate::backend::claim_state::{POLL, Publisher, due};
use crate::backend::record::{Record, mismatch};
use crate::backend::redis::connection::Heard;
use crate::backend::redis::keys::LockKeys;
use crate::clock::Clock;
use crate::lock::{ClaimId, Entry, ErrorKind, FencingToken, Granted, Mode, Moment};
use crate::net::fault::{Fault, FaultResult};

/// How long before the caller's deadline an attempt ends.
const EARLIER: Duration = Duration::from_millis(25);
/// The longest delay before a new attempt if no claim has a majority.
const LONGEST_DELAY: Duration = Duration::from_millis(500);

/// The state that the tasks of one claim share.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) nodes: Arc<Nodes>,
    pub(super) keys: LockKeys,
    pub(super) id: ClaimId,
    pub(super) mode: Mode,
    pub(super) ttl: Duration,
    pub(super) record: Record,
    pub(super) publisher: Publisher,
    pub(super) hold: OnceLock<Hold>,
}

/// The result of an attempt that did not acquire.
pub(super) struct Refused {
    /// A claim that has a majority of the nodes, if one is known.
    pub(super) holder: Option<Entry>,
    /// When to try again.
    pub(super) until: Moment,
    /// Where the nodes report changes.
    heard: Vec<Heard>,
}

impl Refused {
    /// Returns the result of an attempt after which no claim is known to have a majority.
    pub(super) fn contested(until: Moment) -> Self {
        Self { holder: None, until, heard: Vec::new() }
    }

    /// Completes when a `majority` of the nodes may be free.
    pub(super) async fn is_over(&self, clock: Clock, majority: usize) {
        let mut news: FuturesUnordered<_> = self.heard.iter().map(Heard::news).collect();
        let enough = async {
            for _ in 0..majority {
                news.next().await;
            }
        };
        tokio::select! {
            () = enough, if self.heard.len() >= majority => {}
            () = clock.sleep_until(self.until) => {}
        }
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

/// One node's view of the other claims' holds, and where it reports their next change.
struct Look {
    held: Vec<Held>,
    heard: Option<Heard>,
}

impl Look {
    fn is_free(&self, slot: Option<u32>) -> bool {
        let mut taken = self.held.iter().map(|held| held.entry.slot);
        !taken.any(|taken| slot.is_none() || taken.is_none() || taken == slot)
    }
}

impl Core {
    /// Returns how long one node may take: far less than the ttl.
    pub(super) fn patience(&self) -> Duration {
        (self.ttl / 10).min(Duration::from_secs(2))
    }

    /// Returns the value of an attempt: the claim's record, and the number of the attempt, which makes it unique.
    fn value_of(&self, attempt: u64) -> String {
        let record = self.record.to_text();
        format!("{},\"attempt\":{attempt}}}", record.strip_suffix('}').unwrap_or(&record))
    }

    /// Ends the claim if `lacking`, the number of nodes without the hold, is so large that a majority has lost it.
    pub(super) fn learn(&self, lacking: usize) {
        if self.nodes.all.len() - lacking < self.nodes.majority() {
            self.publisher.publish(self.publisher.ended(self.ttl));
        }
    }

    /// Renews `hold` at a majority by another ttl; then creates it again at nodes that have lost it. Returns how many
    /// have lost it, and whether a majority has renewed it.
    pub(super) async fn extend(&self, hold: &Hold, deadline: Moment) -> (usize, FaultResult<()>) {
        let question = Question::by(deadline);
        let found = self.nodes.ask(question, vec![self.keys.extend(hold, self.ttl, self.mode)]).await;
        let extended = self.nodes.votes(&found).filter(|answer| answer.number(0) == Some(1)).count();
        let lacking = answered(&found).filter(|answer| answer.number(0) == Some(0)).count();
        let done = self.nodes.refuse_too_few(extended, &found);
        if done.is_ok() && lacking > 0 {
            let token = hold.token.get();
            let again = self.keys.acquire(&hold.value, hold.slot, self.ttl, token, self.mode);
            let nodes = Arc::clone(&self.nodes);
            tokio::spawn(async move { nodes.ask(question, vec![again]).await });
        }
        (lacking, done)
    }

    /// Returns the keys of which a claim may hold one.
    fn slots(&self) -> Vec<Option<u32>> {
        match self.mode {
            Mode::Slots(slots) => (1..=slots.get()).map(Some).collect(),
            _ => vec![None],
        }
    }

    /// Tries to acquire one key after another in random order, while they seem to be free, after `attempts` in a row
    /// without a majority. `Ok(None)` is a hold, which is published.
    ///
    /// Errors: too few usable nodes, or answers that rule out a hold. Keys that were set are removed.
    pub(super) async fn attempt(&self, attempts: u32, deadline: Moment) -> FaultResult<Option<Refused>> {
        let begin = self.nodes.clock.now();
        // It ends before the caller's deadline, so that the caller receives a reason.
        let deadline = deadline - (deadline.since(begin) / 20).min(EARLIER);
        let mut untried = self.slots();
        loop {
            let slot = untried.swap_remove(usize::try_from(random()).unwrap_or(0) % untried.len());
            let value = self.value_of(self.nodes.attempts.fetch_add(1, Ordering::Relaxed));
            let Some(found) = self.attempt_at(&value, slot, deadline).await else { return Ok(None) };
            let looks = self.take_back(&value, deadline).await;
            self.nodes.refuse_unfit(&found)?;
            self.nodes.refuse_too_few(answered(&found).count(), &found)?;
            self.nodes.refuse_few_votes(&found)?;
            untried.retain(|slot| self.is_free(&looks, *slot));
            if untried.is_empty() {
                let took = self.nodes.clock.now().since(begin);
                return self.refused(looks, delay(attempts, took)).map(Some);
            }
        }
    }

    /// Tries once to set that key to `value`. Returns the answers of the nodes, or `None` for a hold, which is published.
    async fn attempt_at(&self, value: &str, slot: Option<u32>, deadline: Moment) -> Option<Answers> {
        let (clock, begin, majority) = (self.nodes.clock, self.nodes.clock.now(), self.nodes.majority());
        let step = self.keys.acquire(value, slot, self.ttl, proposal(), self.mode);
        let question = Question::by(deadline.min(begin + self.patience()));
        let found = self.nodes.ask(question, vec![step]).await;
        let tokens = self.nodes.votes(&found).filter_map(|answer| answer.number(0)?.try_into().ok());
        let tokens: Vec<FencingToken> = tokens.filter_map(FencingToken::new).collect();
        let is_sound = !self.publisher.is_leaving() && self.nodes.refuse_unfit(&found).is_ok();
        let token = tokens.iter().max().filter(|_| is_sound && tokens.len() >= majority);
        let Some(token) = token.copied() else { return Some(found) };
        let hold = Hold { value: value.to_owned(), slot, token };
        // A majority must not issue a lower token later.
        if tokens.iter().filter(|one| **one == token).count() < majority
            && self.extend(&hold, clock.now() + self.patience()).await.1.is_err()
        {
            return Some(found);
        }
        if clock.now() >= begin + self.ttl / 2 {
            return Some(found);
        }
        self.publisher.prove(begin);
        let _ = self.hold.set(hold);
        self.publisher.publish_held(vec![Granted { token, slot }]);
        None
    }

    /// Removes the keys with `value` at all nodes: also at silent ones, since the request may arrive late. Returns the
    /// nodes' views of other claims, with notifications of the next change.
    async fn take_back(&self, value: &str, deadline: Moment) -> Vec<Look> {
        let steps = vec![self.keys.release(value, None), self.keys.inspect(&self.slots())];
        let until = self.nodes.clock.now() + self.patience();
        let question = Question { give_up_at: deadline.min(until), ..Question::listening(until) };
        let look = |answer: Answer| {
            let mut held = Held::all(&answer, 1, &self.keys.lock).ok()?;
            held.retain(|held| held.entry.claim != Some(self.id));
            Some(Look { held, heard: answer.heard })
        };
        self.nodes.ask(question, steps).await.into_iter().flatten().flatten().filter_map(look).collect()
    }

    /// Returns whether the key of `slot` is free at a majority of the nodes.
    fn is_free(&self, looks: &[Look], slot: Option<u32>) -> bool {
        looks.iter().filter(|look| look.is_free(slot)).count() >= self.nodes.majority()
    }

    /// Returns the meaning of a failure to acquire any key. A contested lock is tried again after `delay`.
    ///
    /// Errors: the holder's lock is of another kind.
    fn refused(&self, looks: Vec<Look>, delay: Duration) -> FaultResult<Refused> {
        let now = self.nodes.clock.now();
        let all = || looks.iter().flat_map(|look| &look.held);
        let holder = merge(all(), self.nodes.majority()).into_iter().next();
        let Some(holder) = holder else { return Ok(Refused::contested(now + delay)) };
        if !holder.foreign && !holder.mode.is_some_and(|mode| mode.mixes_with(self.mode)) {
            let owner = holder.owner().to_string();
            let reason = mismatch(&self.keys.name, Some(&owner), holder.mode, self.mode);
            return Err(Fault::new(ErrorKind::Mismatch, reason));
        }
        if self.slots().into_iter().any(|slot| self.is_free(&looks, slot)) {
            return Ok(Refused::contested(now + delay));
        }
        // Not all waiters at once, and not before the other nodes' keys expire.
        let expiry = due(now, all().filter_map(|held| held.entry.ttl).min()) + self::delay(0, POLL / 8);
        let nodes = looks.len();
        let heard: Vec<Heard> = looks.into_iter().filter_map(|look| look.heard).collect();
        let until = if heard.len() < nodes { expiry.min(now + POLL) } else { expiry };
        // Without the part that changes from read to read.
        Ok(Refused { holder: Some(Entry { ttl: None, ..holder }), until, heard })
    }
}
