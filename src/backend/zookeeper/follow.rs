//! Follows a claim's queues until it is over.

use std::sync::Arc;

use futures_util::future::{join_all, select_all};
use tokio::time::Duration;
use zookeeper_client::{Client, Error as ZkError, EventType};

use super::dial::{Dialer, silence};
use super::evict;
use super::evict::be_gone;
use super::fault::{OVER, is_ambiguous};
use super::note::{self, Note};
use super::position::{self, Hint, Turn};
use super::queue::QueueNodes;
use super::renew::renew;
use super::shared::{RETRY, Shared};
use super::slots::{self, slot_or_end};
use super::wire::{connected, data_of};
use crate::lock::{ClaimState, Entry, LossReason, Mode};
use crate::net::fault::FaultResult;
use crate::net::link::Link;
use crate::net::rank::Rank;

/// How long a claim holds after a wait before it records the start of its hold for display.
const MARK_AFTER: Duration = Duration::from_secs(1);

/// The number of attempts in one ttl to resume a session that a server refuses.
const ATTEMPTS: u32 = 30;

/// The number of renewals in one ttl.
pub(super) const RENEWALS: u32 = 4;

/// The result of reading a claim's position.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Settled {
    /// It holds.
    Holds,
    /// It waits for one of these events.
    Waits(Vec<Hint>),
    /// It is over.
    Over,
}

/// Updates the claim's state to its position in `queues`.
pub(super) async fn settle(shared: &Shared, client: &Client, queues: &[QueueNodes]) -> FaultResult<Settled> {
    let position = match shared.request.mode {
        Mode::Slots(slots) => slots::take(shared, client, queues, slots.get()).await?,
        _ => position::stand(shared, queues),
    };
    match position {
        Turn::Free => {
            shared.set_held();
            Ok(Settled::Holds)
        }
        Turn::Blocked(wait) => {
            shared.set_waiting(wait.ahead, first_entry(client, wait.first.as_ref()).await?);
            Ok(Settled::Waits(wait.hints))
        }
        Turn::Gone => {
            be_gone(shared, client).await;
            Ok(Settled::Over)
        }
    }
}

async fn first_entry(client: &Client, path: Option<&String>) -> FaultResult<Option<Entry>> {
    let Some(path) = path else { return Ok(None) };
    let found = data_of(client, std::slice::from_ref(path)).await?;
    Ok(found.into_iter().flatten().next().map(|(data, stat)| {
        let note = Note::parse(&data);
        note::entry(path, note.as_ref(), &stat)
    }))
}

/// Starts following a claim until its session is closed. `settled` is its present position.
pub(super) fn start(shared: &Arc<Shared>, link: Link<Dialer>, settled: FaultResult<Settled>) {
    let each = Arc::clone(shared);
    tokio::spawn(async move {
        tokio::select! {
            () = keep_connected(&each, &link, settled) => {}
            () = expire(&each) => {}
        }
    });
}

/// Resumes the session over one connection after another. The library would do that by itself, but at the same pace for
/// all claims. If a server has few connections, those of holders must come first.
async fn keep_connected(shared: &Arc<Shared>, link: &Link<Dialer>, settled: FaultResult<Settled>) {
    let mut settled = Some(settled);
    while let Some(session) = shared.up() {
        let (mut watcher, service) = (session.client.state_watcher(), Arc::clone(&session.service));
        link.dial.go_on(session.client.session());
        attend(shared, &session.client, settled.take());
        drop(session);
        if watcher.changed().await.is_terminated() {
            return shared.lose(LossReason::SessionEnded);
        }
        if !shared.go_down().await {
            return;
        }
        service.end();
        let (session, asked) = loop {
            link.connects_as(rank(shared));
            match shared.ensemble.session(link).await {
                Ok(session) => {
                    // The request was sent at most this long ago, because a silent server is not tolerated longer.
                    let asked = shared.ensemble.clock.now() - silence(shared.request.ttl, 1);
                    if is_current(shared, &session.client).await {
                        break (session, asked);
                    }
                    session.service.end();
                }
                Err(fault) if fault.code == OVER => return shared.lose(LossReason::SessionEnded),
                // The refusal may be temporary.
                Err(_) => tokio::time::sleep(shared.request.ttl / ATTEMPTS).await,
            }
        };
        if shared.proofs().regrant(session.client.session_timeout(), asked) {
            shared.regranted.notify_one();
        }
        shared.go_up(session);
    }
}

/// Returns the purpose of the connection.
fn rank(shared: &Shared) -> Rank {
    match shared.publisher.state() {
        ClaimState::Waiting { ahead, .. } => {
            Rank::Waits { ahead: ahead.unwrap_or_default(), ttl: shared.request.ttl }
        }
        _ => Rank::Holds,
    }
}

/// Makes the server catch up with the one that accepted the entry. Returns whether it has.
async fn is_current(shared: &Shared, client: &Client) -> bool {
    let own = shared.own();
    let asked: Vec<_> = own.iter().map(|own| client.sync(&own.queue)).collect();
    join_all(asked).await.into_iter().all(|synced| matches!(synced, Ok(()) | Err(ZkError::NoNode)))
}

