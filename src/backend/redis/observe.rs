//! Observing one line: the server tells of changed keys, the line itself says what changed.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use redis::Value;

use super::connection::Connection;
use super::fault::NAME;
use super::inspect;
use super::keys::Naming;
use super::script::Step;
use super::service::{Patience, Service};
use super::wire::keys_of;
use crate::backend::Observer;
use crate::backend::fault::{During, FaultResult};
use crate::lock::{LockName, LockStatus, Moment, Result};

/// How long one look may take.
const LOOK: Duration = Duration::from_secs(5);
/// Between two looks where the server does not tell of changes.
const UNTOLD: Duration = Duration::from_millis(500);
/// Beyond the service's own resolution of time.
const SLACK: Duration = Duration::from_millis(2);

/// An observer of one line, on a connection of its own.
#[derive(Debug)]
pub(super) struct RedisObserver {
    service: Service,
    naming: Naming,
    name: LockName,
    /// What was told before the last look, and over which connection.
    told: Option<(Arc<Connection>, u64)>,
    look_at: Moment,
    last: Option<LockStatus>,
}

impl RedisObserver {
    pub(super) fn new(service: &Service, naming: Naming, name: LockName) -> Self {
        // Tracking everything that is read is a matter of a whole connection.
        let service = Service::new(service.config.clone(), service.clock);
        Self { service, naming, name, told: None, look_at: Moment::NEVER, last: None }
    }

    /// Reads the line after having the server tell of each key read from then on.
    async fn look(&mut self) -> FaultResult<LockStatus> {
        let deadline = self.service.clock.now() + LOOK;
        let slot = keys_of(&self.naming, std::slice::from_ref(&self.name))?[0].slot;
        let connection = self.service.connection(Some(slot)).await?;
        if connection.tells.get().is_none() {
            let steps = |_: &Connection| {
                vec![Step::command(["HELLO", "3"]), Step::command(["CLIENT", "TRACKING", "ON"])]
            };
            let answer = self.service.call(Some(slot), deadline, Patience::Once, steps).await?;
            // Set once; whoever was first heard the same.
            let _ = answer.connection.tells.set(answer.replies.get(1) == Some(&Value::Okay));
        }
        // A cluster may have sent the question elsewhere meanwhile: what counts is who answers now.
        let connection = self.service.connection(Some(slot)).await?;
        let told = connection.told();
        let status = inspect::line(&self.service, &self.naming, &self.name, deadline).await?;
        let now = self.service.clock.now();
        let lives = status.holders.iter().chain(&status.waiters).filter_map(|entry| entry.ttl);
        let mut next = lives.min().map_or(Moment::NEVER, |least| now + least + SLACK);
        if connection.tells.get() != Some(&true) {
            next = next.min(now + UNTOLD);
        }
        self.told = Some((connection, told));
        self.look_at = next;
        Ok(status)
    }

    async fn follow(&mut self) -> FaultResult<LockStatus> {
        loop {
            if let Some((connection, told)) = &self.told {
                tokio::select! {
                    () = connection.news_after(*told) => {}
                    () = self.service.clock.sleep_until(self.look_at) => {}
                }
            }
            let status = match self.look().await {
                Ok(status) => status,
                Err(fault) => {
                    self.told = None;
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
impl Observer for RedisObserver {
    async fn next(&mut self) -> Result<LockStatus> {
        self.follow().await.during(NAME, "observe the queue", Some(&self.name))
    }
}
