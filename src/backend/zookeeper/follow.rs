//! How a claim stands in line, and what comes to its attention.

use std::sync::Arc;

use tokio::time::Duration;
use zookeeper_client::{Client, Error as ZkError, EventType};

use super::grants::Grants;
use super::line::Line;
use super::note::{self, Note};
use super::shared::{Own, Shared};
use super::sight::Sight;
use super::slots::{self, Taken};
use super::wire::{Outcome, children, connected, data_of, ended, is_ambiguous, unto_the_end};
use super::{evict, success};
use crate::clock;
use crate::lock::{ClaimId, ClaimState, Entry, LossReason, Mode, queue};

/// How long a claim that had waited holds before it tells those who look since when.
const MARK_AFTER: Duration = Duration::from_secs(1);

/// How many renewals fit into one ttl.
pub(super) const RENEWALS: u32 = 4;

/// Between a request that a connection lost and its repetition.
const RETRY: Duration = Duration::from_millis(20);

/// What to wait for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Hint {
    /// The end of this node.
    Node(String),
    /// The waiter whose record this is has got its slot, or gone: whoever is behind it is first then.
    Turn(String),
    /// One of so many claims that hold slots, all that are ahead of this one, has gone.
    Slot(Own, u32),
    /// All claims ahead of this one have their slots.
    Ahead(Own),
    /// Fewer than so many leases in this folder.
    Room(String, usize),
}

/// How a claim stands in all its lines.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Standing {
    /// Nothing is ahead that must end first.
    Free,
    /// An own node is not there any more.
    Gone,
    /// Something is.
    Blocked {
        /// How many entries are ahead of it in any line.
        ahead: u32,
        /// What may change that.
        hint: Hint,
        /// The record of the first in the line that is waited for.
        first: Option<String>,
    },
}

impl Standing {
    pub(super) fn is_free(&self) -> bool {
        *self == Self::Free
    }
}

/// How a claim stands in one line.
struct Stand {
    ahead: u32,
    /// What it waits for, and the record of the first in line.
    blocked: Option<(Hint, Option<String>)>,
}

/// How `own` stands in its line; `None` if it does not stand there any more.
fn stand_in(own: &Own, line: &Line) -> Option<Stand> {
    let path = |name: &str| format!("{}/{name}", own.line);
    let index = line.position(own.record())?;
    let modes = line.modes();
    let ahead = u32::try_from(index).unwrap_or(u32::MAX);
    if index < queue::held(&modes) {
        return Some(Stand { ahead, blocked: None });
    }
    let first = line.places.first().map(|place| path(&place.record().name));
    // The nearest of those that must end: with slots, the one right before.
    let blocker = line.blocker(index)?;
    let hint = match modes[index] {
        Mode::Slots(slots) if ahead == slots.get() => Hint::Slot(own.clone(), slots.get()),
        Mode::Slots(_) => Hint::Turn(path(&blocker.record().name)),
        _ => Hint::Node(path(&blocker.watched().name)),
    };
    Some(Stand { ahead, blocked: Some((hint, first)) })
}

/// How the claim stands, given what stands in its lines.
pub(super) fn stand(shared: &Shared, sights: &[Sight]) -> Standing {
    let mut all = 0;
    let mut blocked = None;
    for (own, sight) in shared.own().iter().zip(sights) {
        match stand_in(own, &sight.line) {
            None => return Standing::Gone,
            Some(stand) => {
                all += stand.ahead;
                blocked = blocked.or(stand.blocked);
            }
        }
    }
    match blocked {
        None => Standing::Free,
        Some((hint, first)) => Standing::Blocked { ahead: all, hint, first },
    }
}

/// The queue in `names`, without what an earlier attempt of the same claim left in it: that is removed.
pub(super) fn line_of(client: &Client, id: ClaimId, own: &Own, names: &[String]) -> Line {
    let mut line = Line::of(names);
    for node in line.take_older_selves(id, own.record()) {
        // Should it fail, the next look removes it, or the end of the session does.
        drop(client.delete(&format!("{}/{}", own.line, node.name), None));
    }
    line
}

/// Reads the lines and says how the claim stands in them.
pub(super) async fn look(shared: &Shared, client: &Client) -> Outcome<Standing> {
    let own = shared.own();
    let mut sights = Vec::with_capacity(own.len());
    let listed: Vec<_> = own.iter().map(|own| children(client, &own.line)).collect();
    for (own, listed) in own.iter().zip(listed) {
        let line = line_of(client, shared.request.id, own, &listed.await?);
        sights.push(Sight { line, ..Sight::default() });
    }
    Ok(stand(shared, &sights))
}

/// Makes the state what `standing` says, and returns what it is then: who is admitted may still have to wait for foreign
/// clients of a semaphore.
pub(super) async fn settle(shared: &Shared, client: &Client, standing: Standing) -> Outcome<Standing> {
    match &standing {
        Standing::Free => match slots::take(shared, client).await? {
            Taken::All => shared.set_held(),
            Taken::After(hint, first) => {
                shared.set_waiting(1, first_entry(client, first.as_ref()).await?);
                return Ok(Standing::Blocked { ahead: 1, hint, first });
            }
            Taken::Gone => {
                be_gone(shared, client).await;
                return Ok(Standing::Gone);
            }
        },
        Standing::Gone => be_gone(shared, client).await,
        Standing::Blocked { ahead, first, .. } => {
            shared.set_waiting(*ahead, first_entry(client, first.as_ref()).await?);
        }
    }
    Ok(standing)
}

