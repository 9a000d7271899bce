//! Watching one queue.

use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use zookeeper_client::{Client, Error as ZkError, OneshotWatcher, SessionState, StateWatcher};

use super::ensemble::Ensemble;
use super::fault::LOST;
use super::snapshot::{self, Seen};
use super::wire::connected;
use crate::backend::observe::{LOOK, Watched};
use crate::clock::Clock;
use crate::lock::{LockName, LockStatus, Moment};
use crate::net::fault::FaultResult;

type Change = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The length of a session that only reads.
const SESSION: Duration = Duration::from_secs(10);

/// How long a session may be without a connection before another one is started. A server that has lost its data
/// refuses clients that have seen more than it has.
const CUT_OFF: Duration = Duration::from_secs(2);

/// One queue, and the watches for changes since it was read.
pub(super) struct WatchedQueue {
    ensemble: Arc<Ensemble>,
    path: String,
    client: Option<Client>,
    changes: Vec<Change>,
}

impl std::fmt::Debug for WatchedQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WatchedQueue").field("path", &self.path).finish_non_exhaustive()
    }
}

impl WatchedQueue {
    pub(super) fn new(ensemble: Arc<Ensemble>, path: String) -> Self {
        Self { ensemble, path, client: None, changes: Vec::new() }
    }

    /// Returns the session, or a new one if it is over.
    async fn session(&mut self) -> FaultResult<Client> {
        if let Some(client) = &self.client
            && !client.state().is_terminated()
        {
            return Ok(client.clone());
        }
        let connected = tokio::time::timeout(LOOK, self.ensemble.connect(SESSION)).await;
        let connected = connected.map_err(|_| self.ensemble.late())?;
        let client = connected.map_err(|fault| self.ensemble.explain(fault))?;
        Ok(self.client.insert(client).clone())
    }

    /// Reads the queue, with watches on all nodes that contribute to it.
    async fn read(&mut self, client: &Client, name: &LockName) -> FaultResult<LockStatus> {
        let mut changes = vec![watch_children(client, &self.path).await?];
        for seen in &entries(client, &self.path).await? {
            changes.extend(watch_data(client, seen).await?);
        }
        // Read again, because a change between the first read and the watches would be missed.
        let entries = entries(client, &self.path).await?;
        self.changes = changes;
        Ok(snapshot::status(name, &entries))
    }
}

async fn entries(client: &Client, path: &str) -> FaultResult<Vec<Seen>> {
    let queue = snapshot::read(client, path, false).await?;
    snapshot::entries(client, path, queue).await
}

/// Watches the children of `path`, or its creation.
async fn watch_children(client: &Client, path: &str) -> FaultResult<Change> {
    let until = |watcher: OneshotWatcher| -> Change {
        Box::pin(async move {
            watcher.changed().await;
        })
    };
    loop {
        match client.list_and_watch_children(path).await {
            Ok((_, watcher)) => return Ok(until(watcher)),
            Err(ZkError::NoNode) => {}
            Err(error) => return Err(error.into()),
        }
        let (stat, watcher) = client.check_and_watch_stat(path).await?;
        if stat.is_none() {
            return Ok(until(watcher));
        }
    }
}

async fn watch_data(client: &Client, seen: &Seen) -> FaultResult<Option<Change>> {
    match client.get_and_watch_data(&seen.record_path()).await {
        Ok((.., watcher)) => Ok(Some(Box::pin(async move {
            watcher.changed().await;
        }))),
        Err(ZkError::NoNode) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Completes when the session of `watcher` has had no connection for [`CUT_OFF`], or is over.
async fn cut_off(mut watcher: StateWatcher, clock: Clock) {
    loop {
        match watcher.state() {
            state if state.is_terminated() => return,
            SessionState::Disconnected => tokio::select! {
                _ = watcher.changed() => {}
                () = clock.sleep_until(clock.now() + CUT_OFF) => return,
            },
            _ => drop(watcher.changed().await),
        }
    }
}

impl Watched for WatchedQueue {
    async fn look(&mut self, name: &LockName) -> FaultResult<LockStatus> {
        let client = self.session().await?;
        let (ensemble, lost) = (Arc::clone(&self.ensemble), client.state_watcher());
        let look = async {
            loop {
                match self.read(&client, name).await {
                    Err(fault) if fault.code == LOST && connected(&client).await => {}
                    looked => return looked.map_err(|fault| self.ensemble.explain(fault)),
                }
            }
        };
        let looked = tokio::select! {
            biased;
            looked = look => looked,
            () = cut_off(lost, ensemble.clock) => Err(ensemble.late()),
        };
        if looked.is_err() {
            self.client = None;
        }
        looked
    }

    /// Discards all watches, which are used up or stale then.
    async fn notified(&mut self) -> FaultResult<()> {
        let changes = &mut self.changes;
        let told = std::future::poll_fn(|context| {
            let any = changes.iter_mut().any(|change| change.as_mut().poll(context).is_ready());
            if any { Poll::Ready(()) } else { Poll::Pending }
        });
        if let Some(client) = &self.client {
            tokio::select! {
                () = told => {}
                () = cut_off(client.state_watcher(), self.ensemble.clock) => self.client = None,
            }
        }
        self.changes.clear();
        Ok(())
    }

    fn next_look(&mut self, _: &LockStatus, _: bool, _: Moment) -> Moment {
        Moment::NEVER
    }
}
