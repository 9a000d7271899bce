//! Observing one queue.

use std::collections::HashSet;
use std::sync::Arc;

use super::decide;
use super::store::{Extent, Queue, Seen, Store, Watched as What};
use crate::backend::observe::{LOOK, Watched, first_expiry};
use crate::clock::Clock;
use crate::lock::{ClaimId, LockName, LockStatus, Mode, Moment};
use crate::net::fault::FaultResult;

/// A queue that one client reads after each change.
#[derive(Debug)]
pub(super) struct WatchedQueue {
    store: Arc<dyn Store>,
    clock: Clock,
    name: LockName,
    seen: Seen,
    /// The present claims that have waited.
    waited: HashSet<ClaimId>,
}

impl WatchedQueue {
    pub(super) fn new(store: Arc<dyn Store>, clock: Clock, name: &LockName) -> Self {
        Self { store, clock, name: name.clone(), seen: 0, waited: HashSet::new() }
    }

    /// Hides the token of a holder that had to wait until the step of its hold is made, if the step gives the token.
    fn hide_unproved(&mut self, queue: &Queue, status: &mut LockStatus) {
        let claims = |entries: &[crate::lock::Entry]| {
            entries.iter().filter_map(|entry| entry.claim).collect::<Vec<_>>()
        };
        let holders = claims(&status.holders);
        self.waited.retain(|id| holders.contains(id));
        self.waited.extend(claims(&status.waiters));
        for (item, entry) in queue.items.iter().zip(&mut status.holders) {
            let by_step = self.store.hold_is_a_step(item.mode.unwrap_or(Mode::Exclusive), true);
            let is_marked = item.about.as_ref().is_some_and(|about| about.held_since.is_some());
            entry.token = entry.token.filter(|_| !by_step || is_marked || !self.waited.contains(&item.id));
        }
    }
}

impl Watched for WatchedQueue {
    async fn look(&mut self, name: &LockName) -> FaultResult<LockStatus> {
        let deadline = self.clock.now() + LOOK;
        let answer = self.store.read(std::slice::from_ref(name), Extent::Shown, deadline).await?;
        self.seen = answer.seen;
        let Some(queue) = answer.queues.first() else { return Ok(LockStatus::empty(name)) };
        let mut status = decide::status(queue);
        self.hide_unproved(queue, &mut status);
        Ok(status)
    }

    async fn notified(&mut self) -> FaultResult<()> {
        self.store.changed(What::Queue(&self.name), self.seen, Moment::NEVER).await
    }

    fn next_look(&mut self, status: &LockStatus, now: Moment) -> Moment {
        // A service may report no change when a lease ends.
        first_expiry(status, now)
    }
}
