//! Observing a queue by watches.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use etcd_client::{Event, KeyValue, WatchOptions, WatchStream};

use super::dial::Connection;
use super::fault;
use super::follow::{opened_in_time, renew_token};
use super::keys::QueueKeys;
use super::queue::{self, Member, TIMED};
use super::wire::Wire;
use crate::backend::observe::{LOOK, Watched};
use crate::clock::{self, Clock};
use crate::lock::{ClaimId, Entry, LockName, LockStatus, Moment};
use crate::net::fault::FaultResult;

/// The pause before the next read after a stream has ended, because the next one may end at once, too.
const PAUSE: Duration = Duration::from_millis(100);

/// One queue, and the stream of its changes.
pub(super) struct WatchedQueue {
    wire: Arc<Wire>,
    queue: QueueKeys,
    stream: Option<(Arc<Connection>, WatchStream)>,
    /// The revision of the last read.
    seen: i64,
    /// The present claims that have waited.
    waited: HashSet<ClaimId>,
}

impl std::fmt::Debug for WatchedQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WatchedQueue").field("name", &self.queue.name).finish_non_exhaustive()
    }
}

impl WatchedQueue {
    pub(super) fn new(wire: Arc<Wire>, queue: QueueKeys) -> Self {
        Self { wire, queue, stream: None, seen: 0, waited: HashSet::new() }
    }

    async fn read(&mut self) -> FaultResult<LockStatus> {
        let deadline = clock::now() + LOOK;
        let snapshot = queue::read(&self.wire, &self.queue, deadline).await?;
        let mut status = snapshot.status(&self.queue.name);
        self.hide_unproved(&snapshot.members, &mut status);
        queue::add_times(&self.wire, &snapshot.members, &mut status, TIMED, deadline).await?;
        self.seen = snapshot.revision;
        if self.stream.is_none() {
            let connection = self.wire.ready(deadline).await?;
            let opening = begin(&connection, &self.queue, self.seen + 1);
            let opened = opened_in_time(&self.wire, &connection, opening).await;
            self.stream = Some((connection, opened.ok_or_else(fault::late)?));
        }
        Ok(status)
    }

    /// Hides the token of a holder that had to wait until its hold is proved, which happens a moment after it reaches
    /// the front.
    fn hide_unproved(&mut self, members: &[Member], status: &mut LockStatus) {
        let ids = |entries: &[Entry]| entries.iter().filter_map(|entry| entry.claim).collect::<Vec<_>>();
        let holders = ids(&status.holders);
        self.waited.retain(|id| holders.contains(id));
        self.waited.extend(ids(&status.waiters));
        for (member, entry) in members.iter().zip(&mut status.holders) {
            let waited = entry.claim.is_some_and(|id| self.waited.contains(&id));
            entry.token = entry.token.filter(|_| member.hold.is_some() || !waited);
        }
    }
}

async fn begin(
    connection: &Connection,
    queue: &QueueKeys,
    revision: i64,
) -> Result<WatchStream, etcd_client::Error> {
    let of = |end: String| Some(WatchOptions::new().with_start_revision(revision).with_range(end));
    let ((first, end), (side, side_end)) = (queue.entries(), queue.beside());
    let mut client = connection.client.clone();
    let mut stream = Box::pin(client.watch(first, of(end))).await?;
    stream.watch(side, of(side_end)).await?;
    Ok(stream)
}

impl Watched for WatchedQueue {
    async fn look(&mut self, _: &LockName) -> FaultResult<LockStatus> {
        Box::pin(self.read()).await
    }

    async fn notified(&mut self) -> FaultResult<()> {
        while let Some((connection, stream)) = &mut self.stream {
            let message = tokio::select! {
                message = stream.message() => message,
                () = self.wire.given_up(connection) => Ok(None),
            };
            let refused = match message {
                Ok(Some(message)) if !message.canceled() => {
                    let changed = message.events().iter().filter_map(Event::kv).map(KeyValue::mod_revision);
                    if changed.max().is_some_and(|revision| revision > self.seen) {
                        return Ok(());
                    }
                    continue;
                }
                Ok(refused) => refused,
                Err(_) => None,
            };
            let Some((connection, _)) = self.stream.take() else { break };
            match refused {
                Some(message) => renew_token(&connection, &message).await,
                None => self.wire.give_up(&connection),
            }
        }
        Clock::Boot.sleep_until(clock::now() + PAUSE).await;
        Ok(())
    }

    fn next_look(&mut self, _: &LockStatus, _: bool, _: Moment) -> Moment {
        Moment::NEVER
    }
}