/// Somebody removed its entry. The one who took its place may be there to be named.
pub(super) async fn be_gone(shared: &Shared, client: &Client) {
    let end = evict::successor(shared, client).await;
    shared.end(end.map_or(ClaimState::Lost(LossReason::Evicted(None)), |by| ClaimState::Superseded { by }));
}

async fn first_entry(client: &Client, path: Option<&String>) -> Outcome<Option<Entry>> {
    let Some(path) = path else { return Ok(None) };
    let found = data_of(client, std::slice::from_ref(path)).await?;
    Ok(found.into_iter().flatten().next().map(|(data, stat)| {
        let note = Note::parse(&data);
        note::entry(note.as_ref(), &stat)
    }))
}

/// Starts what looks after a claim until its session is closed. `standing` is how it stands, if that is known.
pub(super) fn start(shared: &Arc<Shared>, client: &Client, standing: Option<Standing>, grants: Grants) {
    guard(shared, client, shared.own().iter().flat_map(Own::all));
    if !shared.publisher.holds() && !shared.publisher.has_ended() {
        let (each, client) = (Arc::clone(shared), client.clone());
        shared.spawn(async move {
            line_up(&each, &client, standing).await;
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
        if shared.door.clock.now() >= when {
            return shared.lose(LossReason::Expired);
        }
        tokio::select! {
            () = shared.door.clock.sleep_until(when) => {}
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
        let asked = shared.door.clock.now() - clock::now().since(granted.asked);
        if !shared.proofs().regrant(granted.ttl, asked) {
            continue;
        }
        shared.regranted.notify_one();
        while shared.proofs().is_regranted() {
            let begun = shared.door.clock.now();
            // What a failure means, the end of the ttl tells.
            let _ = super::claim::renew(shared, client, begun).await;
            let next = begun + shared.proofs().ttl() / RENEWALS;
            shared.door.clock.sleep_until(next.max(begun + RETRY)).await;
        }
    }
}

/// Waits until the claim holds.
async fn line_up(shared: &Arc<Shared>, client: &Client, first: Option<Standing>) {
    let begun = shared.door.clock.now();
    let mut known = first;
    loop {
        let standing = match known.take() {
            Some(standing) => Ok(standing),
            None => match look(shared, client).await {
                Ok(standing) => settle(shared, client, standing).await,
                Err(trouble) => Err(trouble),
            },
        };
        match standing {
            Ok(Standing::Free) => break,
            Ok(Standing::Blocked { hint, .. }) => changed(shared, client, &hint).await,
            // What was asked of a connection that broke is asked again of the next one.
            Err(_) if connected(client).await => tokio::time::sleep(RETRY).await,
            Ok(Standing::Gone) | Err(_) => return,
        }
    }
    let held = shared.door.clock.now();
    guard(shared, client, shared.own().iter().flat_map(|own| own.all().skip(own.nodes.len())));
    success::prepare(shared, client).await;
    // What is over sooner nobody has looked at, and the next in line need not share the server with this.
    shared.door.clock.sleep_until(held + MARK_AFTER).await;
    mark_held(shared, client, held.since(begun)).await;
}

/// Completes when what `hint` says may have come about.
pub(super) async fn changed(shared: &Shared, client: &Client, hint: &Hint) {
    let waited = match hint {
        Hint::Node(path) => end_of(client, path).await,
        Hint::Turn(path) => turn_of(client, path).await,
        Hint::Slot(own, slots) => slots::one_freed(shared, client, own, *slots).await,
        Hint::Ahead(own) => slots::all_ahead_taken(shared, client, own).await,
        Hint::Room(folder, taken) => slots::room_in(client, folder, *taken).await,
    };
    if waited.is_err() {
        // The next look shows whether the session is over.
        tokio::time::sleep(RETRY).await;
    }
}

/// The end of the node at `path`.
async fn end_of(client: &Client, path: &str) -> Outcome<()> {
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
async fn turn_of(client: &Client, path: &str) -> Outcome<()> {
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
                let is_admitted = |line: &Line, name: &str| {
                    line.position(name).is_none_or(|index| index < queue::held(&line.modes()))
                };
                return moved(client, path, is_admitted).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// A change of the queue in which the node at `path` stands, which only its user may read: servers tell nobody else what
/// becomes of it. None is waited for if the queue shows that `is_past`.
async fn moved(client: &Client, path: &str, is_past: impl Fn(&Line, &str) -> bool) -> Outcome<()> {
    let (folder, name) = path.rsplit_once('/').unwrap_or_default();
    let (names, watcher) = client.list_and_watch_children(folder).await?;
    if names.iter().any(|one| one == name) && !is_past(&Line::of(&names), name) {
        watcher.changed().await;
    }
    Ok(())
}

/// Tells those who look at the line that it holds, and since when.
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
