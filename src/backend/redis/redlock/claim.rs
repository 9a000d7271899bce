//! A claim: attempts to acquire, renewal, and the events that it waits for.

use std::collections::hash_map::RandomState;
use std::future::{Ready, pending};
use std::hash::{BuildHasher, Hasher};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::task::AbortHandle;

use super::keys::{Hold, beginning, holds, merge};
use super::nodes::{Answer, Nodes, Question, answered, count};
use crate::backend::Claim;
use crate::backend::claim_state::{POLL, Publisher, SHORT_HOLD, due};
use crate::backend::record::{Record, mismatch};
use crate::backend::redis::connection::{Heard, any_news};
use crate::backend::redis::dial::text;
use crate::backend::redis::keys::LockKeys;
use crate::backend::redis::script::micros;
use crate::lock::{
    ClaimId, ClaimState, Entry, Error, ErrorKind, FencingToken, Granted, Mode, Moment, Request, Result,
};
use crate::net::fault::{Fault, FaultResult};
use crate::net::request::Patience;

/// The longest delay before a new attempt if no claim has a majority.
const LONGEST_DELAY: Duration = Duration::from_millis(500);
/// How long claims that arrive together may contend before each of them counts as waiting.
const CONTEST: Duration = Duration::from_secs(1);
/// The pause between two attempts if too few nodes are usable, and the least time before a read at the expected expiry.
const PAUSE: Duration = Duration::from_millis(500);

/// A claim, followed by a task while it exists. Dropping it leaves its keys to their ttl.
#[derive(Debug)]
pub(super) struct RedlockClaim {
    core: Arc<Core>,
    follower: AbortHandle,
}

/// The state that the tasks of one claim share.
#[derive(Debug)]
struct Core {
    nodes: Arc<Nodes>,
    keys: LockKeys,
    id: ClaimId,
    mode: Mode,
    ttl: Duration,
    record: String,
    publisher: Publisher,
    hold: OnceLock<Hold>,
}

/// The result of an attempt.
enum Attempt {
    /// The claim holds, which is published.
    Holds,
    /// No claim has a majority, as far as is known.
    Contested,
    /// Another claim holds, which is published. The next attempt is due at `until`, or when nodes report changes.
    Taken { until: Moment, heard: Vec<Heard> },
}

/// The other claims' holds at one node, and where it reports their next change.
type Look = (Vec<Entry>, Option<Heard>);

/// Returns a random number.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Returns the delay before a new attempt after `attempts` in a row without a majority, of which the last one took
/// `took`. It is random, so that one contender is alone. Its limit doubles with each attempt, in case there are many.
fn delay(attempts: u32, took: Duration) -> Duration {
    let longest =
        (took * 4).max(Duration::from_millis(4)).saturating_mul(1 << attempts.min(8)).min(LONGEST_DELAY);
    longest.mul_f64(f64::from(u32::try_from(random() >> 32).unwrap_or(0)) / f64::from(u32::MAX))
}

/// Returns the wall clock, in microseconds: a proposal for tokens that is the same at all nodes. It also exceeds the
/// earlier tokens of a node that has lost its counter. Nothing else depends on it.
fn proposal() -> u64 {
    micros(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())
}

impl Core {
    /// Returns until when the nodes may take for one step: far less than the ttl, and half of the time that is left, so
    /// that there is time for a removal, and the caller receives a reason.
    fn until(&self, deadline: Moment) -> Moment {
        let now = self.nodes.clock.now();
        now + (self.ttl / 10).min(Duration::from_secs(2)).min(deadline.since(now) / 2)
    }

    /// Returns the value of an attempt: the claim's record, and a number that rises with each attempt of the claim.
    fn value(&self) -> String {
        let number = self.nodes.clock.now().as_nanos();
        format!("{},\"attempt\":{number}}}", self.record.strip_suffix('}').unwrap_or(&self.record))
    }

    /// Returns the keys of which a claim may hold one.
    fn slots(&self) -> Vec<Option<u32>> {
        match self.mode {
            Mode::Slots(slots) => (1..=slots.get()).map(Some).collect(),
            _ => vec![None],
        }
    }

