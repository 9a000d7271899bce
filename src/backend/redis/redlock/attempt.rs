//! Attempts to acquire.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::answers::{Said, free_slots, given, said, taken_by};
use super::core::{Core, Hold};
use super::keys::{Place, beginning};
use super::nodes::{Answer, Answers, Node, STRAGGLE, answered};
use super::wait::{Taken, random};
use crate::backend::record::Record;
use crate::backend::redis::script::Call;
use crate::lock::{FencingToken, Granted, Mode, Moment};
use crate::net::fault::FaultResult;

/// How long before its deadline an attempt is over.
const EARLIER: Duration = Duration::from_millis(25);

/// What an attempt came to, if not to a hold.
pub(super) enum Refused {
    /// A majority of the nodes has given the lock to others.
    Taken(Box<Taken>),
    /// Nobody has a majority, as far as can be told.
    Contested,
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

    /// Takes the attempt back, and says what it came to.
    async fn refused(
        self: &Arc<Self>,
        slot: Option<u32>,
        value: &str,
        found: Answers<(Said, Answer)>,
        give_up_at: Moment,
    ) -> FaultResult<Tried> {
        let (begin, majority) = (self.nodes.clock.now(), self.nodes.majority());
        let blocker = taken_by(&found).filter(|(_, count)| *count >= majority).map(|(by, _)| by);
        let record = blocker.and_then(|by| Record::parse(by.as_bytes()));
        let (in_the_way, all) = self.keys.in_the_way(self.mode, blocker.is_some() && record.is_none());
        let until = give_up_at.min(begin + self.patience());
        let listening = self.take_back(value, &found, in_the_way, until).await;
        self.refuse_unfit(&found)?;
        self.refuse_too_few(&found)?;
        self.refuse_few_votes(&found)?;
        if let Some(record) = &record {
            self.refuse_other_kind(record)?;
        }
        let free = free_slots(&found, majority, slot);
        if !free.is_empty() {
            return Ok(Tried::ElsewhereFree(free));
        }
        let other = blocker.filter(|by| !by.starts_with(&beginning(self.id)));
        let taken = other.and_then(|_| self.taken(record.as_ref(), &found, &listening, all, begin));
        Ok(Tried::Refused(taken.map_or(Refused::Contested, |taken| Refused::Taken(Box::new(taken)))))
    }

    /// Removes what this attempt and earlier ones have set, at all nodes: also where nothing was said, since it may come late. What
    /// the nodes answer to `in_the_way`, of whose next change they can tell from then on.
    async fn take_back(
        self: &Arc<Self>,
        value: &str,
        found: &Answers<(Said, Answer)>,
        in_the_way: Call,
        until: Moment,
    ) -> Answers<Answer> {
        let own = beginning(self.id);
        let stale = said(found).filter_map(Said::by).filter(|by| by.starts_with(&own));
        let values: BTreeSet<&str> = stale.chain([value]).collect();
        let releases = values.into_iter().map(|value| self.keys.release(value, false));
        let steps: Vec<Call> = releases.chain([in_the_way]).collect();
        let deadline = self.nodes.clock.now() + self.patience();
        let ask = |_, node: Arc<Node>| {
            let (steps, max_ttl) = (steps.clone(), self.nodes.max_ttl);
            async move { node.ask(true, max_ttl, deadline, || steps.clone()).await }
        };
        self.nodes.each(STRAGGLE, until, ask, |found| answered(found) >= self.nodes.majority()).await
    }
}

/// What an attempt for one key came to.
enum Tried {
    Held,
    Refused(Refused),
    /// These slots seem to be free.
    ElsewhereFree(Vec<u32>),
}
