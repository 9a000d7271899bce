//! A claim's methods.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::oneshot;

use super::dial::PROBE;
use super::renew::renew;
use super::shared::Shared;
use super::success;
use super::wire::ended;
use crate::backend::Claim;
use crate::lock::{ClaimState, Mode, Moment, Result};
use crate::net::fault::FaultResult;

/// A session as short as any that is granted where ticks are long: two of them, unless somebody set it otherwise.
const SHORTEST: Duration = Duration::from_secs(1);

/// One entry, alive as long as its session. Dropped without leaving, it closes the session all the same.
#[derive(Debug)]
pub(super) struct ZkClaim(pub(super) Arc<Shared>);

impl Drop for ZkClaim {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Remembers a success; an exclusive claim has then left its queues as well.
async fn succeed(shared: &Shared) -> FaultResult<()> {
    if shared.request.mode == Mode::Exclusive
        && let Some(client) = shared.client().await
        && success::leave(shared, &client).await
    {
        return Ok(());
    }
    success::record(shared).await
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
        let renewed = shared.ensemble.by(deadline, async {
            // Where the session is closed meanwhile, the state says why.
            while let Some(client) = shared.client().await {
                let (answer, answered) = oneshot::channel();
                let each = Arc::clone(shared);
                // In a task of its own: a future that somebody keeps and does not poll must not hold the session back.
                shared.spawn(async move {
                    let _ = answer.send(renew(&each, &client, begun).await);
                    drop(client);
                    let wants_tick = each.proofs().wants_tick();
                    if wants_tick
                        && let Ok(Ok(shortest)) =
                            tokio::time::timeout(PROBE, each.ensemble.connect(SHORTEST)).await
                    {
                        each.proofs().tick = Some(shortest.session_timeout() / 2);
                    }
                });
                // It goes with a connection that breaks.
                if let Ok(outcome) = answered.await {
                    return outcome;
                }
            }
            Ok(())
        });
        renewed.await?;
        let mut proofs = shared.proofs();
        proofs.kept();
        Ok(proofs.counts_from())
    }

    async fn leave(&self, succeeded: bool, deadline: Moment) -> Result<()> {
        let shared = &self.0;
        let due =
            succeeded && shared.publisher.held_at().is_some() && !shared.recorded.load(Ordering::Acquire);
        shared.publisher.begin_leaving();
        let left = shared.ensemble.by(deadline, async {
            let recorded = if due { succeed(shared).await } else { Ok(()) };
            if recorded.is_ok() {
                shared.recorded.fetch_or(due, Ordering::AcqRel);
            }
            // A session is closed over a connection.
            let watcher = shared.client().await.map(|client| client.state_watcher());
            shared.close();
            if let Some(watcher) = watcher {
                ended(watcher).await;
            }
            recorded
        });
        let left = left.await;
        // Also when there was no time for more: the session's own signs of life would keep the claim.
        shared.close();
        match left {
            Err(error) if !shared.publisher.has_ended() => Err(error),
            _ => {
                shared.publisher.leave();
                Ok(())
            }
        }
    }
}