    /// Ends a claim that holds if `lacking`, the number of nodes without the hold, is so large that a majority has lost
    /// it.
    fn learn(&self, lacking: usize) {
        if self.hold.get().is_some() && self.nodes.all.len() - lacking < self.nodes.majority() {
            self.publisher.publish(self.publisher.ended(self.ttl));
        }
    }

    /// Renews `hold` at a majority by another ttl, and sets it again at nodes that have lost it. A restarted node counts if
    /// it has the key, because it refuses that to others.
    async fn extend(&self, hold: &Hold, deadline: Moment) -> FaultResult<()> {
        let question = Question { decides: true, ..Question::by(deadline) };
        let found = self.nodes.ask(question, vec![self.keys.set("extend", hold, self.ttl, self.mode)]).await;
        let lacking = count(&found, |done| done == 0);
        self.learn(lacking);
        if lacking > 0 && self.hold.get().is_some() && !self.publisher.has_ended() {
            let again = self.keys.set("acquire", hold, self.ttl, self.mode);
            let nodes = Arc::clone(&self.nodes);
            tokio::spawn(async move { nodes.ask(question, vec![again]).await });
        }
        self.nodes.refuse_too_few(count(&found, |done| done == 1), &found)
    }

    /// Tries to acquire one key after another in random order, while they seem to be free.
    ///
    /// Errors: too few usable nodes, answers that rule out a hold, or a holder of another kind. Keys that were set are
    /// removed.
    async fn attempt(&self, deadline: Moment) -> FaultResult<Attempt> {
        let mut untried = self.slots();
        loop {
            let slot = untried.swap_remove(usize::try_from(random()).unwrap_or(0) % untried.len());
            let Some(looks) = self.attempt_at(slot, deadline).await? else { return Ok(Attempt::Holds) };
            untried.retain(|slot| self.is_free(&looks, *slot));
            if untried.is_empty() {
                return self.judge(looks);
            }
        }
    }

    /// Tries once to set the key of `slot`. `None` is a hold, which is published. Otherwise removes what it has set, and
    /// returns the nodes' views of other claims.
    async fn attempt_at(&self, slot: Option<u32>, deadline: Moment) -> FaultResult<Option<Vec<Look>>> {
        let (nodes, clock, begin) = (&self.nodes, self.nodes.clock, self.nodes.clock.now());
        let mut hold = Hold { value: self.value(), slot, token: proposal() };
        let question = Question { votes: true, ..Question::by(self.until(deadline)) };
        let found = nodes.ask(question, vec![self.keys.set("acquire", &hold, self.ttl, self.mode)]).await;
        let granted = count(&found, |token| token > 0);
        if granted >= nodes.majority() && !self.publisher.is_leaving() && nodes.refuse_unfit(&found).is_ok() {
            hold.token = answered(&found).filter_map(Answer::number).max().unwrap_or(0);
            // A majority must not issue a lower token later.
            let is_known = count(&found, |token| token == hold.token) >= nodes.majority()
                || self.extend(&hold, self.until(deadline)).await.is_ok();
            let token = FencingToken::new(hold.token).filter(|_| is_known);
            if let Some(token) = token.filter(|_| clock.now() < begin + self.ttl / 2) {
                self.publisher.prove(begin);
                let _ = self.hold.set(hold);
                self.publisher.publish_held(vec![Granted { token, slot }]);
                return Ok(None);
            }
        }
        let looks = self.take_back(&hold.value, deadline).await;
        nodes.refuse_unfit(&found)?;
        nodes.refuse_too_few(answered(&found).count(), &found)?;
        Ok(Some(looks))
    }

    /// Removes the keys with `value` at all nodes: also at silent ones, since the request may arrive late. Returns the
    /// nodes' views of other claims, with notifications of the next change.
    async fn take_back(&self, value: &str, deadline: Moment) -> Vec<Look> {
        let steps = vec![self.keys.step("release", value, None, &[]), self.keys.inspect(&self.slots())];
        let question = Question { listens: true, ..Question::by(self.until(deadline)) };
        let found = self.nodes.ask(question, steps).await;
        let looks = found.into_iter().flatten().filter_map(|answer| {
            let mut others = holds(&answer, 1, &self.keys.lock).ok()?;
            others.retain(|entry| entry.claim != Some(self.id));
            Some((others, answer.heard))
        });
        looks.collect()
    }

