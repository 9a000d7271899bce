//! Observing one queue: it is read again when the service reports a change, or when time alone may have made one.

use std::fmt::Debug;
use std::future::Future;
use std::time::Duration;

use async_trait::async_trait;

use super::Observer;
use super::claim_state::due;
use crate::clock::Clock;
use crate::lock::{LockName, LockStatus, Moment, Result};
use crate::net::fault::FaultResult;

/// The time limit of one read.
pub const LOOK: Duration = Duration::from_secs(5);

/// A queue that one client reads repeatedly.
pub trait Watched: Debug + Send {
    /// Reads the queue of `name`, after subscribing to later changes if the service can report them. After an error, or
    /// if the future is dropped, the next read follows at once.
    fn look(&mut self, name: &LockName) -> impl Future<Output = FaultResult<LockStatus>> + Send;

    /// Completes when the queue of `name` may have changed since the last read, except by the end of a lease: a service may
    /// report no change then. Cancel-safe.
    fn notified(&mut self, name: &LockName) -> impl Future<Output = FaultResult<()>> + Send;
}

/// An observer that reads a queue to find changes.
#[derive(Debug)]
pub struct QueueObserver<W> {
    clock: Clock,
    name: LockName,
    queue: W,
    /// When the first lease ends unless it is renewed; `None` means to read at once.
    look_at: Option<Moment>,
    last: Option<LockStatus>,
}

impl<W: Watched> QueueObserver<W> {
    /// Creates an observer of `queue`, that of the lock `name`, without reading it.
    pub fn new(clock: Clock, name: LockName, queue: W) -> Self {
        Self { clock, name, queue, look_at: None, last: None }
    }

    async fn follow(&mut self) -> FaultResult<LockStatus> {
        loop {
            if let Some(look_at) = self.look_at {
                tokio::select! {
                    notified = self.queue.notified(&self.name) => notified?,
                    () = self.clock.sleep_until(look_at) => {}
                }
            }
            self.look_at = None;
            let status = self.queue.look(&self.name).await?;
            let is_news = status.is_news_after(self.last.as_ref());
            let first = status.holders.iter().chain(&status.waiters).filter_map(|entry| entry.ttl).min();
            self.look_at = Some(due(self.clock.now(), first));
            if is_news {
                self.last = Some(status.clone());
                return Ok(status);
            }
        }
    }
}

#[async_trait]
impl<W: Watched> Observer for QueueObserver<W> {
    async fn next(&mut self) -> Result<LockStatus> {
        self.follow().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::Entry;
    use crate::net::fault::Fault;

    /// A queue of so many waiters, or an outage. It reports a change every second.
    #[derive(Debug)]
    struct Scripted(std::vec::IntoIter<Option<usize>>);

    impl Watched for Scripted {
        async fn look(&mut self, name: &LockName) -> FaultResult<LockStatus> {
            let waiters = self.0.next().expect("no look too many");
            tokio::time::sleep(Duration::from_millis(10)).await;
            let waiters = waiters.ok_or_else(|| Fault::unavailable("away"))?;
            // The read after the second one is due before the next report.
            let soon = self.0.len() == 6 && waiters == 1;
            let entry = Entry { ttl: soon.then(|| Duration::from_millis(98)), ..Entry::default() };
            Ok(LockStatus::of(name, Vec::new(), vec![entry; waiters]))
        }

        async fn notified(&mut self, _: &LockName) -> FaultResult<()> {
            tokio::time::sleep(Duration::from_secs(1)).await;
            Ok(())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn observer_shows_changes_and_repeats_a_failed_look_at_once() {
        let clock = Clock::Runtime(tokio::time::Instant::now());
        let looks = vec![Some(1), Some(1), Some(2), None, Some(2), Some(0), Some(0), Some(3)];
        let name: LockName = "x".parse().expect("a name");
        let mut observer = QueueObserver::new(clock, name, Scripted(looks.into_iter()));
        let begun = clock.now();
        let passed = || clock.now().since(begun).as_millis();
        let shown = |status: Result<LockStatus>| status.map(|status| status.waiters.len()).ok();
        assert_eq!((shown(observer.next().await), passed()), (Some(1), 10), "at once");
        assert_eq!((shown(observer.next().await), passed()), (Some(2), 1130), "told, and when it was due");
        assert_eq!((shown(observer.next().await), passed()), (None, 2140), "an outage");
        let unchanged = tokio::time::timeout(Duration::from_millis(500), observer.next()).await;
        assert!(unchanged.is_err(), "it is as it was");
        let dropped = tokio::time::timeout(Duration::from_millis(1005), observer.next()).await;
        assert!(dropped.is_err(), "in the middle of a look");
        assert_eq!((shown(observer.next().await), passed()), (Some(0), 3655), "at once");
        assert_eq!((shown(observer.next().await), passed()), (Some(3), 4665));
    }
}
