//! Proving that a claim's session lives.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use zookeeper_client::{Client, Error as ZkError, MultiWriteError};

use super::dial::PROBE;
use super::life::Life;
use crate::lock::Moment;
use crate::net::fault::FaultResult;

/// The requested session length to learn the tick: servers grant at least two ticks, unless configured otherwise.
const SHORTEST: Duration = Duration::from_secs(1);

impl Life {
    /// Renews by a write that changes nothing: a quorum confirms that the nodes exist. Pings and reads prove nothing,
    /// because a follower that is cut off answers them as well. The version is not compared, since other clients may
    /// mark the node. Returns whether the claim lives.
    async fn prove(&self, client: &Client) -> FaultResult<bool> {
        let mut step = client.new_multi_writer();
        for path in self.nodes() {
            step.add_check_version(&path, -1)?;
        }
        match step.commit().await {
            Ok(_) => Ok(true),
            Err(MultiWriteError::OperationFailed { source: ZkError::NoNode, .. }) => Ok(false),
            Err(error) => Err(ZkError::from(error).into()),
        }
    }

    /// Renews the session at `begun`, and records the result. Returns whether the claim lives.
    pub(super) async fn renew(&self, client: &Client, begun: Moment) -> FaultResult<bool> {
        // Sent with the first renewal, so that a hold does not wait for it.
        let config = self.proofs().single.is_none().then(|| client.get_config());
        let lives = self.prove(client).await?;
        if lives {
            if let Some(config) = config
                && let Ok((text, _)) = config.await
            {
                let text = String::from_utf8_lossy(&text);
                let servers = text.lines().filter(|line| line.starts_with("server.")).count();
                self.proofs().single = Some(servers <= 1);
            }
            self.proofs().add(begun);
        }
        Ok(lives)
    }

    /// Renews for the claim's owner. A repetition is equivalent, because the ttl counts from the first attempt. Returns
    /// whether the claim lives.
    pub(super) async fn keep(self: &Arc<Self>) -> FaultResult<bool> {
        let begun = self.ensemble.clock.now();
        let kept = self.ask(|client| {
            let (answer, answered) = oneshot::channel();
            let life = Arc::clone(self);
            // In a separate task: a caller that keeps the future without polling it must not delay the session.
            self.spawn(async move {
                let _ = answer.send(life.renew(&client, begun).await);
                drop(client);
                let wants_tick = life.proofs().wants_tick();
                if wants_tick
                    && let Ok(Ok(shortest)) =
                        tokio::time::timeout(PROBE, life.ensemble.connect(SHORTEST)).await
                {
                    life.proofs().tick = Some(shortest.session_timeout() / 2);
                }
            });
            // The task is aborted when its connection breaks.
            async { answered.await.unwrap_or_else(|_| Err(ZkError::ConnectionLoss.into())) }
        });
        let lives = kept.await?.unwrap_or(false);
        // If the session was closed meanwhile, the life has the reason.
        if lives {
            self.proofs().kept();
        }
        Ok(lives)
    }
}
