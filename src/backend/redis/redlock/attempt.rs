//! Attempts to acquire.

use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use redis::Value;

use super::core::{Core, Hold};
use super::keys::{Place, beginning};
use super::nodes::{Answer, Answers, Node, STRAGGLE, answered};
use crate::backend::claim_state::{POLL, due};
use crate::backend::record::Record;
use crate::backend::redis::connection::Connection;
use crate::backend::redis::dial::value_of;
use crate::backend::redis::fault;
use crate::backend::redis::row::{foreign_entry, integer, life};
use crate::backend::redis::script::Call;
use crate::lock::{ClaimState, Entry, FencingToken, Granted, Mode, Moment};
use crate::net::fault::FaultResult;

/// The longest delay before a new attempt when nobody has a majority.
const LONGEST_DELAY: Duration = Duration::from_millis(500);

/// How long before its deadline an attempt is over.
const EARLIER: Duration = Duration::from_millis(25);

/// What an attempt came to, if not to a hold.
pub(super) enum Refused {
    /// A majority of the nodes has given the lock to others.
    Taken(Box<Taken>),
    /// Nobody has a majority, as far as can be told.
    Contested,
}

/// What is known of those who hold.
pub(super) struct Taken {
    /// One of them.
    holder: Entry,
    /// When so many of them will have expired that a majority is free.
    expires: Moment,
    /// What tells of the next change at each node that is taken.
    listening: Vec<(Arc<Connection>, u64)>,
    /// How many of these have to change before a majority may be free.
    needed: usize,
}

/// What one node answered to an attempt.
enum Said {
    Given(FencingToken),
    Taken {
        /// What the key says that is in the way.
        by: String,
        left: Option<Duration>,
        free: Vec<u32>,
    },
}

impl Said {
    fn by(&self) -> Option<&str> {
        if let Self::Taken { by, .. } = self { Some(by) } else { None }
    }

    fn parse(answer: &Answer) -> FaultResult<Self> {
        let nonsense = || fault::nonsense("no answer to an attempt");
        let Some(Value::Array(parts)) = answer.replies.first() else { return Err(nonsense()) };
        match parts.as_slice() {
            [_, token] => {
                let token = integer(token).and_then(|token| FencingToken::new(token.try_into().ok()?));
                token.map(Self::Given).ok_or_else(nonsense)
            }
            [_, by, left, Value::Array(free)] => Ok(Self::Taken {
                by: value_of(by).ok_or_else(nonsense)?,
                left: life(left),
                free: free.iter().filter_map(|slot| integer(slot)?.try_into().ok()).collect(),
            }),
            _ => Err(nonsense()),
        }
    }
}

/// A number that nobody else is likely to draw.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// How long to wait before a new attempt after so many in a row in which nobody got a majority, the last of which took so long: at
/// random, so that one of the contenders is alone, and longer each time, should they be many.
pub(super) fn delay(attempts: u32, took: Duration) -> Duration {
    let longest =
        (took * 4).max(Duration::from_millis(4)).saturating_mul(1 << attempts.min(8)).min(LONGEST_DELAY);
    longest.mul_f64(f64::from(u32::try_from(random() >> 32).unwrap_or(0)) / f64::from(u32::MAX))
}

impl Taken {
    /// Completes when a majority of the nodes may be free.
    pub(super) async fn is_over(&self, core: &Core) {
        let told = async {
            let mut changes: FuturesUnordered<_> = self
                .listening
                .iter()
                .map(|(connection, notified)| connection.notified_after(*notified))
                .collect();
            for _ in 0..self.needed {
                if changes.next().await.is_none() {
                    std::future::pending::<()>().await;
                }
            }
        };
        tokio::select! {
            () = told => {}
            () = core.nodes.clock.sleep_until(self.expires) => {}
        }
    }

    /// How the claim stands then.
    pub(super) fn state(&self) -> ClaimState {
        ClaimState::Waiting { ahead: None, holder: Some(Box::new(self.holder.clone())) }
    }
}

impl Core {
    /// How long one node may take: far less than the ttl.
    pub(super) fn patience(&self) -> Duration {
        (self.ttl / 10).min(Duration::from_secs(2))
    }

