//! Observing one queue: the database reports changes, and the queue is then read again.

use std::sync::Arc;
use std::time::Duration;

use super::dialect::Session;
use super::inspect;
use super::sessions::Sessions;
use crate::backend::claim_state::POLL;
use crate::backend::observe::{LOOK, Watched, first_expiry};
use crate::lock::{LockName, LockStatus, Moment};
use crate::net::fault::{FaultResult, Retry};

/// The time between two reads if no change is reported or foreseen, which limits the effect of a lost message.
const AT_LEAST: Duration = Duration::from_secs(10);

/// One queue, over a separate session.
#[derive(Debug)]
pub(super) struct WatchedQueue {
    service: Sessions,
    /// The session that reports changes, and its number of notifications before the last read.
    notified: Option<(Arc<dyn Session>, u64)>,
}

impl WatchedQueue {
    pub(super) fn new(service: &Sessions) -> Self {
        Self { service: Sessions::new(Arc::clone(&service.dialect), service.clock), notified: None }
    }

    /// Returns the session that reports changes; `None` without one, and the observer polls. A session behind a
    /// pooler must remain unchanged, and reports nothing.
    async fn told_by(&self, name: &LockName, deadline: Moment) -> FaultResult<Option<Arc<dyn Session>>> {
        if let Some((session, _)) = self.notified.as_ref().filter(|(session, _)| session.is_open()) {
            return Ok(Some(Arc::clone(session)));
        }
        let watch = self.service.dialect.watch(name);
        let first = self.service.read(deadline, "SELECT 1;").await?;
        if watch.is_empty() || !first.is_some_and(|answer| answer.session.can_notify()) {
            return Ok(None);
        }
        // In a separate exchange, because changes are reported only after its end.
        match self.service.read(deadline, &watch).await {
            // Another transaction prevents the registration of this watcher.
            Err(fault) if fault.retry == Retry::Again => Ok(None),
            answer => Ok(answer?.map(|answer| answer.session)),
        }
    }
}

impl Watched for WatchedQueue {
    async fn look(&mut self, name: &LockName) -> FaultResult<LockStatus> {
        let deadline = self.service.clock.now() + LOOK;
        let told_by = self.told_by(name, deadline).await?;
        self.notified = None;
        let question = inspect::question(&*self.service.dialect, Some(name));
        let Some(answer) = self.service.read(deadline, &question).await? else {
            return Ok(inspect::status_of(name, &inspect::Queues::new()));
        };
        let can_notify = told_by.is_some_and(|session| Arc::ptr_eq(&session, &answer.session));
        self.notified = can_notify.then_some((answer.session, answer.notified));
        Ok(inspect::status_of(name, &inspect::queues(&answer.sets)?))
    }

    async fn notified(&mut self) -> FaultResult<()> {
        match &self.notified {
            Some((session, notified)) => session.notified_after(*notified, None).await,
            None => std::future::pending().await,
        }
        Ok(())
    }

    fn next_look(&mut self, status: &LockStatus, _: bool, now: Moment) -> Moment {
        first_expiry(status, now).min(now + if self.notified.is_some() { AT_LEAST } else { POLL })
    }
}
