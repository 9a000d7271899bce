//! Observing one queue.

use std::sync::Arc;

use super::decide;
use super::store::{Extent, Seen, Store, Watched as What};
use crate::backend::observe::{LOOK, Watched, first_expiry};
use crate::clock::Clock;
use crate::lock::{LockName, LockStatus, Moment};
use crate::net::fault::FaultResult;

/// A queue that one client reads after each change.
#[derive(Debug)]
pub(super) struct WatchedQueue {
    store: Arc<dyn Store>,
    clock: Clock,
    name: LockName,
    seen: Seen,
}

impl WatchedQueue {
    pub(super) fn new(store: Arc<dyn Store>, clock: Clock, name: &LockName) -> Self {
        Self { store, clock, name: name.clone(), seen: 0 }
    }
}

impl Watched for WatchedQueue {
    async fn look(&mut self, name: &LockName) -> FaultResult<LockStatus> {
        let deadline = self.clock.now() + LOOK;
        let answer = self.store.read(std::slice::from_ref(name), Extent::Shown, deadline).await?;
        self.seen = answer.seen;
        Ok(answer.queues.first().map_or_else(|| LockStatus::empty(name), decide::status))
    }

    async fn notified(&mut self) -> FaultResult<()> {
        self.store.changed(What::Queue(&self.name), self.seen, Moment::NEVER).await
    }

    fn next_look(&mut self, status: &LockStatus, now: Moment) -> Moment {
        // A service may report no change when a lease ends.
        first_expiry(status, now)
    }
}