    /// Returns whether the key of `slot` is free at a majority of the nodes.
    fn is_free(&self, looks: &[Look], slot: Option<u32>) -> bool {
        let is_apart = |held: &Entry| slot.is_some() && held.slot.is_some() && held.slot != slot;
        looks.iter().filter(|(others, _)| others.iter().all(is_apart)).count() >= self.nodes.majority()
    }

    /// Returns the meaning of a failure to acquire any key.
    ///
    /// Errors: the holder's lock is of another kind.
    fn judge(&self, looks: Vec<Look>) -> FaultResult<Attempt> {
        let now = self.nodes.clock.now();
        let all = || looks.iter().flat_map(|(others, _)| others);
        let Some(holder) = merge(all(), self.nodes.majority()).into_iter().next() else {
            return Ok(Attempt::Contested);
        };
        if !holder.foreign && !holder.mode.is_some_and(|mode| mode.mixes_with(self.mode)) {
            let owner = holder.owner().to_string();
            let reason = mismatch(&self.keys.name, Some(&owner), holder.mode, self.mode);
            return Err(Fault::new(ErrorKind::Mismatch, reason));
        }
        if self.slots().into_iter().any(|slot| self.is_free(&looks, slot)) {
            return Ok(Attempt::Contested);
        }
        // Not all waiters at once, and not before the other nodes' keys expire.
        let expiry = due(now, all().filter_map(|entry| entry.ttl).min()) + delay(0, POLL / 8);
        let nodes = looks.len();
        let heard: Vec<Heard> = looks.into_iter().filter_map(|(_, heard)| heard).collect();
        let until = if heard.len() < nodes { expiry.min(now + POLL) } else { expiry };
        // Without the part that changes from read to read.
        let holder = Some(Box::new(Entry { ttl: None, ..holder }));
        self.publisher.publish(ClaimState::Waiting { ahead: None, holder });
        Ok(Attempt::Taken { until, heard })
    }

    /// Tries until the claim holds, or another one is known to, or until `until`; each attempt by `deadline`.
    async fn contend(&self, until: Moment, deadline: Moment) -> FaultResult<Attempt> {
        let clock = self.nodes.clock;
        let mut attempts = 0;
        loop {
            let begin = clock.now();
            let attempt = self.attempt(deadline).await?;
            let again = clock.now() + delay(attempts, clock.now().since(begin));
            if !matches!(attempt, Attempt::Contested) || again >= until {
                return Ok(attempt);
            }
            clock.sleep_until(again).await;
            attempts += 1;
        }
    }

    /// Completes when a majority of the nodes may be free, and at `until`.
    async fn may_be_free(&self, until: Moment, heard: &[Heard]) {
        let majority = self.nodes.majority();
        let news: FuturesUnordered<_> = heard.iter().map(Heard::news).collect();
        let enough = async {
            if heard.len() < majority {
                pending::<()>().await;
            }
            news.take(majority).collect::<Vec<()>>().await
        };
        self.nodes.clock.by(until, enough).await;
    }

    /// Follows the claim: tries until it holds, and then follows the hold.
    async fn follow(self: Arc<Self>, mut attempt: Attempt) {
        let clock = self.nodes.clock;
        loop {
            match attempt {
                Attempt::Holds => break,
                Attempt::Contested => {}
                Attempt::Taken { until, heard } => self.may_be_free(until, &heard).await,
            }
            attempt = match self.contend(Moment::NEVER, Moment::NEVER).await {
                Ok(attempt) => attempt,
                Err(fault) => {
                    self.publisher.cannot_follow(fault);
                    clock.sleep_until(clock.now() + PAUSE + delay(8, PAUSE)).await;
                    Attempt::Contested
                }
            };
        }
        clock.sleep_until(clock.now() + SHORT_HOLD).await;
        while let Some(hold) = self.hold.get().filter(|_| !self.publisher.has_ended()) {
            self.look_after(hold).await;
        }
    }

