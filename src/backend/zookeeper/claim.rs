//! The methods of a claim.

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

/// The requested session length to learn the tick: servers grant at least two ticks, unless configured otherwise.
const SHORTEST: Duration = Duration::from_secs(1);

/// One entry, which lives as long as its session. Dropping the claim without leaving closes the session.
#[derive(Debug)]
pub(super) struct ZkClaim(pub(super) Arc<Shared>);

impl Drop for ZkClaim {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Records a success. An exclusive claim leaves its queues in the same step.
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
            // If the session is closed meanwhile, the published state has the reason.
            while let Some(client) = shared.client().await {
                let (answer, answered) = oneshot::channel();
                let each = Arc::clone(shared);
                // In a separate task: a caller that keeps the future without polling it must not delay the session.
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
                // The task is aborted when its connection breaks.
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
            // Closing a session needs a connection.
            let watcher = shared.client().await.map(|client| client.state_watcher());
            shared.close();
            if let Some(watcher) = watcher {
                ended(watcher).await;
            }
            recorded
        });
        let left = left.await;
        // Also after a timeout, because the pings of the session would keep the claim alive.
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
