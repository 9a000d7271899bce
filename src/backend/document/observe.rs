//! Observing one queue: looking again and again.

use std::time::Duration;

use async_trait::async_trait;

use super::client::Queues;
use super::pace::Pace;
use super::queue::{Content, Document};
use super::show::status_of;
use super::watch::Watch;
use crate::backend::fault::{During, FaultResult};
use crate::backend::{Observer, foreign};
use crate::lock::{LockName, LockStatus, Moment, Result};

/// How long one look may take.
const LOOK: Duration = Duration::from_secs(5);

/// An observer of one queue.
#[derive(Debug)]
pub(super) struct DocumentObserver {
    queues: Queues,
    name: LockName,
    watch: Watch,
    pace: Pace,
    look_at: Moment,
    last: Option<LockStatus>,
}

impl DocumentObserver {
    pub(super) fn new(queues: Queues, name: LockName) -> Self {
        // Observers of one lock need not spread more than its claims do.
        let pace = Pace::new(foreign::identity([name.as_str().as_bytes()]));
        let look_at = queues.clock.now();
        Self { queues, name, watch: Watch::default(), pace, look_at, last: None }
    }

    async fn look(&mut self) -> FaultResult<LockStatus> {
        let item = self.queues.store.read(&self.name, self.queues.clock.now() + LOOK).await?;
        let now = self.queues.clock.now();
        let document: Option<Document> = match item.as_ref().map(|item| Content::parse(&item.bytes)) {
            Some(Content::Queue(document)) => Some(document),
            Some(Content::Foreign | Content::Newer) | None => None,
        };
        self.watch.look(document.as_ref(), now);
        let watch = Some((&self.watch, now));
        Ok(status_of(&*self.queues.store, &self.name, item.as_ref(), watch))
    }

    async fn follow(&mut self) -> FaultResult<LockStatus> {
        loop {
            self.queues.clock.sleep_until(self.look_at).await;
            let looked = self.look().await;
            self.look_at = self.queues.clock.now() + self.pace.next(Some(2));
            let status = looked?;
            if status.is_news_after(self.last.as_ref()) {
                self.pace.changed();
                self.last = Some(status.clone());
                return Ok(status);
            }
        }
    }
}

#[async_trait]
impl Observer for DocumentObserver {
    async fn next(&mut self) -> Result<LockStatus> {
        let followed = self.follow().await;
        followed.during(self.queues.store.backend(), "observe the queue", Some(&self.name))
    }
}