/// Follows a claim over one connection. `settled` is its position, if known.
fn attend(shared: &Arc<Shared>, client: &Client, settled: Option<FaultResult<Settled>>) {
    for path in shared.own().into_iter().flat_map(|own| own.nodes) {
        let (each, client) = (Arc::clone(shared), client.clone());
        shared.spawn(async move {
            watch_own(&each, &client, &path).await;
        });
    }
    if !shared.publisher.holds() && !shared.publisher.has_ended() {
        let (each, client) = (Arc::clone(shared), client.clone());
        shared.spawn(async move {
            wait_in_queue(&each, &client, settled).await;
        });
    }
    let (each, session) = (Arc::clone(shared), client.clone());
    shared.spawn(async move {
        follow_grant(&each, &session).await;
    });
}

/// Ends a claim that was not renewed for a ttl: the client's pings alone would keep it forever.
async fn expire(shared: &Shared) {
    loop {
        let when = shared.proofs().ends();
        if shared.ensemble.clock.now() >= when {
            return shared.lose(LossReason::Expired);
        }
        tokio::select! {
            () = shared.ensemble.clock.sleep_until(when) => {}
            () = shared.regranted.notified() => {}
        }
    }
}

/// Renews after the server granted another ttl to the resumed session, which counts from then on and may be shorter. It
/// continues until the keeper renews, which is still due by the former ttl.
async fn follow_grant(shared: &Shared, client: &Client) {
    while shared.proofs().is_regranted() {
        let begun = shared.ensemble.clock.now();
        // The end of the ttl shows a lasting failure.
        let _ = renew(shared, client, begun).await;
        let next = begun + shared.proofs().ttl() / RENEWALS;
        shared.ensemble.clock.sleep_until(next.max(begun + RETRY)).await;
    }
}

/// Waits until the claim holds.
async fn wait_in_queue(shared: &Shared, client: &Client, first: Option<FaultResult<Settled>>) {
    let begun = shared.ensemble.clock.now();
    let mut settled = match first {
        Some(settled) => settled,
        None => look(shared, client).await,
    };
    loop {
        match settled {
            Ok(Settled::Holds) => break,
            Ok(Settled::Waits(hints)) => changed(client, &hints).await,
            // If the connection broke, the next one reads the position again.
            Err(fault) if connected(client).await => {
                shared.cannot_follow(fault);
                tokio::time::sleep(RETRY).await;
            }
            Ok(Settled::Over) | Err(_) => return,
        }
        settled = look(shared, client).await;
    }
    let held = shared.ensemble.clock.now();
    // A shorter hold need not be marked for display, and the write would delay the next claim in the queue.
    shared.ensemble.clock.sleep_until(held + MARK_AFTER).await;
    mark_held(shared, client, held.since(begun)).await;
}

/// Reads the position of the claim, and takes the slots that it can have.
async fn look(shared: &Shared, client: &Client) -> FaultResult<Settled> {
    settle(shared, client, &position::read(shared, client).await?).await
}

/// Completes when one of `hints` may have happened.
async fn changed(client: &Client, hints: &[Hint]) {
    let (waited, ..) = select_all(hints.iter().map(|hint| Box::pin(come(client, hint)))).await;
    if waited.is_err() {
        // The next read shows whether the session is over.
        tokio::time::sleep(RETRY).await;
    }
}

/// Completes when `hint` may have happened.
async fn come(client: &Client, hint: &Hint) -> FaultResult<()> {
    match hint {
        Hint::Node(path) => end_of(client, path).await,
        Hint::Slot(path) => slot_or_end(client, path).await,
    }
}

/// Completes when the node at `path` is gone.
async fn end_of(client: &Client, path: &str) -> FaultResult<()> {
    loop {
        match client.get_and_watch_data(path).await {
            Ok((.., watcher)) => {
                if watcher.changed().await.event_type != EventType::NodeDataChanged {
                    return Ok(());
                }
            }
            Err(ZkError::NoNode) => return Ok(()),
            Err(ZkError::NoAuth) => return moved(client, path).await,
            Err(error) => return Err(error.into()),
        }
    }
}

/// Completes when the queue of the node at `path` changes. Only the node's user may read it, and servers notify no
/// other user of its end.
async fn moved(client: &Client, path: &str) -> FaultResult<()> {
    let (folder, name) = path.rsplit_once('/').unwrap_or_default();
    let (names, watcher) = client.list_and_watch_children(folder).await?;
    if names.iter().any(|one| one == name) {
        watcher.changed().await;
    }
    Ok(())
}

/// Records for display that the claim holds, and since when.
async fn mark_held(shared: &Shared, client: &Client, waited: Duration) {
    let waited = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
    for own in shared.own() {
        let marked = evict::amend(client, &own.nodes[0], |note| note.waited_ms = Some(waited)).await;
        // The record is for display only, so a failure is harmless.
        drop(marked);
    }
}

/// Watches for requests to leave and for the end of the claim's own node.
async fn watch_own(shared: &Arc<Shared>, client: &Client, path: &str) {
    loop {
        match client.get_and_watch_data(path).await {
            Ok((data, _, watcher)) => {
                if let Some(by) = Note::parse(&data).and_then(|note| note.asked_by) {
                    shared.publisher.publish(ClaimState::AskedToLeave { by });
                }
                watcher.changed().await;
                if shared.publisher.is_leaving() {
                    // The claim left by itself.
                    return;
                }
            }
            Err(ZkError::NoNode) => return be_gone(shared, client).await,
            Err(error) if is_ambiguous(&error) && connected(client).await => {
                tokio::time::sleep(RETRY).await;
            }
            Err(_) => return,
        }
    }
}