    /// Reads the hold, and completes when it may have changed.
    async fn look_after(&self, hold: &Hold) {
        let clock = self.nodes.clock;
        let question = Question { listens: true, ..Question::by(self.until(Moment::NEVER)) };
        let step = self.keys.step("look", &hold.value, hold.slot, &[]);
        let found = self.nodes.ask(question, vec![step]).await;
        let asked =
            answered(&found).find_map(|answer| serde_json::from_str(&text(answer.replies.first()?)?).ok());
        if let Some(by) = asked {
            self.publisher.publish(ClaimState::AskedToLeave { by });
        }
        self.learn(count(&found, |reply| reply == 0));
        let heard: Vec<_> = found.into_iter().flatten().filter_map(|answer| answer.heard).collect();
        // A node may report the expiry of a key late.
        let now = clock.now();
        let expiry = due(self.publisher.proof(), Some(self.ttl)).max(now + PAUSE);
        let until = if heard.len() < self.nodes.majority() { now + POLL } else { expiry };
        clock.by(until, any_news(&heard)).await;
    }
}

impl RedlockClaim {
    /// Enters with `request`: the claim then holds or waits.
    pub(super) async fn enter(
        nodes: &Arc<Nodes>,
        keys: LockKeys,
        request: &Request,
        deadline: Moment,
    ) -> FaultResult<Self> {
        let (ttl, begin) = (request.ttl.min(nodes.max_ttl), nodes.clock.now());
        let core = Arc::new(Core {
            nodes: Arc::clone(nodes),
            keys,
            id: request.id,
            mode: request.mode,
            ttl,
            record: Record::of(request, ttl).to_text(),
            publisher: Publisher::new(nodes.clock, begin),
            hold: OnceLock::new(),
        });
        let attempt = core.contend(deadline.min(begin + CONTEST), deadline).await?;
        let follower = tokio::spawn(Arc::clone(&core).follow(attempt)).abort_handle();
        Ok(Self { core, follower })
    }

    /// Returns whether a caller that enters again with its id can use it.
    pub(super) fn is_live(&self) -> bool {
        !self.core.publisher.is_over()
    }
}

impl Drop for RedlockClaim {
    fn drop(&mut self) {
        self.follower.abort();
        self.core.publisher.begin_leaving();
    }
}

#[async_trait]
impl Claim for RedlockClaim {
    fn ttl(&self) -> Option<Duration> {
        Some(self.core.ttl)
    }

    async fn changed(&self, seen: Option<&ClaimState>) -> Result<ClaimState> {
        let changed = self.core.publisher.changed(seen, None::<Ready<_>>).await;
        changed.map_err(|error| Error { is_final: error.kind == ErrorKind::Mismatch, ..error })
    }

    /// Renews the hold. A waiter has nothing at the nodes to renew.
    async fn renew(&self, deadline: Moment) -> Result<Moment> {
        let (core, publisher) = (&self.core, &self.core.publisher);
        let begin = core.nodes.clock.now();
        let Some(hold) = core.hold.get() else { return Ok(begin) };
        if !publisher.has_ended() {
            match core.extend(hold, deadline).await {
                Ok(()) => publisher.prove(begin),
                Err(fault) if !publisher.has_ended() => return Err(fault),
                Err(_) => {}
            }
        }
        Ok(publisher.proof())
    }

    async fn leave(&self, succeeded: bool, deadline: Moment) -> Result<()> {
        let (core, publisher) = (&self.core, &self.core.publisher);
        publisher.begin_leaving();
        self.follower.abort();
        let held_at = publisher.held_at().filter(|_| succeeded);
        let held_for = held_at.map(|at| micros(core.nodes.clock.now().since(at)).to_string());
        let held_for: Vec<&str> = held_for.iter().map(String::as_str).collect();
        let release = core.keys.step("release", &beginning(core.id), None, &held_for);
        // A node that misses the request would keep its key until the ttl.
        let question = Question { patience: Patience::Deadline, ..Question::by(deadline) };
        core.nodes.majority_of(question, vec![release]).await?;
        publisher.leave();
        Ok(())
    }
}
