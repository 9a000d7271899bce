//! One client's end of a claim.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::task::{AbortHandle, JoinSet};

use super::attempt::Refused;
use super::core::{Core, Hold};
use super::keys::beginning;
use super::nodes::{Node, answered};
use super::wait::delay;
use crate::backend::Claim;
use crate::backend::claim_state::{POLL, SHORT_HOLD, due};
use crate::backend::redis::dial::{text, value_of};
use crate::backend::redis::script::Call;
use crate::lock::{ClaimState, Error, ErrorKind, Moment, Result};
use crate::net::fault::FaultResult;

/// How long claims that come at the same moment may take to find out which of them goes first, before the answer is that each has to
/// wait.
const CONTEST: Duration = Duration::from_secs(1);
/// Between two looks at a node that cannot be used.
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
    /// Tries until it is known who holds, or nobody can tell for a while.
    pub(super) async fn enter(self: &Arc<Self>, deadline: Moment) -> FaultResult<Option<Refused>> {
        let clock = self.nodes.clock;
        let until = deadline.min(clock.now() + CONTEST);
        let mut attempts = 0;
        loop {
            let sent = clock.now();
            let refused = self.attempt(deadline).await?;
            let now = clock.now();
            let pause = delay(attempts, now.since(sent));
            if !matches!(refused, Some(Refused::Contested)) || now + pause >= until {
                return Ok(refused);
            }
            clock.sleep_until(now + pause).await;
            attempts += 1;
        }
    }

    /// Follows the claim: acquires, unless it holds already, and looks after the hold.
    async fn follow(self: Arc<Self>, mut refused: Option<Refused>) {
        let clock = self.nodes.clock;
        let (mut contested, mut answered_at, mut took) = (0, clock.now(), Duration::ZERO);
        while let Some(why) = &refused {
            match why {
                Refused::Taken(taken) => {
                    contested = 0;
                    self.publisher.publish(taken.state());
                    taken.is_over(&self).await;
                }
                Refused::Contested => {
                    clock.sleep_until(clock.now() + delay(contested, took)).await;
                    contested += 1;
                }
            }
            let began = clock.now();
            refused = match self.attempt(Moment::NEVER).await {
                Ok(refused) => {
                    answered_at = clock.now();
                    refused
                }
                Err(fault) => {
                    // Who has no right to it any more may have it again soon.
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
        let mut watches = JoinSet::new();
        for (at, node) in self.nodes.all.iter().enumerate() {
            watches.spawn(Arc::clone(&self).watch(at, Arc::clone(node)));
        }
        watches.join_all().await;
    }

    /// Looks at the hold at one node whenever that tells of a change.
    async fn watch(self: Arc<Self>, at: usize, node: Arc<Node>) {
        let clock = self.nodes.clock;
        let Some(Hold { place, value, .. }) = self.held().clone() else { return };
        let about = self.keys.about(place.slot);
        let looks = || {
            let key = self.keys.key(place.slot);
            vec![Call::command(["GET", &key]), Call::command(["HGET", &about, "asked"])]
        };
        while !self.publisher.has_ended() {
            let deadline = clock.now() + self.patience();
            let Ok(answer) = node.ask(true, self.nodes.max_ttl, deadline, looks).await else {
                clock.sleep_until(clock.now() + PAUSE).await;
                continue;
            };
            let has = answer.replies.first().and_then(value_of).is_some_and(|there| there == value);
            self.learn(|lacking| lacking[at] = !has);
            let by = answer.replies.get(1).and_then(text).filter(|_| has);
            if let Some(by) = by.and_then(|by| serde_json::from_str(&by).ok()) {
                self.publisher.publish(ClaimState::AskedToLeave { by });
            }
            let told = answer.connection.notified_after(answer.notified);
            // A node need not tell at once that a key has expired.
            let now = clock.now();
            let expiry = due(self.publisher.proof(), Some(self.ttl)).max(now + PAUSE);
            let notifies = answer.connection.can_notify.get() == Some(&true);
            let poll = if notifies { expiry } else { now + POLL };
            tokio::select! {
                () = told => {}
                () = clock.sleep_until(poll) => {}
            }
        }
    }

    /// Takes over what nodes say of the hold; where a majority has lost it, it is over.
    fn learn(&self, take: impl FnOnce(&mut [bool])) {
        let mut held = self.held();
        let Some(Hold { lacking, .. }) = held.as_mut() else { return };
        take(lacking);
        let without = lacking.iter().filter(|lacking| **lacking).count();
        if self.nodes.all.len() - without < self.nodes.majority() {
            self.publisher.publish(self.publisher.ended(None, None, self.ttl));
        }
    }

    /// Gives the hold another ttl at a majority; then nodes that have lost it have it made anew.
    async fn extend(&self, deadline: Moment) -> FaultResult<()> {
        let Some(hold) = self.held().clone() else { return Ok(()) };
        let step = |again| self.keys.extend(hold.place, &hold.value, self.ttl, hold.token, again);
        let (found, enough) = self.extended(step(false), deadline).await;
        self.learn(|lacking| {
            for (lacking, answer) in lacking.iter_mut().zip(&found) {
                if let Some(Ok((done, _))) = answer {
                    *lacking = !done;
                }
            }
        });
        enough?;
        let max_ttl = self.nodes.max_ttl;
        for (node, answer) in self.nodes.all.iter().zip(&found) {
            if matches!(answer, Some(Ok((false, _)))) {
                let (node, again) = (Arc::clone(node), step(true));
                tokio::spawn(async move { node.ask(false, max_ttl, deadline, || vec![again.clone()]).await });
            }
        }
        Ok(())
    }

    async fn release(&self, succeeded: bool, deadline: Moment) -> FaultResult<()> {
        let step = self.keys.release(&beginning(self.id), succeeded);
        let answers = self.nodes.answers(Duration::ZERO, deadline, vec![step]).await;
        let left = answered(&answers);
        if left >= self.nodes.majority() { Ok(()) } else { Err(self.nodes.too_few(left, &answers)) }
    }
}

impl RedlockClaim {
    /// The claim of `core`, which was refused, or holds.
    pub(super) fn new(core: Arc<Core>, refused: Option<Refused>) -> Self {
        if let Some(Refused::Taken(taken)) = &refused {
            core.publisher.publish(taken.state());
        }
        let follower = tokio::spawn(Arc::clone(&core).follow(refused)).abort_handle();
        Self { core, follower }
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
        self.core.publisher.changed(seen).await.map_err(refused)
    }

    /// Of one that waits there is nothing at the nodes to renew.
    async fn renew(&self, deadline: Moment) -> Result<Moment> {
        let publisher = &self.core.publisher;
        let begin = self.core.nodes.clock.now();
        if publisher.waits() {
            return Ok(begin);
        }
        if !publisher.has_ended() {
            match self.core.extend(deadline).await {
                Ok(()) => publisher.prove(begin),
                Err(fault) if !publisher.has_ended() => return Err(fault),
                Err(_) => {}
            }
        }
        Ok(publisher.proof())
    }

    async fn leave(&self, succeeded: bool, deadline: Moment) -> Result<()> {
        self.core.publisher.begin_leaving();
        self.follower.abort();
        self.core.release(succeeded, deadline).await?;
        self.core.publisher.leave();
        Ok(())
    }

    fn anchors(&self) -> Result<Vec<OwnedFd>> {
        Ok(Vec::new())
    }
}
