//! Observing one line: the nodes tell of changed keys, the line itself says what changed.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use redis::Value;

use super::core::{Nodes, UNTOLD};
use super::inspect;
use crate::backend::Observer;
use crate::backend::fault::{During, FaultResult};
use crate::backend::redis::connection::{Connection, any_news};
use crate::backend::redis::fault::NAME;
use crate::backend::redis::keys::Naming;
use crate::backend::redis::script::Step;
use crate::backend::redis::service::Patience;
use crate::lock::{LockName, LockStatus, Moment, Result};

/// How long one look may take.
const LOOK: Duration = Duration::from_secs(5);
/// Beyond the service's own resolution of time.
const SLACK: Duration = Duration::from_millis(2);

/// An observer of one line, on connections of its own.
#[derive(Debug)]
pub(super) struct RedlockObserver {
    nodes: Arc<Nodes>,
    naming: Naming,
    name: LockName,
    /// What each node that tells of changes had told before the last look.
    told: Vec<(Arc<Connection>, u64)>,
    look_at: Moment,
    last: Option<LockStatus>,
}

impl RedlockObserver {
    pub(super) fn new(nodes: Arc<Nodes>, naming: Naming, name: LockName) -> Self {
        Self { nodes, naming, name, told: Vec::new(), look_at: Moment::NEVER, last: None }
    }

    /// Has each node tell of what is read from then on.
    async fn listen(&mut self, deadline: Moment) -> bool {
        let listening = self.nodes.services.iter().map(|service| {
            let service = Arc::clone(service);
            tokio::spawn(async move {
                let steps = |_: &Connection| {
                    vec![Step::command(["HELLO", "3"]), Step::command(["CLIENT", "TRACKING", "ON"])]
                };
                let connection = service.connection(None).await.ok()?;
                if connection.tells.get().is_none() {
                    let answer = service.call(None, deadline, Patience::Once, steps).await.ok()?;
                    // Set once; whoever was first heard the same.
                    let _ = answer.connection.tells.set(answer.replies.get(1) == Some(&Value::Okay));
                    return Some(answer.connection);
                }
                Some(connection)
            })
        });
        let mut all = true;
        self.told.clear();
        for one in listening.collect::<Vec<_>>() {
            let waited = tokio::select! {
                joined = one => joined.ok().flatten(),
                () = self.nodes.services[0].clock.sleep_until(deadline) => None,
            };
            match waited {
                Some(connection) if connection.tells.get() == Some(&true) => {
                    let told = connection.told();
                    self.told.push((connection, told));
                }
                _ => all = false,
            }
        }
        all
    }

    async fn look(&mut self) -> FaultResult<LockStatus> {
        let clock = self.nodes.services[0].clock;
        let begin = clock.now();
        let all = self.listen(begin + Duration::from_millis(250)).await;
        let name = std::slice::from_ref(&self.name);
        let line = inspect::entries(&self.nodes, &self.naming, name, begin + LOOK).await?.remove(0);
        let status = line.status(&self.name);
        let now = clock.now();
        let lives = status.holders.iter().chain(&status.waiters).filter_map(|entry| entry.ttl);
        let next = lives.min().map_or(Moment::NEVER, |least| now + least + SLACK);
        self.look_at = if all { next } else { next.min(now + UNTOLD) };
        Ok(status)
    }

    async fn follow(&mut self) -> FaultResult<LockStatus> {
        loop {
            if self.last.is_some() {
                let clock = self.nodes.services[0].clock;
                tokio::select! {
                    () = any_news(&self.told) => {}
                    () = clock.sleep_until(self.look_at) => {}
                }
            }
            let looked = self.look().await;
            if looked.is_err() {
                // The next call looks at once.
                self.last = None;
            }
            let status = looked?;
            if status.is_news_after(self.last.as_ref()) {
                self.last = Some(status.clone());
                return Ok(status);
            }
        }
    }
}

#[async_trait]
impl Observer for RedlockObserver {
    async fn next(&mut self) -> Result<LockStatus> {
        self.follow().await.during(NAME, "observe the queue", Some(&self.name))
    }
}