    /// Tries once to hold, with slots at each that seems to be free. `Ok(None)` is a hold, which is published.
    ///
    /// Errors: too few nodes could be used, or what they said says that there will be no hold. What was set is removed.
    pub(super) async fn attempt(self: &Arc<Self>, deadline: Moment) -> FaultResult<Option<Refused>> {
        let mut tried = Vec::new();
        let mut next = match self.mode {
            Mode::Slots(slots) => Some(1 + u32::try_from(random() % u64::from(slots.get())).unwrap_or(0)),
            _ => None,
        };
        loop {
            let free = match self.attempt_at(next, deadline).await? {
                Tried::Held => return Ok(None),
                Tried::Refused(refused) => return Ok(Some(refused)),
                Tried::ElsewhereFree(free) => free,
            };
            tried.extend(next);
            let left: Vec<u32> = free.into_iter().filter(|slot| !tried.contains(slot)).collect();
            if left.is_empty() {
                return Ok(Some(Refused::Contested));
            }
            next = left.get(usize::try_from(random()).unwrap_or(0) % left.len()).copied();
        }
    }

    /// Tries once to hold that slot, or the lock.
    async fn attempt_at(self: &Arc<Self>, slot: Option<u32>, deadline: Moment) -> FaultResult<Tried> {
        let place = Place { mode: self.mode, slot };
        let value = self.next_value();
        let begin = self.nodes.clock.now();
        // Before who gives up at the deadline does so without a reason.
        let give_up_at = deadline - (deadline.since(begin) / 20).min(EARLIER);
        let deadline = give_up_at.min(begin + self.patience());
        let majority = self.nodes.majority();
        let step = self.keys.acquire(place, &value, self.ttl);
        let ask = |_, node: Arc<Node>| {
            let (core, step, max_ttl) = (Arc::clone(self), step.clone(), self.nodes.max_ttl);
            let release = self.keys.release(&value, false);
            async move {
                // Nothing is to set a key once the claim has begun to leave.
                let steps = || vec![if core.publisher.is_leaving() { release.clone() } else { step.clone() }];
                let answer = node.ask(false, max_ttl, deadline, steps).await?;
                Ok((Said::parse(&answer)?, answer))
            }
        };
        let enough = |found: &Answers<(Said, Answer)>| {
            let given = given(found, self.nodes.clock.now());
            given.len() >= majority || taken_by(found).is_some_and(|(_, count)| count >= majority)
        };
        let found = self.nodes.each(STRAGGLE, deadline, ask, enough).await;
        let given = given(&found, self.nodes.clock.now());
        if given.len() >= majority
            && self.refuse_unfit(&found).is_ok()
            && let Some(token) = self.settle(place, &value, &given, begin).await
        {
            let refused = |answer: &Option<_>| matches!(answer, Some(Ok((Said::Taken { .. }, _))));
            let lacking = found.iter().map(refused).collect();
            self.publisher.prove(begin);
            self.hold(Hold { place, value, token, lacking });
            self.publisher.publish_held(vec![Granted { token, slot }]);
            return Ok(Tried::Held);
        }
        // Everywhere, also where nothing was said or something else: it may come late.
        self.refused(slot, &value, found, give_up_at).await
    }

    /// The token of a hold that these nodes gave, once a majority gives no lower one to whoever comes next; `None` if the hold does
    /// not last so long.
    async fn settle(
        self: &Arc<Self>,
        place: Place,
        value: &str,
        given: &[FencingToken],
        begin: Moment,
    ) -> Option<FencingToken> {
        let token = *given.iter().max()?;
        if given.iter().filter(|one| **one == token).count() < self.nodes.majority() {
            let step = self.keys.extend(place, value, self.ttl, token, false);
            if self.extended(step, self.nodes.clock.now() + self.patience()).await.1.is_err() {
                return None;
            }
        }
        (self.nodes.clock.now() < begin + self.ttl / 2).then_some(token)
    }

