//! Proving that a claim's session lives.

use zookeeper_client::{Client, Error as ZkError, MultiWriteError};

use super::evict::be_gone;
use super::fault::{is_ambiguous, is_over};
use super::shared::Shared;
use super::wire::connected;
use crate::lock::{LossReason, Moment};
use crate::net::fault::FaultResult;

/// The result of a renewal.
enum Proof {
    Alive,
    Gone,
}

/// Renews by a write that changes nothing: a quorum confirms that the nodes exist. Pings and reads prove nothing,
/// because a follower that is cut off answers them as well. The version is not compared, since other clients may mark
/// the node.
async fn prove(shared: &Shared, client: &Client) -> FaultResult<Proof> {
    loop {
        let mut step = client.new_multi_writer();
        for path in shared.own().into_iter().flat_map(|own| own.nodes) {
            step.add_check_version(&path, -1)?;
        }
        match step.commit().await {
            Ok(_) => return Ok(Proof::Alive),
            Err(MultiWriteError::OperationFailed { source: ZkError::NoNode, .. }) => return Ok(Proof::Gone),
            Err(error) => {
                let error = ZkError::from(error);
                if is_over(&error) {
                    return Ok(Proof::Gone);
                }
                // A repetition is equivalent, because the ttl counts from the first attempt.
                if !is_ambiguous(&error) || !connected(client).await {
                    return Err(error.into());
                }
            }
        }
    }
}

/// Returns the result of `begun`, if there is one.
async fn first<T>(begun: Option<impl Future<Output = T>>) -> Option<T> {
    match begun {
        Some(work) => Some(work.await),
        None => None,
    }
}

/// Renews the session and records the result.
pub(super) async fn renew(shared: &Shared, client: &Client, begun: Moment) -> FaultResult<()> {
    // Sent with the first renewal, so that a hold does not wait for it.
    let config = shared.proofs().single.is_none().then(|| client.get_config());
    match prove(shared, client).await {
        Ok(Proof::Alive) => {
            if let Some(Ok((text, _))) = first(config).await {
                let servers =
                    String::from_utf8_lossy(&text).lines().filter(|l| l.starts_with("server.")).count();
                shared.proofs().single = Some(servers <= 1);
            }
            shared.proofs().add(begun);
            Ok(())
        }
        Ok(Proof::Gone) => {
            if client.state().is_terminated() {
                shared.lose(LossReason::SessionEnded);
            } else {
                be_gone(shared, client).await;
            }
            Ok(())
        }
        Err(_) if client.state().is_terminated() => {
            shared.lose(LossReason::SessionEnded);
            Ok(())
        }
        Err(fault) => Err(fault),
    }
}
