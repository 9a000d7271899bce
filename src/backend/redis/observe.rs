//! Observing one queue: the server reports changed keys, and the queue is then read again.

use std::sync::Arc;

use super::client::Client;
use super::connection::{Connection, any_notified};
use super::queues::Queues;
use crate::backend::claim_state::POLL;
use crate::backend::observe::{LOOK, Watched, first_expiry};
use crate::lock::{LockName, LockStatus, Moment};
use crate::net::fault::FaultResult;
use crate::net::request::Patience;

/// One queue, over a separate connection.
#[derive(Debug)]
pub(super) struct WatchedQueue {
    queues: Queues,
    /// The connection, and its number of notifications before the last read.
    notified: Option<(Arc<Connection>, u64)>,
}

impl WatchedQueue {
    pub(super) fn new(queues: &Queues) -> Self {
        // Tracking of all reads applies to a whole connection.
        Self {
            queues: Queues { service: Arc::new(queues.service.apart()), ..queues.clone() },
            notified: None,
        }
    }
}

/// Returns the connection to the node that has `slot`, after requesting a notification for each key that is read over
/// it, and its number of notifications.
pub(super) async fn tracking(
    service: &Client,
    slot: Option<u16>,
    deadline: Moment,
) -> FaultResult<(Arc<Connection>, u64)> {
    let steps = |connection: &Connection| service.listening(connection, ["CLIENT", "TRACKING", "ON"]);
    let answer = service.call(slot, deadline, Patience::Once, steps).await?;
    answer.connection.answered(answer.replies.first(), answer.replies.get(1));
    // A cluster may have redirected the request: the node that answers now counts.
    let connection = service.connection(slot).await?;
    let notified = connection.notified_count();
    Ok((connection, notified))
}

impl Watched for WatchedQueue {
    async fn look(&mut self, name: &LockName) -> FaultResult<LockStatus> {
        let Queues { service, naming } = &self.queues;
        let deadline = service.clock.now() + LOOK;
        let notified = tracking(service, Some(naming.of(name)?.slot), deadline).await?;
        let status = self.queues.inspect(name, deadline).await?;
        self.notified = Some(notified);
        Ok(status)
    }

    async fn notified(&mut self) -> FaultResult<()> {
        any_notified(self.notified.as_slice()).await;
        Ok(())
    }

    fn next_look(&mut self, status: &LockStatus, _: bool, now: Moment) -> Moment {
        let tells = self.notified.as_ref().is_some_and(|(connection, _)| connection.tells());
        first_expiry(status, now).min(if tells { Moment::NEVER } else { now + POLL })
    }
}
