//! Observing one queue by polling.

use super::client::Queues;
use super::pace::Pace;
use super::queue::{Content, Document};
use super::show::status_of;
use super::watch::Watch;
use crate::backend::foreign;
use crate::backend::observe::{LOOK, Watched};
use crate::lock::{LockName, LockStatus, Moment};
use crate::net::fault::FaultResult;

/// One queue, and the observations of it.
#[derive(Debug)]
pub(super) struct WatchedQueue {
    queues: Queues,
    watch: Watch,
    pace: Pace,
}

impl WatchedQueue {
    pub(super) fn new(queues: Queues, name: &LockName) -> Self {
        // Observers of one lock do not need different seeds.
        let pace = Pace::new(foreign::identity([name.as_str().as_bytes()]));
        Self { queues, watch: Watch::default(), pace }
    }
}

impl Watched for WatchedQueue {
    async fn look(&mut self, name: &LockName) -> FaultResult<LockStatus> {
        let item = self.queues.store.read(name, self.queues.clock.now() + LOOK).await?;
        let now = self.queues.clock.now();
        let document: Option<Document> = match item.as_ref().map(|item| Content::parse(&item.bytes)) {
            Some(Content::Queue(document)) => Some(document),
            Some(Content::Foreign) | None => None,
        };
        self.watch.look(document.as_ref(), now);
        let watch = Some((&self.watch, now));
        Ok(status_of(&*self.queues.store, name, item.as_ref(), watch))
    }

    async fn notified(&mut self) -> FaultResult<()> {
        std::future::pending().await
    }

    fn next_look(&mut self, _: &LockStatus, is_news: bool, now: Moment) -> Moment {
        if is_news {
            self.pace.changed();
        }
        now + self.pace.next(Some(2))
    }
}
