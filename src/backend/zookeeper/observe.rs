//! Watching one line.

use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use async_trait::async_trait;
use zookeeper_client::{Client, Error as ZkError, OneshotWatcher};

use super::ensemble::Ensemble;
use super::fault::{Fault, FaultResult, is_ambiguous};
use super::snapshot::{Seen, Snapshot, leases, status, tickets};
use super::wire::{Call, connected};
use crate::backend::Observer;
use crate::lock::{LockName, LockStatus, Moment, Result};

type Change = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The life of a session that only looks.
const SESSION: std::time::Duration = std::time::Duration::from_secs(10);

pub(super) struct ZkObserver {
    ensemble: Arc<Ensemble>,
    name: LockName,
    line: String,
    client: Option<Client>,
    /// What tells that the line may have changed since it was shown.
    changes: Vec<Change>,
    shown: Option<LockStatus>,
}

impl std::fmt::Debug for ZkObserver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Observer({})", self.name)
    }
}

impl ZkObserver {
    pub(super) fn new(ensemble: Arc<Ensemble>, name: LockName) -> std::result::Result<Self, String> {
        let line = ensemble.paths.line(&name)?;
        Ok(Self { ensemble, name, line, client: None, changes: Vec::new(), shown: None })
    }

    /// Waits for one of the watches, all of which are then used up or stale.
    async fn change(&mut self) {
        let changes = &mut self.changes;
        std::future::poll_fn(|context| {
            let any = changes.iter_mut().any(|change| change.as_mut().poll(context).is_ready());
            if any { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        self.changes.clear();
    }

    /// The line as it is, with watches on everything that it was made of.
    async fn look(&mut self) -> FaultResult<LockStatus> {
        let client = match &self.client {
            Some(client) if !client.state().is_terminated() => client.clone(),
            _ => self.client.insert(self.ensemble.connect(SESSION).await?).clone(),
        };
        let mut changes: Vec<Change> = Vec::new();
        let folders = [self.line.clone(), tickets(&self.line), leases(&self.line)];
        for folder in &folders {
            changes.push(watch_children(&client, folder).await?);
        }
        let snapshot = Snapshot::read(&client, &self.line, false).await?;
        let entries = snapshot.entries(&client, &self.line).await?;
        for seen in &entries {
            changes.extend(watch_data(&client, seen).await?);
        }
        // What changed between reading and watching would be missed otherwise.
        let snapshot = Snapshot::read(&client, &self.line, false).await?;
        let entries = snapshot.entries(&client, &self.line).await?;
        self.changes = changes;
        Ok(status(&self.name, &entries))
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

#[async_trait]
impl Observer for ZkObserver {
    async fn next(&mut self) -> Result<LockStatus> {
        loop {
            if !self.changes.is_empty() {
                self.change().await;
            }
            let looked = self.look().await;
            match looked {
                Ok(line) if self.shown.as_ref() == Some(&line) => {}
                Ok(line) => {
                    self.shown = Some(line.clone());
                    return Ok(line);
                }
                Err(fault) => {
                    if let (Fault::Service(error), Some(client)) = (&fault, &self.client)
                        && is_ambiguous(error)
                        && connected(client).await
                    {
                        continue;
                    }
                    self.client = None;
                    let name = self.name.clone();
                    let call = Call {
                        ensemble: &self.ensemble,
                        operation: "watch the queue",
                        lock: Some(&name),
                        deadline: Moment::NEVER,
                    };
                    return Err(call.error(fault));
                }
            }
        }
    }
}
