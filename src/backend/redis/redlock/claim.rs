//! The client side of a claim.

use std::future::Ready;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::task::AbortHandle;

use super::attempt::{Refused, delay};
use super::core::Core;
use super::keys::Hold;
use super::nodes::{Answers, Nodes, Question, answered};
use super::view::Held;
use crate::backend::Claim;
use crate::backend::claim_state::{POLL, SHORT_HOLD, due};
use crate::backend::redis::connection::any_notified;
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
    async fn enter(self: &Arc<Self>, deadline: Moment) -> FaultResult<Option<Refused>> {
        let clock = self.nodes.clock;
        let until = deadline.min(clock.now() + CONTEST);
        let mut attempts = 0;
        loop {
            let sent = clock.now();
            let refused = self.attempt(deadline).await?;
            let again = clock.now() + delay(attempts, clock.now().since(sent));
            if !matches!(refused, Some(Refused::Contested)) || again >= until {
                return Ok(refused);
            }
            clock.sleep_until(again).await;
            attempts += 1;
        }
    }

    /// Follows the claim: acquires, unless it holds already, and then follows the hold.
    async fn follow(self: Arc<Self>, mut refused: Option<Refused>) {
        let clock = self.nodes.clock;
        let (mut contested, mut answered_at, mut took) = (0, clock.now(), Duration::ZERO);
        while let Some(why) = &refused {
            if let Refused::Taken(taken) = why {
                contested = 0;
                self.publisher.publish(taken.state());
                taken.is_over(clock).await;
            } else {
                clock.sleep_until(clock.now() + delay(contested, took)).await;
                contested += 1;
            }
            let began = clock.now();
            refused = match self.attempt(Moment::NEVER).await {
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
                    clock.sleep_until(clock.now() + PAUSE + delay(8, PAUSE)).await;
                    Some(Refused::Contested)
                }
            };
            took = clock.now().since(began);
        }
        clock.sleep_until(clock.now() + SHORT_HOLD).await;
        while let Some(hold) = self.hold.get().filter(|_| !self.publisher.has_ended()) {
            self.look_after(hold).await;
        }
    }

    /// Reads the hold, and completes when it may have changed.
    async fn look_after(&self, hold: &Hold) {
        let clock = self.nodes.clock;
        let question = Question { listens: true, ..Question::by(clock.now() + self.patience()) };
        let inspect = vec![self.keys.inspect(&[hold.attempt.slot])];
        let enough = |found: &Answers| self.nodes.is_enough(found);
        let found = self.nodes.ask(question, move || inspect.clone(), enough).await;
        let mut lacking = 0;
        for answer in answered(&found) {
            let Ok(found) = Held::all(answer, 0, &self.keys.lock) else { continue };
            match found.into_iter().find(|held| held.slot == hold.attempt.slot && held.value == hold.value) {
                Some(Held { asked: Some(by), .. }) => {
                    self.publisher.publish(ClaimState::AskedToLeave { by });
                }
                Some(_) => {}
                None => lacking += 1,
            }
        }
        self.learn(lacking);
        let told: Vec<_> = found.into_iter().flatten().flatten().filter_map(|answer| answer.told).collect();
        // A node may report the expiry of a key late.
        let now = clock.now();
        let expiry = due(self.publisher.proof(), Some(self.ttl)).max(now + PAUSE);
        tokio::select! {
            () = any_notified(&told) => {}
            () = clock.sleep_until(if told.len() < self.nodes.majority() { now + POLL } else { expiry }) => {}
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
        let core = Arc::new(Core::of(nodes, keys, request));
        let refused = core.enter(deadline).await?;
        if let Some(Refused::Taken(taken)) = &refused {
            core.publisher.publish(taken.state());
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
        let core = &self.core;
        core.publisher.begin_leaving();
        self.follower.abort();
        // A node that misses the request would keep its key until the ttl.
        let question = Question { patience: Patience::Deadline, ..Question::by(deadline) };
        core.nodes.majority_of(question, vec![core.keys.release(core.id, succeeded)]).await?;
        core.publisher.leave();
        Ok(())
    }
}
