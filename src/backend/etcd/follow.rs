//! Following the queue: one task for each claim, woken by the server.
//!
//! It watches the claim's own entries, its notes, and, while it waits, only the entry before it. So one departure wakes
//! one waiter, or the readers behind a writer.

use std::sync::Arc;
use std::time::Duration;

use etcd_client::{Client, EventType, WatchFilterType, WatchOptions, WatchResponse, WatchStream};

use super::core::{Core, Place};
use super::dial::Connection;
use super::fault::LEASE_GONE;
use super::keys;
use super::look::Target;
use super::stored::Note;
use super::wire::{Wire, by};
use crate::backend::claim_state::SHORT_HOLD;
use crate::clock::{self, Clock};
use crate::lock::{ClaimState, Moment};
use crate::net::fault::Fault;

/// The time limit for opening a stream.
const OPEN: Duration = Duration::from_secs(5);
/// The pause between two failed attempts at a present server.
const PAUSE: Duration = Duration::from_millis(100);

/// Follows the claim until it is over or has left. `place` is its position at `revision`.
pub(super) async fn follow(core: Arc<Core>, mut place: Place, mut revision: i64) {
    if matches!(place, Place::Gone) {
        return core.conclude().await;
    }
    if matches!(place, Place::Held) {
        Clock::Boot.sleep_until(clock::now() + SHORT_HOLD).await;
    }
    loop {
        if let Place::Waits(_, at) = &place {
            revision = *at;
        }
        if let Some((connection, mut stream)) = Box::pin(open(&core, &place, revision)).await {
            loop {
                match next(&core, &connection, &mut stream).await {
                    End::Failed => break,
                    End::Gone => return core.conclude().await,
                    End::Turn => {}
                }
                match look(&core, &mut revision).await {
                    None => return,
                    Some(Place::Gone) => return core.conclude().await,
                    // A claim that now holds keeps the stream: its other watches are still needed.
                    Some(Place::Held) => {}
                    Some(Place::Waits(targets, at)) => {
                        if aim(&mut stream, &core, &targets, at + 1).await.is_err() {
                            break;
                        }
                    }
                }
            }
        }
        if !core.publisher.is_over() {
            Clock::Boot.sleep_until(clock::now() + PAUSE).await;
        }
        place = match look(&core, &mut revision).await {
            Some(Place::Gone) => return core.conclude().await,
            Some(place) => place,
            None => return,
        };
    }
}

/// Reads the position of the claim, retrying until a server answers; `None` once it has left.
async fn look(core: &Core, revision: &mut i64) -> Option<Place> {
    loop {
        if core.publisher.is_over() {
            return None;
        }
        let deadline = clock::now() + core.ttl;
        let place = if core.is_held() {
            core.still_stands(deadline).await.map(|at| {
                at.map_or(Place::Gone, |at| {
                    *revision = at;
                    Place::Held
                })
            })
        } else {
            core.settle(deadline).await
        };
        match place {
            Ok(place) => return Some(place),
            // Its keys are going, too.
            Err(fault) if fault.code == LEASE_GONE => {}
            // A claim at the front that cannot take the lock blocks all behind it, so the failure is reported.
            Err(fault) => core.publisher.cannot_follow(fault),
        }
        Clock::Boot.sleep_until(clock::now() + PAUSE).await;
    }
}

/// The reason why watching ends for a moment.
enum End {
    /// The entry is gone.
    Gone,
    /// It may be at the front.
    Turn,
    /// The stream is broken.
    Failed,
}

async fn open(core: &Core, place: &Place, revision: i64) -> Option<(Arc<Connection>, WatchStream)> {
    let connection = core.wire.ready(clock::now() + OPEN).await.ok()?;
    let opening = begin(&connection.client, core, place, revision + 1);
    let stream = opened_in_time(&core.wire, &connection, opening).await?;
    Some((connection, stream))
}

/// Watches until an event requires a read.
async fn next(core: &Core, connection: &Arc<Connection>, stream: &mut WatchStream) -> End {
    loop {
        let message = tokio::select! {
            message = stream.message() => message,
            () = core.wire.given_up(connection) => return End::Failed,
            () = core.look.notified() => return End::Turn,
        };
        let Ok(Some(message)) = message else {
            core.wire.give_up(connection);
            return End::Failed;
        };
        if message.canceled() {
            renew_token(connection, &message).await;
            return End::Failed;
        }
        if let Some(end) = news(core, &message) {
            return end;
        }
    }
}

