//! Watching a queue from outside.

use std::collections::VecDeque;
use std::sync::Arc;

use async_trait::async_trait;
use etcd_client::{Event, WatchOptions, WatchStream};

use super::fault::{Fault, FaultResult, NAME};
use super::follow::{opened_in_time, renew_token};
use super::keys::Queue;
use super::queue::{self, Member, TIMED};
use super::wire::{Connection, Wire};
use crate::backend::Observer;
use crate::backend::fault::During;
use crate::clock;
use crate::lock::{Entry, ErrorKind, LockName, LockStatus, Result};
use std::time::Duration;

/// How long one look may take.
const LOOK: Duration = Duration::from_secs(10);

/// A view of one queue.
pub(super) struct EtcdObserver {
    wire: Arc<Wire>,
    queue: Queue,
    name: LockName,
    stream: Option<(Connection, WatchStream)>,
    /// What happened up to this revision is known.
    seen: i64,
    /// It is not known what happened since.
    stale: bool,
    /// The keys that were changed since, and at which revisions, in order.
    events: VecDeque<(i64, Vec<u8>)>,
    /// The entry that stood first at that revision.
    front: Option<Vec<u8>>,
    last: Option<LockStatus>,
}

impl std::fmt::Debug for EtcdObserver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EtcdObserver").field("name", &self.name).finish_non_exhaustive()
    }
}

impl EtcdObserver {
    pub(super) fn new(wire: Arc<Wire>, queue: Queue) -> Self {
        let name = queue.name.clone();
        let events = VecDeque::new();
        Self { wire, queue, name, stream: None, seen: 0, stale: true, events, front: None, last: None }
    }

    /// Reads the queue as it was at `revision`; 0 is the newest one. Returns it if it differs from what was shown.
    async fn look(&mut self, revision: i64) -> FaultResult<Option<LockStatus>> {
        let deadline = clock::now() + LOOK;
        let snapshot = queue::read_at(&self.wire, &self.queue, revision, deadline).await?;
        let mut settled = snapshot.status(&self.name);
        if let Some(last) = &self.last {
            hide_unproved(&snapshot.members, &mut settled, last);
        }
        let mut shown = None;
        if self.last.as_ref() != Some(&settled) {
            // The times to live change all the time: they are shown, and no change.
            let mut timed = settled.clone();
            queue::add_times(&self.wire, &snapshot.members, &mut timed, TIMED, deadline).await?;
            shown = Some(timed);
        }
        self.last = Some(settled);
        self.seen = snapshot.revision;
        self.front = snapshot.members.into_iter().next().map(|member| member.key);
        self.stale &= revision > 0;
        Ok(shown)
    }

    /// Looks at each moment at which something became of the entry that stands first, so that no holder and no value of it
    /// is passed over; at what became of the others once for all that was told together.
    async fn replay(&mut self) -> FaultResult<Option<LockStatus>> {
        while let Some(last) = self.events.len().checked_sub(1) {
            let concerns = |(revision, key): &(i64, Vec<u8>)| {
                *revision > self.seen && self.front.as_ref().is_none_or(|front| front == key)
            };
            let at = self.events.iter().position(concerns).unwrap_or(last);
            let revision = self.events[at].0;
            let looked = if revision > self.seen { self.look(revision).await } else { Ok(None) };
            match looked {
                Ok(shown) => {
                    self.events.drain(..=at);
                    if shown.is_some() {
                        return Ok(shown);
                    }
                }
                // That revision is compacted: what can be had is the newest one.
                Err(Fault::Said(ErrorKind::Corrupt, _)) => {
                    self.events.clear();
                    self.stale = true;
                }
                Err(fault) => return Err(fault),
            }
        }
        Ok(None)
    }

    async fn listen(&mut self) -> FaultResult<()> {
        if self.stream.is_none() {
            let connection = self.wire.ready(clock::now() + LOOK).await?;
            let opening = begin(&connection, &self.queue, self.seen + 1);
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
                let changed = message.events().iter().filter_map(Event::kv);
                self.events.extend(changed.map(|kv| (kv.mod_revision(), kv.key().to_vec())));
                false
            }
            Ok(None) | Err(_) => {
                self.wire.give_up(connection);
                true
            }
        };
        if ended {
            self.stream = None;
            self.events.clear();
            self.stale = true;
        }
        Ok(())
    }
}

/// The token of a holder that had to wait is that of the proof of its hold, which comes a moment after its turn.
fn hide_unproved(members: &[Member], queue: &mut LockStatus, last: &LockStatus) {
    let is = |entry: &Entry, other: &Entry| entry.claim.is_some() && entry.claim == other.claim;
    for (member, entry) in members.iter().zip(&mut queue.holders) {
        let waited = last.waiters.iter().any(|waiter| is(waiter, entry))
            || last.holders.iter().any(|holder| is(holder, entry) && holder.token.is_none());
        entry.token = entry.token.filter(|_| member.hold.is_some() || !waited);
    }
}

async fn begin(
    connection: &Connection,
    queue: &Queue,
    revision: i64,
) -> std::result::Result<WatchStream, etcd_client::Error> {
    let of = |end: String| Some(WatchOptions::new().with_start_revision(revision).with_range(end));
    let ((first, end), (side, side_end)) = (queue.entries(), queue.beside());
    let mut client = connection.client.clone();
    let mut stream = Box::pin(client.watch(first, of(end))).await?;
    stream.watch(side, of(side_end)).await?;
    Ok(stream)
}

#[async_trait]
impl Observer for EtcdObserver {
    async fn next(&mut self) -> Result<LockStatus> {
        let operation = "observe the queue";
        loop {
            let mut looked = Box::pin(self.replay()).await;
            if self.stale && matches!(looked, Ok(None)) {
                looked = Box::pin(self.look(0)).await;
            }
            if let Some(status) = looked.during(NAME, operation, Some(&self.name))? {
                return Ok(status);
            }
            let listened = Box::pin(self.listen()).await;
            listened.during(NAME, operation, Some(&self.name))?;
        }
    }
}
