//! Observing one queue.

use std::sync::Arc;

use tokio::sync::watch;

use dlock::backend::observe::{Watched, first_expiry};
use dlock::lock::{LockName, LockStatus, Moment};
use dlock::net::fault::FaultResult;

use super::{MemoryServer, Mutation};

#[derive(Debug)]
pub(super) struct WatchedQueue {
    server: Arc<MemoryServer>,
    changes: watch::Receiver<u64>,
}

impl WatchedQueue {
    pub(super) fn new(server: &Arc<MemoryServer>) -> Self {
        Self { server: Arc::clone(server), changes: server.changes() }
    }
}

impl Watched for WatchedQueue {
    async fn look(&mut self, name: &LockName) -> FaultResult<LockStatus> {
        self.server.thawed().await;
        Ok(self.server.step(|queues, now| queues.status(name, now)))
    }

    async fn notified(&mut self) -> FaultResult<()> {
        let changed = self.changes.changed().await;
        if changed.is_err() || self.server.has(Mutation::ObserverSleeps) {
            std::future::pending::<()>().await;
        }
        Ok(())
    }

    fn next_look(&mut self, status: &LockStatus, _: bool, now: Moment) -> Moment {
        if self.server.has(Mutation::ObserverSleeps) { Moment::NEVER } else { first_expiry(status, now) }
    }
}
