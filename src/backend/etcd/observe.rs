//! Watching a line from outside.

use std::sync::Arc;

use async_trait::async_trait;
use etcd_client::{WatchOptions, WatchStream};

use super::fault::{Fault, Outcome};
use super::follow::{opened_in_time, renew_token};
use super::keys::Line;
use super::line;
use super::wire::{Connection, Wire};
use crate::backend::Observer;
use crate::clock;
use crate::lock::{LockName, LockStatus, Moment, Result};
use std::time::Duration;

/// How long one look may take.
const LOOK: Duration = Duration::from_secs(10);

/// A view of one line.
pub(super) struct EtcdObserver {
    wire: Arc<Wire>,
    line: Line,
    name: LockName,
    stream: Option<(Connection, WatchStream)>,
    /// Nothing is known of what happened after this revision.
    seen: i64,
    /// Something happened since the last look.
    stale: bool,
    last: Option<LockStatus>,
}

impl std::fmt::Debug for EtcdObserver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EtcdObserver").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A line without what changes all the time.
fn settled(status: &LockStatus) -> LockStatus {
    let mut status = status.clone();
    for entry in status.holders.iter_mut().chain(&mut status.waiters) {
        entry.ttl = None;
    }
    status
}

impl EtcdObserver {
    pub(super) fn new(wire: Arc<Wire>, line: Line) -> Self {
        let name = line.name.clone();
        Self { wire, line, name, stream: None, seen: 0, stale: true, last: None }
    }

    async fn look(&mut self, deadline: Moment) -> Outcome<Option<LockStatus>> {
        let snapshot = line::read(&self.wire, &self.line, deadline).await?;
        let status = snapshot.status(&self.name);
        if self.last.as_ref() == Some(&settled(&status)) {
            self.seen = snapshot.revision;
            self.stale = false;
            return Ok(None);
        }
        let timed = line::inspect(&self.wire, &self.line, deadline).await?;
        self.seen = snapshot.revision;
        self.stale = false;
        self.last = Some(settled(&timed));
        Ok(Some(timed))
    }

    async fn listen(&mut self) -> Outcome<()> {
        if self.stream.is_none() {
            let connection = self.wire.ready(clock::now() + LOOK).await?;
            let opening = begin(&connection, &self.line, self.seen + 1);
            let opened = opened_in_time(&self.wire, &connection, opening).await;
            self.stream = Some((connection, opened.ok_or_else(Fault::late)?));
        }
        let Some((connection, stream)) = &mut self.stream else { return Ok(()) };
        let message = tokio::select! {
            message = stream.message() => message,
            () = self.wire.given_up(connection) => Ok(None),
        };
        let ended = match &message {
            Ok(Some(message)) if message.canceled() => {
                renew_token(connection, message).await;
                true
            }
            Ok(Some(message)) => {
                self.stale |= !message.events().is_empty();
                false
            }
            Ok(None) | Err(_) => {
                self.wire.give_up(connection);
                true
            }
        };
        if ended {
            self.stream = None;
            self.stale = true;
        }
        Ok(())
    }
}

async fn begin(
    connection: &Connection,
    line: &Line,
    revision: i64,
) -> std::result::Result<WatchStream, etcd_client::Error> {
    let of = |end: String| Some(WatchOptions::new().with_start_revision(revision).with_range(end));
    let ((first, end), (side, side_end)) = (line.entries(), line.beside());
    let mut client = connection.client.clone();
    let mut stream = Box::pin(client.watch(first, of(end))).await?;
    stream.watch(side, of(side_end)).await?;
    Ok(stream)
}

#[async_trait]
impl Observer for EtcdObserver {
    async fn next(&mut self) -> Result<LockStatus> {
        let fail = |fault: Fault, name: &LockName| fault.error("observe the queue", Some(name));
        loop {
            if self.stale {
                let looked = self.look(clock::now() + LOOK).await;
                if let Some(status) = looked.map_err(|f| fail(f, &self.name))? {
                    return Ok(status);
                }
            }
            let listened = Box::pin(self.listen()).await;
            listened.map_err(|f| fail(f, &self.name))?;
        }
    }
}
