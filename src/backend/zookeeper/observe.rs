//! Watching one queue.

use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use zookeeper_client::{Client, Error as ZkError, OneshotWatcher};

use super::ensemble::Ensemble;
use super::fault::{Fault, FaultResult, is_ambiguous};
use super::snapshot::{Seen, Snapshot, leases, status, tickets};
use super::wire::connected;
use crate::backend::fault;
use crate::backend::observe::Watched;
use crate::lock::{LockName, LockStatus, Moment};

type Change = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The life of a session that only looks.
const SESSION: std::time::Duration = std::time::Duration::from_secs(10);

/// One queue, and what tells that it may have changed since it was read.
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

    /// The queue as it is, with watches on everything that it was made of.
    async fn read(&mut self, name: &LockName) -> FaultResult<LockStatus> {
        let client = match &self.client {
            Some(client) if !client.state().is_terminated() => client.clone(),
            _ => self.client.insert(self.ensemble.connect(SESSION).await?).clone(),
        };
        let mut changes: Vec<Change> = Vec::new();
        let folders = [self.path.clone(), tickets(&self.path), leases(&self.path)];
        for folder in &folders {
            changes.push(watch_children(&client, folder).await?);
        }
        let snapshot = Snapshot::read(&client, &self.path, false).await?;
        let entries = snapshot.entries(&client, &self.path).await?;
        for seen in &entries {
            changes.extend(watch_data(&client, seen).await?);
        }
        // What changed between reading and watching would be missed otherwise.
        let snapshot = Snapshot::read(&client, &self.path, false).await?;
        let entries = snapshot.entries(&client, &self.path).await?;
        self.changes = changes;
        Ok(status(name, &entries))
    }
}

/// A watch on the children of `path`, or on its coming into being.
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

impl Watched for WatchedQueue {
    async fn look(&mut self, name: &LockName) -> fault::FaultResult<LockStatus> {
        loop {
            let fault = match self.read(name).await {
                Ok(status) => return Ok(status),
                Err(fault) => fault,
            };
            if let (Fault::Service(error), Some(client)) = (&fault, &self.client)
                && is_ambiguous(error)
                && connected(client).await
            {
                continue;
            }
            self.client = None;
            return Err(self.ensemble.explain(fault));
        }
    }

    /// All watches are then used up or stale.
    async fn notified(&mut self) -> fault::FaultResult<()> {
        let changes = &mut self.changes;
        std::future::poll_fn(|context| {
            let any = changes.iter_mut().any(|change| change.as_mut().poll(context).is_ready());
            if any { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        self.changes.clear();
        Ok(())
    }

    fn next_look(&mut self, _: &LockStatus, _: bool, _: Moment) -> Moment {
        Moment::NEVER
    }
}
