//! Observing one queue: the database tells of changes, the queue itself says what changed.

use std::sync::Arc;
use std::time::Duration;

use super::dialect::Session;
use super::inspect;
use super::sessions::Sessions;
use crate::backend::claim_state::POLL;
use crate::backend::observe::{LOOK, Watched, first_expiry};
use crate::lock::{LockName, LockStatus, Moment};
use crate::net::fault::{FaultResult, Retry};

/// Between two looks where no change is told and none can be foreseen: a lost message costs no more.
const AT_LEAST: Duration = Duration::from_secs(10);

/// One queue, on a session of its own.
#[derive(Debug)]
pub(super) struct WatchedQueue {
    service: Sessions,
    /// Over which session changes are told, and how often it had told before the last look.
    notified: Option<(Arc<dyn Session>, u64)>,
}

impl WatchedQueue {
    pub(super) fn new(service: &Sessions) -> Self {
        Self { service: Sessions::new(Arc::clone(&service.dialect), service.clock), notified: None }
    }

    /// The session that tells of changes; `None` if none does, and then one looks. One that a pooler lends must be left as it is,
    /// and tells nothing.
    async fn told_by(&self, name: &LockName, deadline: Moment) -> FaultResult<Option<Arc<dyn Session>>> {
        if let Some((session, _)) = self.notified.as_ref().filter(|(session, _)| session.is_open()) {
            return Ok(Some(Arc::clone(session)));
        }
        let watch = self.service.dialect.watch(name);
        let first = self.service.read(deadline, "SELECT 1;").await?;
        if watch.is_empty() || !first.is_some_and(|answer| answer.session.can_notify()) {
            return Ok(None);
        }
        // An exchange of its own: what is told is told from its end on.
        match self.service.read(deadline, &watch).await {
            // Somebody keeps it from being known that one watches here.
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
