//! Observing one line: the database tells of changes, the line itself says what changed.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::dialect::{Session, UNTOLD};
use super::fault::{Fault, Outcome};
use super::inspect;
use super::service::Service;
use super::steps;
use crate::backend::Observer;
use crate::lock::{Entry, LockName, LockStatus, Moment, Result};

/// How long one look may take.
const LOOK: Duration = Duration::from_secs(5);
/// Beyond the database's own resolution of time.
const SLACK: Duration = Duration::from_millis(2);
/// Between two looks where no change is told and none can be foreseen: a lost message costs no more.
const AT_LEAST: Duration = Duration::from_secs(10);

/// An observer of one line, on a session of its own.
#[derive(Debug)]
pub(super) struct LineObserver {
    service: Service,
    name: LockName,
    /// Over which session changes are told, and how often it had told before the last look.
    told: Option<(Arc<dyn Session>, u64)>,
    look_at: Moment,
    last: Option<LockStatus>,
}

impl LineObserver {
    pub(super) fn new(service: &Service, name: LockName) -> Self {
        let service = Service::new(Arc::clone(&service.dialect), service.clock);
        Self { service, name, told: None, look_at: Moment::NEVER, last: None }
    }

    /// Has the database tell of each change from now on, then reads the line.
    async fn look(&mut self) -> Outcome<LockStatus> {
        let deadline = self.service.clock.now() + LOOK;
        let dialect = Arc::clone(&self.service.dialect);
        let watch = if self.can_be_told(deadline).await? { dialect.watch(&self.name) } else { String::new() };
        let batch = format!("{watch}{}", steps::line(&*dialect, Some(&self.name)));
        let (status, tells) = match self.service.read(deadline, &batch).await? {
            Some(answer) => {
                // A watch gives no row of ten columns.
                let mut sets = answer.sets;
                sets.retain(|set| set.first().is_some_and(|row| row.len() == 10));
                let lines = inspect::lines(&sets)?;
                let tells = !watch.is_empty() && answer.session.tells();
                self.told = Some((answer.session, answer.told));
                (inspect::status_of(&self.name, &lines), tells)
            }
            None => (inspect::status_of(&self.name, &inspect::Lines::new()), false),
        };
        let now = self.service.clock.now();
        let lives = status.holders.iter().chain(&status.waiters).filter_map(|entry| entry.ttl);
        let foreseen = lives.min().map_or(AT_LEAST, |least| (least + SLACK).min(AT_LEAST));
        self.look_at = now + if tells { foreseen } else { foreseen.min(UNTOLD) };
        Ok(status)
    }

    /// Whether the session is this client's own; one that a pooler lends must be left as it is.
    async fn can_be_told(&self, deadline: Moment) -> Outcome<bool> {
        if let Some((session, _)) = self.told.as_ref().filter(|(session, _)| session.is_open()) {
            return Ok(session.tells());
        }
        let answer = self.service.read(deadline, "SELECT 1;").await?;
        Ok(answer.is_some_and(|answer| answer.session.tells()))
    }

    async fn follow(&mut self) -> Outcome<LockStatus> {
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
            if self.last.as_ref().map(without_clock) != Some(without_clock(&status)) {
                self.last = Some(status.clone());
                return Ok(status);
            }
        }
    }
}

/// What is left of a ttl changes all the time.
fn without_clock(status: &LockStatus) -> LockStatus {
    let still =
        |entries: &[Entry]| entries.iter().map(|entry| Entry { ttl: None, ..entry.clone() }).collect();
    LockStatus { name: status.name.clone(), holders: still(&status.holders), waiters: still(&status.waiters) }
}

#[async_trait]
impl Observer for LineObserver {
    async fn next(&mut self) -> Result<LockStatus> {
        let (backend, name) = (self.service.dialect.name(), self.name.clone());
        let broken = |fault: Fault| fault.during(backend, "observe the line", Some(&name));
        self.follow().await.map_err(broken)
    }
}
