//! Follows a claim's queues until it is over.

use std::sync::Arc;

use futures_util::future::select_all;
use tokio::time::Duration;
use zookeeper_client::{Client, Error as ZkError, EventType, SessionState};

use super::dial::silence;
use super::evict;
use super::evict::be_gone;
use super::fault::is_ambiguous;
use super::note::{self, Note};
use super::position::{self, Hint, Turn};
use super::queue::QueueNodes;
use super::renew::renew;
use super::shared::{RETRY, Shared};
use super::slots::{self, slot_or_end};
use super::wire::{connected, data_of, ended};
use crate::lock::{ClaimState, Entry, LossReason, Mode};
use crate::net::fault::FaultResult;

/// How long a claim that had waited holds before it tells those who look since when.
const MARK_AFTER: Duration = Duration::from_secs(1);

/// Between two attempts to learn what is granted.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// How many renewals fit into one ttl.
pub(super) const RENEWALS: u32 = 4;

/// What a claim's position came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Settled {
    /// It holds.
    Holds,
    /// It waits for one of these.
    Waits(Vec<Hint>),
    /// It is over.
    Over,
}

/// Makes the claim's state what its queues let it be.
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

/// Starts what looks after a claim until its session is closed. `settled` is how it stands.
pub(super) fn start(shared: &Arc<Shared>, client: &Client, settled: FaultResult<Settled>) {
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
    let each = Arc::clone(shared);
    shared.spawn(async move {
        expire(&each).await;
    });
    let (each, session) = (Arc::clone(shared), client.clone());
    shared.spawn(async move {
        follow_grants(&each, &session).await;
    });
    let each = Arc::clone(shared);
    shared.spawn(async move {
        ended(each.watcher.clone()).await;
        each.lose(LossReason::SessionEnded);
    });
}

/// Ends the claim when nobody has renewed it for a ttl: the client's pings alone would keep it for ever.
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

/// Follows what servers grant when the session comes back to one: they may grant less than before, and count by that from then
/// on. The client library does not tell, nor which server it is, so that each is asked, and the shortest counts. Until whoever
/// keeps the lease renews, which is due by the former ttl, this does.
async fn follow_grants(shared: &Shared, client: &Client) {
    let mut watcher = client.state_watcher();
    loop {
        match watcher.changed().await {
            state if state.is_terminated() => return,
            SessionState::SyncConnected => {}
            _ => continue,
        }
        // The session was asked for no longer ago than a silent server is borne with.
        let asked = shared.ensemble.clock.now() - silence(shared.request.ttl, 1);
        let ttl = shared.proofs().ttl();
        let granted = loop {
            if let Some(granted) = shared.ensemble.shortest_grant(ttl).await {
                break granted;
            }
            tokio::time::sleep(ASK_AGAIN).await;
        };
        if !shared.proofs().regrant(granted, asked) {
            continue;
        }
        shared.regranted.notify_one();
        while shared.proofs().is_regranted() {
            let begun = shared.ensemble.clock.now();
            // What a failure means, the end of the ttl tells.
            let _ = renew(shared, client, begun).await;
            let next = begun + shared.proofs().ttl() / RENEWALS;
            shared.ensemble.clock.sleep_until(next.max(begun + RETRY)).await;
        }
    }
}

/// Waits until the claim holds.
async fn wait_in_queue(shared: &Shared, client: &Client, first: FaultResult<Settled>) {
    let begun = shared.ensemble.clock.now();
    let mut settled = first;
    loop {
        match settled {
            Ok(Settled::Holds) => break,
            Ok(Settled::Waits(hints)) => changed(client, &hints).await,
            // What was asked of a connection that broke is asked again of the next one.
            Err(fault) if connected(client).await => {
                shared.cannot_follow(fault);
                tokio::time::sleep(RETRY).await;
            }
            Ok(Settled::Over) | Err(_) => return,
        }
        settled = look(shared, client).await;
    }
    let held = shared.ensemble.clock.now();
    // What is over sooner nobody has looked at, and the next in the queue need not share the server with this.
    shared.ensemble.clock.sleep_until(held + MARK_AFTER).await;
    mark_held(shared, client, held.since(begun)).await;
}

/// Looks how the claim stands, takes what it can have, and watches that.
async fn look(shared: &Shared, client: &Client) -> FaultResult<Settled> {
    settle(shared, client, &position::read(shared, client).await?).await
}

/// Completes when what one of `hints` says may have come about.
async fn changed(client: &Client, hints: &[Hint]) {
    let (waited, ..) = select_all(hints.iter().map(|hint| Box::pin(come(client, hint)))).await;
    if waited.is_err() {
        // The next look shows whether the session is over.
        tokio::time::sleep(RETRY).await;
    }
}

/// Completes when what `hint` says may have come about.
async fn come(client: &Client, hint: &Hint) -> FaultResult<()> {
    match hint {
        Hint::Node(path) => end_of(client, path).await,
        Hint::Slot(path) => slot_or_end(client, path).await,
    }
}

/// The end of the node at `path`.
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

/// A change of the queue in which the node at `path` stands, which only its user may read: servers tell nobody else what
/// becomes of it.
async fn moved(client: &Client, path: &str) -> FaultResult<()> {
    let (folder, name) = path.rsplit_once('/').unwrap_or_default();
    let (names, watcher) = client.list_and_watch_children(folder).await?;
    if names.iter().any(|one| one == name) {
        watcher.changed().await;
    }
    Ok(())
}

/// Tells those who look at the queue that it holds, and since when.
async fn mark_held(shared: &Shared, client: &Client, waited: Duration) {
    let waited = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
    for own in shared.own() {
        let marked = evict::amend(client, &own.nodes[0], |note| note.waited_ms = Some(waited)).await;
        // Only for show: what it is for can do without.
        drop(marked);
    }
}

/// Hears of requests to leave, and of the end of one's own node.
async fn watch_own(shared: &Arc<Shared>, client: &Client, path: &str) {
    loop {
        match client.get_and_watch_data(path).await {
            Ok((data, _, watcher)) => {
                if let Some(by) = Note::parse(&data).and_then(|note| note.asked_by) {
                    shared.publisher.publish(ClaimState::AskedToLeave { by });
                }
                watcher.changed().await;
                if shared.publisher.is_leaving() {
                    // By its own doing.
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
