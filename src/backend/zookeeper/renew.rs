//! Proving that a claim's session lives.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use zookeeper_client::{Client, Error as ZkError, MultiWriteError};

use super::dial::PROBE;
use super::fault::{LOST, OVER};
use super::life::{Life, RETRY};
use crate::lock::Moment;
use crate::net::fault::FaultResult;

/// The requested session length to learn the tick: servers grant at least two ticks, unless configured otherwise.
const SHORTEST: Duration = Duration::from_secs(1);

/// Renews by a write that changes nothing: a quorum confirms that the nodes exist. Pings and reads prove nothing,
/// because a follower that is cut off answers them as well. The version is not compared, since other clients may mark
/// the node. Returns whether the claim lives.
async fn prove(life: &Life, client: &Client) -> FaultResult<bool> {
    let mut step = client.new_multi_writer();
    for path in life.nodes() {
        step.add_check_version(&path, -1)?;
    }
    match step.commit().await {
        Ok(_) => Ok(true),
        Err(MultiWriteError::OperationFailed { source: ZkError::NoNode, .. }) => Ok(false),
        Err(error) => Err(ZkError::from(error).into()),
    }
}

/// Renews the session at `begun`, and records the result. Returns whether the claim lives.
pub(super) async fn renew(life: &Life, client: &Client, begun: Moment) -> FaultResult<bool> {
    // Sent with the first renewal, so that a hold does not wait for it.
    let config = life.proofs().single.is_none().then(|| client.get_config());
    let lives = prove(life, client).await?;
    if lives {
        if let Some(config) = config
            && let Ok((text, _)) = config.await
        {
            let servers = String::from_utf8_lossy(&text).lines().filter(|l| l.starts_with("server.")).count();
            life.proofs().single = Some(servers <= 1);
        }
        life.proofs().add(begun);
    }
    Ok(lives)
}

/// Renews for the claim's owner. A repetition is equivalent, because the ttl counts from the first attempt. Returns
/// whether the claim lives.
pub(super) async fn keep(life: &Arc<Life>) -> FaultResult<bool> {
    let begun = life.ensemble.clock.now();
    // If the session is closed meanwhile, the life has the reason.
    while let Some(client) = life.client().await {
        let (answer, answered) = oneshot::channel();
        let each = Arc::clone(life);
        // In a separate task: a caller that keeps the future without polling it must not delay the session.
        life.spawn(async move {
            let _ = answer.send(renew(&each, &client, begun).await);
            drop(client);
            let wants_tick = each.proofs().wants_tick();
            if wants_tick
                && let Ok(Ok(shortest)) = tokio::time::timeout(PROBE, each.ensemble.connect(SHORTEST)).await
            {
                each.proofs().tick = Some(shortest.session_timeout() / 2);
            }
        });
        // The task is aborted when its connection breaks.
        match answered.await {
            Ok(Err(fault)) if matches!(fault.code, LOST | OVER) => tokio::time::sleep(RETRY).await,
            Ok(Ok(lives)) => {
                life.proofs().kept();
                return Ok(lives);
            }
            Ok(Err(fault)) => return Err(fault),
            Err(_) => {}
        }
    }
    Ok(false)
}
