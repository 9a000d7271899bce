//! Observing one line: the database tells of changes, the line itself says what changed.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::dialect::{Session, UNTOLD};
use super::inspect;
use super::service::Service;
use super::steps;
use crate::backend::Observer;
use crate::backend::fault::{During, FaultResult};
use crate::lock::{LockName, LockStatus, Moment, Result};

/// How long one look may take.
const LOOK: Duration = Duration::from_secs(5);
/// Beyond the database's own resolution of time.
const SLACK: Duration = Duration::from_millis(2);
/// Between two looks where no change is told and none can be foreseen: a lost message costs no more.
const AT_LEAST: Duration = Duration::from_secs(10);

/// An observer of one line, on a session of its own.
#[derive(Debug)]
pub(super) struct SqlObserver {
    service: Service,
    name: LockName,
    /// Over which session changes are told, and how often it had told before the last look.
    told: Option<(Arc<dyn Session>, u64)>,
    look_at: Moment,
    last: Option<LockStatus>,
}

impl SqlObserver {
    pub(super) fn new(service: &Service, name: LockName) -> Self {
        let service = Service::new(Arc::clone(&service.dialect), service.clock);
        Self { service, name, told: None, look_at: Moment::NEVER, last: None }
    }

    /// Reads the line after having the database tell of each change from then on.
    async fn look(&mut self) -> FaultResult<LockStatus> {
        let deadline = self.service.clock.now() + LOOK;
        let told_by = self.told_by(deadline).await?;
        let question = steps::line(&*self.service.dialect, Some(&self.name));
        let (mut lines, mut tells) = (inspect::Lines::new(), false);
        self.told = None;
        if let Some(answer) = self.service.read(deadline, &question).await? {
            lines = inspect::lines(&answer.sets)?;
            tells = told_by.is_some_and(|session| Arc::ptr_eq(&session, &answer.session));
            self.told = tells.then_some((answer.session, answer.told));
        }
        let status = inspect::status_of(&self.name, &lines);
        let now = self.service.clock.now();
        let ends = status.holders.iter().chain(&status.waiters).filter_map(|entry| entry.ttl);
        let foreseen = ends.min().map_or(AT_LEAST, |least| (least + SLACK).min(AT_LEAST));
        self.look_at = now + if tells { foreseen } else { foreseen.min(UNTOLD) };
        Ok(status)
    }

    /// The session that tells of changes. One that a pooler lends must be left as it is, and tells nothing.
    async fn told_by(&self, deadline: Moment) -> FaultResult<Option<Arc<dyn Session>>> {
        if let Some((session, _)) = self.told.as_ref().filter(|(session, _)| session.is_open()) {
            return Ok(Some(Arc::clone(session)));
        }
        let watch = self.service.dialect.watch(&self.name);
        let first = self.service.read(deadline, "SELECT 1;").await?;
        if watch.is_empty() || !first.is_some_and(|answer| answer.session.tells()) {
            return Ok(None);
        }
        // An exchange of its own: what is told is told from its end on.
        Ok(self.service.read(deadline, &watch).await?.map(|answer| answer.session))
    }

    async fn follow(&mut self) -> FaultResult<LockStatus> {
        loop {
            if let Some((session, told)) = &self.told {
                tokio::select! {
                    () = session.news_after(*told, None) => {}
                    () = self.service.clock.sleep_until(self.look_at) => {}
                }
            } else if self.last.is_some() {
                self.service.clock.sleep_until(self.look_at).await;
            }
            let status = match self.look().await {
                Ok(status) => status,
                Err(fault) => {
                    self.told = None;
                    self.look_at = self.service.clock.now();
                    return Err(fault);
                }
            };
            if status.is_news_after(self.last.as_ref()) {
                self.last = Some(status.clone());
                return Ok(status);
            }
        }
    }
}

#[async_trait]
impl Observer for SqlObserver {
    async fn next(&mut self) -> Result<LockStatus> {
        let followed = self.follow().await;
        followed.during(self.service.dialect.name(), "observe the queue", Some(&self.name))
    }
}