/// Renews the login token after a watch was refused for it: other requests do not notice.
pub(super) async fn renew_token(connection: &Connection, message: &WatchResponse) {
    if message.cancel_reason().contains("auth") || message.cancel_reason().contains("permission") {
        // If this fails, the next request reports the reason.
        let _ = by(clock::now() + OPEN, connection.client.refresh_token()).await;
    }
}

/// Returns the result of `opening`. If the server takes too long, gives up the connection.
pub(super) async fn opened_in_time<T>(
    wire: &Wire,
    connection: &Arc<Connection>,
    opening: impl Future<Output = Result<T, etcd_client::Error>>,
) -> Option<T> {
    let opened = tokio::select! {
        opened = by(clock::now() + OPEN, opening) => opened,
        () = wire.given_up(connection) => None,
    };
    if let Some(Ok(opened)) = opened {
        return Some(opened);
    }
    wire.give_up(connection);
    None
}

fn from(revision: i64) -> WatchOptions {
    WatchOptions::new().with_start_revision(revision)
}

fn deletes(revision: i64) -> WatchOptions {
    from(revision).with_filters([WatchFilterType::NoPut])
}

fn puts(revision: i64) -> WatchOptions {
    from(revision).with_filters([WatchFilterType::NoDelete])
}

async fn begin(
    client: &Client,
    core: &Core,
    place: &Place,
    revision: i64,
) -> Result<WatchStream, etcd_client::Error> {
    let note = core.layout.note(core.lease);
    let mut client = client.clone();
    let mut stream = Box::pin(client.watch(note, Some(puts(revision)))).await?;
    if let Place::Waits(targets, _) = place {
        aim(&mut stream, core, targets, revision).await?;
    }
    for queue in &core.queues {
        stream.watch(core.entry(queue), Some(deletes(revision))).await?;
    }
    Ok(stream)
}

/// Adds watches of `targets` to the stream.
async fn aim(
    stream: &mut WatchStream,
    core: &Core,
    targets: &[(usize, Target)],
    revision: i64,
) -> Result<(), etcd_client::Error> {
    for (at, target) in targets {
        let queue = &core.queues[*at];
        match target {
            Target::Gone(key) => stream.watch(key.clone(), Some(deletes(revision))).await?,
            Target::GoneOrHolds(key) => {
                stream.watch(key.clone(), Some(deletes(revision))).await?;
                let lease = std::str::from_utf8(keys::last_part(key)).unwrap_or_default();
                let lease = u64::from_str_radix(lease, 16).unwrap_or_default();
                stream.watch(queue.hold(lease.cast_signed()), Some(puts(revision))).await?;
            }
            Target::AnySlot => {
                let (first, end) = queue.slot_entries();
                stream.watch(first, Some(deletes(revision).with_range(end))).await?;
            }
        }
    }
    Ok(())
}

/// Publishes a request to leave in `message`. Returns the end of watching that another event in it causes.
fn news(core: &Core, message: &WatchResponse) -> Option<End> {
    let note = core.layout.note(core.lease);
    let mut turn = false;
    for event in message.events() {
        let Some(kv) = event.kv() else { continue };
        let own = core.queues.iter().any(|queue| core.entry(queue).as_bytes() == kv.key());
        if own && event.event_type() == EventType::Delete {
            return Some(End::Gone);
        }
        let noted = Note::parse(kv.value()).filter(|_| kv.key() == note.as_bytes());
        match noted {
            Some(Note::Ask(by)) => core.publisher.publish(ClaimState::AskedToLeave { by }),
            // The note alone proves nothing: a read shows whether the entry is gone.
            Some(Note::Evicted(_) | Note::Superseded(_)) | None => turn = true,
        }
    }
    turn.then_some(End::Turn)
}

impl Core {
    /// Returns the revision if all entries exist; changes nothing. Publishes a request to leave that was missed.
    pub(super) async fn still_stands(&self, deadline: Moment) -> Result<Option<i64>, Fault> {
        let read = [etcd_client::TxnOp::get(self.layout.note(self.lease), None)];
        let txn = etcd_client::Txn::new().when(self.all_stand()).and_then(read);
        let answer = self.wire.txn(txn, deadline).await?;
        if !answer.succeeded() {
            return Ok(None);
        }
        self.hear(&super::look::Answers::of(&answer).read()?);
        Ok(answer.header().map(etcd_client::ResponseHeader::revision))
    }
}