    /// Removes what the attempt has set, has the nodes tell of changes, and finds out what was in the way.
    async fn refused(
        self: &Arc<Self>,
        slot: Option<u32>,
        value: &str,
        found: Answers<(Said, Answer)>,
        give_up_at: Moment,
    ) -> FaultResult<Tried> {
        let now = self.nodes.clock.now();
        let majority = self.nodes.majority();
        let blocker = taken_by(&found).filter(|(_, count)| *count >= majority).map(|(by, _)| by.to_owned());
        let record = blocker.as_deref().and_then(|by| Record::parse(by.as_bytes()));
        let foreign = blocker.is_some() && record.is_none();
        let (in_the_way, all) = self.keys.in_the_way(self.mode, foreign);
        // What is left of an attempt that nobody waited for the end of is in the way as well.
        let own = beginning(self.id);
        let stale: BTreeSet<&str> =
            said(&found).filter_map(Said::by).filter(|by| by.starts_with(&own)).collect();
        let mut steps: Vec<Call> =
            stale.iter().copied().chain([value]).map(|v| self.keys.release(v, false)).collect();
        steps.push(in_the_way);
        let ask = |_, node: Arc<Node>| {
            let (steps, max_ttl, deadline) = (steps.clone(), self.nodes.max_ttl, now + self.patience());
            async move { node.ask(true, max_ttl, deadline, || steps.clone()).await }
        };
        let until = give_up_at.min(now + self.patience());
        let listening = self.nodes.each(STRAGGLE, until, ask, |found| answered(found) >= majority).await;
        self.refuse_unfit(&found)?;
        self.refuse_too_few(&found)?;
        if let Some(record) = &record {
            self.refuse_other_kind(record)?;
        }
        let free = free_slots(&found, majority, slot);
        if !free.is_empty() {
            return Ok(Tried::ElsewhereFree(free));
        }
        if blocker.is_none_or(|by| by.starts_with(&own)) {
            return Ok(Tried::Refused(Refused::Contested));
        }
        let mut lives: Vec<Moment> = said(&found)
            .map(|said| match said {
                Said::Given(_) => now,
                Said::Taken { left, .. } => due(now, *left),
            })
            .collect();
        lives.sort_unstable();
        let is_taken =
            |answer: &&Answer| matches!(answer.replies.last(), Some(Value::Int(count)) if *count == all);
        let listening: Vec<&Answer> = listening.iter().flatten().flatten().collect();
        let taken: Vec<_> = listening.iter().copied().filter(is_taken).collect();
        let needed = majority.saturating_sub(listening.len() - taken.len());
        if needed == 0 {
            return Ok(Tried::Refused(Refused::Contested));
        }
        let deaf = taken.iter().any(|answer| answer.connection.can_notify.get() != Some(&true));
        let latest = if deaf || taken.len() < needed { now + POLL } else { Moment::NEVER };
        let jitter = delay(0, POLL / 8);
        let expires = lives.get(majority - 1).map_or(now + POLL, |expires| *expires + jitter).min(latest);
        let listening =
            taken.iter().map(|answer| (Arc::clone(&answer.connection), answer.notified)).collect();
        let holder =
            record.map_or_else(|| foreign_entry(&self.keys.lock, None, None), |record| record.entry());
        Ok(Tried::Refused(Refused::Taken(Box::new(Taken { holder, expires, listening, needed }))))
    }
}

/// What an attempt for one key came to.
enum Tried {
    Held,
    Refused(Refused),
    /// These slots seem to be free.
    ElsewhereFree(Vec<u32>),
}

fn said(found: &Answers<(Said, Answer)>) -> impl Iterator<Item = &Said> {
    found.iter().flatten().flatten().map(|(said, _)| said)
}

/// The tokens of the nodes that gave it and whose word counts.
fn given(found: &Answers<(Said, Answer)>, now: Moment) -> Vec<FencingToken> {
    let votes = found.iter().flatten().flatten().filter(|(_, answer)| answer.server.votes_from <= now);
    votes.filter_map(|(said, _)| if let Said::Given(token) = said { Some(*token) } else { None }).collect()
}

/// Who is in the way at most nodes, and at how many.
fn taken_by(found: &Answers<(Said, Answer)>) -> Option<(&str, usize)> {
    let mut all: BTreeMap<&str, usize> = BTreeMap::new();
    said(found).filter_map(Said::by).for_each(|by| *all.entry(by).or_default() += 1);
    all.into_iter().max_by_key(|(_, count)| *count)
}

/// The slots, but that one, that are free at a majority.
fn free_slots(found: &Answers<(Said, Answer)>, majority: usize, tried: Option<u32>) -> Vec<u32> {
    let mut free: HashMap<u32, usize> = HashMap::new();
    for said in said(found) {
        let Said::Taken { free: slots, .. } = said else { continue };
        for slot in slots {
            *free.entry(*slot).or_default() += 1;
        }
    }
    let elsewhere = free.into_iter().filter(|(slot, count)| *count >= majority && Some(*slot) != tried);
    elsewhere.map(|(slot, _)| slot).collect()
}
