//! Follows a claim's queues until it is over.

use std::sync::Arc;

use futures_util::future::select_all;
use tokio::time::Duration;
use zookeeper_client::{Client, Error as ZkError, EventType};

use super::evict::be_gone;
use super::fault::{FaultResult, is_ambiguous};
use super::grants::Grants;
use super::note::{self, Note};
use super::position::{Hint, Position, look};
use super::queue::Queue;
use super::renew::renew;
use super::shared::{Own, RETRY, Shared};
use super::slots::{self, Taken};
use super::wire::{connected, data_of, ended, unto_the_end};
use super::{evict, success};
use crate::clock;
use crate::lock::{ClaimState, Entry, LossReason, queue};

/// How long a claim that had waited holds before it tells those who look since when.
const MARK_AFTER: Duration = Duration::from_secs(1);

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

/// Takes what `position` lets the claim have, and makes its state what it is then: who is admitted to a slot may still
/// have to wait for it.
pub(super) async fn settle(shared: &Shared, client: &Client, position: Position) -> FaultResult<Settled> {
    let taken = match position {
        Position::Free | Position::Partly => slots::take(shared, client).await?,
        Position::Blocked(wait) => Taken::After(wait),
        Position::Gone => Taken::Gone,
    };
    match taken {
        Taken::All => {
            shared.set_held();
            Ok(Settled::Holds)
        }
        Taken::After(wait) => {
            shared.set_waiting(wait.ahead, first_entry(client, wait.first.as_ref()).await?);
            Ok(Settled::Waits(wait.hints))
        }
        Taken::Gone => {
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

/// Starts what looks after a claim until its session is closed. `settled` is how it stands, if that is known.
pub(super) fn start(shared: &Arc<Shared>, client: &Client, settled: Option<Settled>, grants: Grants) {
    guard(shared, client, shared.own().iter().flat_map(Own::all));
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
        keep_grants(&each, &session, grants).await;
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

/// Follows what servers grant when the session comes back to one. Until whoever keeps the lease renews, which is due by
/// the former ttl, this does.
async fn keep_grants(shared: &Shared, client: &Client, mut grants: Grants) {
    loop {
        let granted = grants.next().await;
        // The claim may count on another clock.
        let asked = shared.ensemble.clock.now() - clock::now().since(granted.asked);
        if !shared.proofs().regrant(granted.ttl, asked) {
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
async fn wait_in_queue(shared: &Arc<Shared>, client: &Client, first: Option<Settled>) {
    let begun = shared.ensemble.clock.now();
    let mut known = first;
    loop {
        let settled = match known.take() {
            Some(settled) => Ok(settled),
            None => go_on(shared, client).await,
        };
        match settled {
            Ok(Settled::Holds) => break,
            Ok(Settled::Waits(hints)) => changed(shared, client, &hints).await,
            // What was asked of a connection that broke is asked again of the next one.
            Err(fault) if connected(client).await => {
                shared.cannot_follow(fault);
                tokio::time::sleep(RETRY).await;
            }
            Ok(Settled::Over) | Err(_) => return,
        }
    }
    let held = shared.ensemble.clock.now();
    success::prepare(shared, client).await;
    // What is over sooner nobody has looked at, and the next in the queue need not share the server with this.
    shared.ensemble.clock.sleep_until(held + MARK_AFTER).await;
    mark_held(shared, client, held.since(begun)).await;
}

/// Looks how the claim stands, takes what it can have, and watches that.
async fn go_on(shared: &Arc<Shared>, client: &Client) -> FaultResult<Settled> {
    let position = look(shared, client).await?;
    let before = shared.own();
    let settled = settle(shared, client, position).await;
    let taken = shared.own().into_iter().zip(before).filter(|(own, before)| own.slot != before.slot);
    guard(shared, client, taken.filter_map(|(own, _)| own.slot_node()));
    settled
}

/// Completes when what one of `hints` says may have come about.
async fn changed(shared: &Shared, client: &Client, hints: &[Hint]) {
    let (waited, ..) = select_all(hints.iter().map(|hint| Box::pin(come(shared, client, hint)))).await;
    if waited.is_err() {
        // The next look shows whether the session is over.
        tokio::time::sleep(RETRY).await;
    }
}

/// Completes when what `hint` says may have come about.
async fn come(shared: &Shared, client: &Client, hint: &Hint) -> FaultResult<()> {
    match hint {
        Hint::Node(path) => end_of(client, path).await,
        Hint::Turn(path) => turn_of(client, path).await,
        Hint::Slot(own, slots) => slots::one_freed(shared, client, own, *slots).await,
        Hint::Ahead(own) => slots::all_ahead_taken(shared, client, own).await,
        Hint::Room(folder, taken) => slots::room_in(client, folder, *taken).await,
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
            Err(ZkError::NoAuth) => return moved(client, path, |_, _| false).await,
            Err(error) => return Err(error.into()),
        }
    }
}

/// The end of the wait of the entry whose record is at `path`.
async fn turn_of(client: &Client, path: &str) -> FaultResult<()> {
    loop {
        match client.get_and_watch_data(path).await {
            Ok((data, ..)) if Note::parse(&data).is_some_and(|note| note.slot.is_some()) => return Ok(()),
            Ok((.., watcher)) => {
                if watcher.changed().await.event_type != EventType::NodeDataChanged {
                    return Ok(());
                }
            }
            Err(ZkError::NoNode) => return Ok(()),
            Err(ZkError::NoAuth) => {
                let is_admitted = |queue: &Queue, name: &str| {
                    queue.position(name).is_none_or(|index| index < queue::held(&queue.modes()))
                };
                return moved(client, path, is_admitted).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// A change of the queue in which the node at `path` stands, which only its user may read: servers tell nobody else what
/// becomes of it. None is waited for if the queue shows that `is_past`.
async fn moved(client: &Client, path: &str, is_past: impl Fn(&Queue, &str) -> bool) -> FaultResult<()> {
    let (folder, name) = path.rsplit_once('/').unwrap_or_default();
    let (names, watcher) = client.list_and_watch_children(folder).await?;
    if names.iter().any(|one| one == name) && !is_past(&Queue::of(&names), name) {
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

/// Watches own nodes.
fn guard(shared: &Arc<Shared>, client: &Client, paths: impl Iterator<Item = String>) {
    for path in paths {
        let (each, client) = (Arc::clone(shared), client.clone());
        shared.spawn(async move {
            watch_own(&each, &client, &path).await;
        });
    }
}

/// Hears of requests to leave, and of the end of one's own node.
async fn watch_own(shared: &Arc<Shared>, client: &Client, path: &str) {
    loop {
        match unto_the_end(client.get_and_watch_data(path)).await {
            Ok((data, _, watcher)) => {
                if let Some(by) = Note::parse(&data).and_then(|note| note.asked_by) {
                    shared.publisher.publish(ClaimState::AskedToLeave { by });
                }
                unto_the_end(watcher.changed()).await;
            }
            Err(ZkError::NoNode) => return be_gone(shared, client).await,
            Err(error) if is_ambiguous(&error) && connected(client).await => {
                tokio::time::sleep(RETRY).await;
            }
            Err(_) => return,
        }
    }
}
