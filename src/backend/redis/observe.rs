//! Observing one queue: the server tells of changed keys, the queue itself says what changed.

use std::sync::Arc;

use super::client::Client;
use super::connection::{Connection, any_notified};
use super::queues::Queues;
use crate::backend::claim_state::POLL;
use crate::backend::observe::{LOOK, Watched, first_expiry};
use crate::lock::{LockName, LockStatus, Moment};
use crate::net::fault::FaultResult;
use crate::net::request::Patience;

/// One queue, on a connection of its own.
#[derive(Debug)]
pub(super) struct WatchedQueue {
    queues: Queues,
    /// What was told before the last look, and over which connection.
    notified: Option<(Arc<Connection>, u64)>,
}

impl WatchedQueue {
    pub(super) fn new(queues: &Queues) -> Self {
        // Tracking everything that is read is a matter of a whole connection.
        Self {
            queues: Queues { service: Arc::new(queues.service.apart()), ..queues.clone() },
            notified: None,
        }
    }
}

/// The connection to whoever has `slot`, which was asked to tell of each key that is read over it from then on, and how often
/// it has told.
pub(super) async fn tracking(
    service: &Client,
    slot: Option<u16>,
    deadline: Moment,
) -> FaultResult<(Arc<Connection>, u64)> {
    let steps = |connection: &Connection| service.listening(connection, ["CLIENT", "TRACKING", "ON"]);
    let answer = service.call(slot, deadline, Patience::Once, steps).await?;
    answer.connection.answered(answer.replies.first(), answer.replies.get(1));
    // A cluster may have sent the question elsewhere meanwhile: what counts is who answers now.
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
