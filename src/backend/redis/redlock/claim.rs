//! The client side of a claim.

use std::future::Ready;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use tokio::task::AbortHandle;

use super::attempt::{Core, Refused, delay};
use super::keys::{Hold, beginning};
use super::nodes::{Nodes, Question, answered};
use super::view::Held;
use crate::backend::Claim;
use crate::backend::claim_state::{POLL, Publisher, SHORT_HOLD, due};
use crate::backend::record::Record;
use crate::backend::redis::connection::any_news;
use crate::backend::redis::keys::LockKeys;
use crate::lock::{ClaimState, Error, ErrorKind, Moment, Request, Result};
use crate::net::fault::FaultResult;
use crate::net::request::Patience;

/// How long claims that arrive together may contend before each of them counts as waiting.
const CONTEST: Duration = Duration::from_secs(1);
/// The pause between two attempts if too few nodes are usable, and the least time before a read at the expected expiry.
const PAUSE: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(super) struct RedlockClaim {
    core: Arc<Core>,
    follower: AbortHandle,
}

impl Drop for RedlockClaim {
    fn drop(&mut self) {
        self.follower.abort();
        self.core.publisher.begin_leaving();
    }
}

impl Core {
    /// Tries until the holder is known, or the contest has taken too long.
    async fn enter(&self, deadline: Moment) -> FaultResult<Option<Refused>> {
        let clock = self.nodes.clock;
        let until = deadline.min(clock.now() + CONTEST);
        let mut attempts = 0;
        loop {
            let refused = self.attempt(attempts, deadline).await?;
            match &refused {
                Some(Refused { holder: None, until: again, .. }) if *again < until => {
                    clock.sleep_until(*again).await;
                    attempts += 1;
                }
                _ => return Ok(refused),
            }
        }
    }

    /// Publishes that the claim waits, if the holder is known.
    fn waits(&self, refused: &Refused) {
        if let Some(holder) = &refused.holder {
            let holder = Some(Box::new(holder.clone()));
            self.publisher.publish(ClaimState::Waiting { ahead: None, holder });
        }
    }

    /// Follows the claim: acquires, unless it holds already, and then follows the hold.
    async fn follow(self: Arc<Self>, mut refused: Option<Refused>) {
        let clock = self.nodes.clock;
        let (mut contested, mut answered_at) = (0, clock.now());
        while let Some(why) = &refused {
            self.waits(why);
            contested = if why.holder.is_some() { 0 } else { contested + 1 };
            why.is_over(clock, self.nodes.majority()).await;
            refused = match self.attempt(contested, Moment::NEVER).await {
                Ok(refused) => {
                    answered_at = clock.now();
                    refused
                }
                Err(fault) => {
                    // A right that is denied now may be granted again soon.
                    let never = fault.kind == ErrorKind::Mismatch
                        || (!fault.kind.is_transient() && clock.now() > answered_at + self.ttl);
                    self.publisher.cannot_follow(fault);
                    if never {
                        return;
                    }
                    Some(Refused::contested(clock.now() + PAUSE + delay(8, PAUSE)))
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
        let question = Question::listening(clock.now() + self.patience());
        let found = self.nodes.ask(question, vec![self.keys.inspect(&[hold.slot])]).await;
        let mut lacking = 0;
        for answer in answered(&found) {
            let Ok(found) = Held::all(answer, 0, &self.keys.lock) else { continue };
            let is_own = |held: &Held| held.entry.claim == Some(self.id) && held.entry.slot == hold.slot;
            match found.into_iter().find(is_own) {
                Some(Held { asked: Some(by), .. }) => {
                    self.publisher.publish(ClaimState::AskedToLeave { by });
                }
                Some(_) => {}
                None => lacking += 1,
            }
        }
        self.learn(lacking);
        let heard: Vec<_> = found.into_iter().flatten().flatten().filter_map(|answer| answer.heard).collect();
        // A node may report the expiry of a key late.
        let now = clock.now();
        let expiry = due(self.publisher.proof(), Some(self.ttl)).max(now + PAUSE);
        tokio::select! {
            () = any_news(&heard) => {}
            () = clock.sleep_until(if heard.len() < self.nodes.majority() { now + POLL } else { expiry }) => {}
        }
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
        let ttl = request.ttl.min(nodes.max_ttl);
        let core = Arc::new(Core {
            nodes: Arc::clone(nodes),
            keys,
            id: request.id,
            mode: request.mode,
            ttl,
            record: Record::of(request, ttl),
            publisher: Publisher::new(nodes.clock, nodes.clock.now()),
            hold: OnceLock::new(),
        });
        let refused = core.enter(deadline).await?;
        if let Some(refused) = &refused {
            core.waits(refused);
        }
        let follower = tokio::spawn(Arc::clone(&core).follow(refused)).abort_handle();
        Ok(Self { core, follower })
    }

    pub(super) fn is_over(&self) -> bool {
        self.core.publisher.is_over()
    }
}

#[async_trait]
impl Claim for RedlockClaim {
    fn ttl(&self) -> Option<Duration> {
        Some(self.core.ttl)
    }

    async fn changed(&self, seen: Option<&ClaimState>) -> Result<ClaimState> {
        let refused = |error: Error| {
            let never = error.kind == ErrorKind::Mismatch || self.follower.is_finished();
            Error { is_final: never && !error.is_transient(), ..error }
        };
        self.core.publisher.changed(seen, None::<Ready<_>>).await.map_err(refused)
    }

    /// Renews the hold. A waiter has nothing at the nodes to renew.
    async fn renew(&self, deadline: Moment) -> Result<Moment> {
        let (core, publisher) = (&self.core, &self.core.publisher);
        let begin = core.nodes.clock.now();
        let Some(hold) = core.hold.get() else { return Ok(begin) };
        if !publisher.has_ended() {
            let (lacking, done) = core.extend(hold, deadline).await;
            core.learn(lacking);
            match done {
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
        let held_for = held_at.map(|at| core.nodes.clock.now().since(at));
        // A node that misses the request would keep its key until the ttl.
        let question = Question { patience: Patience::Deadline, ..Question::by(deadline) };
        core.nodes.majority_of(question, vec![core.keys.release(&beginning(core.id), held_for)]).await?;
        publisher.leave();
        Ok(())
    }
}
