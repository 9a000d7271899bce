//! A claim's methods.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::oneshot;

use super::renew::renew;
use super::shared::Shared;
use super::success;
use super::wire::{Call, ended};
use crate::backend::Claim;
use crate::lock::{ClaimState, Moment, Result};

/// How often all other tasks of this thread have their turn before one goes on that does not wait for them: one for those
/// who let go of the session, one for the session to see that, and some to spare.
const LAST_WORD: u32 = 6;

/// A session as short as any that is granted where ticks are long: two of them, unless somebody set it otherwise.
const SHORTEST: Duration = Duration::from_secs(1);
/// How long such a session may take to begin; the next renewal tries again.
const PROBE: Duration = Duration::from_secs(3);

/// One entry, alive as long as its session. Dropped without leaving, it closes the session all the same.
#[derive(Debug)]
pub(super) struct ZkClaim(pub(super) Arc<Shared>);

impl Drop for ZkClaim {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl ZkClaim {
    fn call(&self, operation: &'static str, deadline: Moment) -> Call<'_> {
        Call { ensemble: &self.0.ensemble, operation, lock: self.0.request.names.first(), deadline }
    }
}

/// Lets the session's own task send its last word, whose answer nobody has to wait for: nothing ends with the session
/// any more, and should the word be lost it ends with its ttl.
async fn part(shared: &Shared) {
    for _ in 0..LAST_WORD {
        if shared.watcher.peek_state().is_terminated() {
            return;
        }
        tokio::task::yield_now().await;
    }
}

#[async_trait]
impl Claim for ZkClaim {
    fn ttl(&self) -> Option<Duration> {
        Some(self.0.proofs().ttl())
    }

    async fn changed(&self, seen: Option<&ClaimState>) -> Result<ClaimState> {
        self.0.publisher.changed(seen).await
    }

    async fn renew(&self, deadline: Moment) -> Result<Moment> {
        let shared = &self.0;
        let begun = shared.ensemble.clock.now();
        let Some(client) = shared.client() else { return Ok(shared.proofs().counts_from()) };
        let (answer, answered) = oneshot::channel();
        let each = Arc::clone(shared);
        // In a task of its own: a future that somebody keeps and does not poll must not hold the session back.
        shared.spawn(async move {
            let _ = answer.send(renew(&each, &client, begun).await);
            drop(client);
            let wants_tick = each.proofs().wants_tick();
            if wants_tick
                && let Ok(Ok(shortest)) = tokio::time::timeout(PROBE, each.ensemble.connect(SHORTEST)).await
            {
                each.proofs().tick = Some(shortest.session_timeout() / 2);
            }
        });
        let call = self.call("renew the claim", deadline);
        call.run(async {
            match answered.await {
                Ok(outcome) => outcome,
                // The session was closed meanwhile: the state says why.
                Err(_) => Ok(()),
            }
        })
        .await?;
        let mut proofs = shared.proofs();
        proofs.kept();
        Ok(proofs.counts_from())
    }

    async fn leave(&self, succeeded: bool, deadline: Moment) -> Result<()> {
        let shared = &self.0;
        let call = self.call("leave the queue", deadline);
        let due =
            succeeded && shared.publisher.held_at().is_some() && !shared.recorded.load(Ordering::Acquire);
        let client = due.then(|| shared.client()).flatten();
        shared.publisher.begin_leaving();
        let closed = call.run(async {
            if let Some(client) = client {
                shared.hush();
                if success::leave(shared, &client).await {
                    shared.recorded.store(true, Ordering::Release);
                    shared.close();
                    drop(client);
                    part(shared).await;
                    return Ok(());
                }
            }
            let sent = if due { success::send(shared) } else { None };
            shared.close();
            let mut recorded = sent.is_some();
            for answer in sent.into_iter().flatten() {
                recorded &= answer.await;
            }
            if recorded {
                shared.recorded.store(true, Ordering::Release);
            }
            ended(shared.watcher.clone()).await;
            if due && !recorded && !shared.publisher.has_ended() {
                success::record(shared).await?;
                shared.recorded.store(true, Ordering::Release);
            }
            Ok(())
        });
        let closed = closed.await;
        // Also when there was no time for more: the session's own signs of life would keep the claim.
        shared.close();
        match closed {
            Err(error) if !shared.publisher.has_ended() => Err(error),
            _ => {
                shared.publisher.leave();
                Ok(())
            }
        }
    }

    fn anchors(&self) -> Result<Vec<OwnedFd>> {
        Ok(Vec::new())
    }
}
