//! Observing one queue.

use std::sync::Arc;

use super::decide;
use super::store::{Extent, Seen, Store, Watched as What};
use crate::backend::observe::{LOOK, Watched};
use crate::clock::Clock;
use crate::lock::{LockName, LockStatus, Moment};
use crate::net::fault::FaultResult;

/// A queue that one client reads after each change.
#[derive(Debug)]
pub(super) struct WatchedQueue {
    pub(super) store: Arc<dyn Store>,
    pub(super) clock: Clock,
    pub(super) seen: Seen,
}

impl Watched for WatchedQueue {
    async fn look(&mut self, name: &LockName) -> FaultResult<LockStatus> {
        let deadline = self.clock.now() + LOOK;
        let answer = self.store.read(std::slice::from_ref(name), Extent::Shown, deadline).await?;
        self.seen = answer.seen;
        Ok(answer.queues.first().map_or_else(|| LockStatus::empty(name), decide::status))
    }

    async fn notified(&mut self, name: &LockName) -> FaultResult<()> {
        self.store.changed(What::Queue(name), self.seen, Moment::NEVER).await
    }
}
