//! How a claim stands in line, and what comes to its attention.

use std::sync::Arc;

use tokio::time::Duration;
use zookeeper_client::{
    Client, CreateOptions, Error as ZkError, EventType, MultiWriteError, MultiWriteResult,
};

use super::enter::lease_stem;
use super::line::Line;
use super::note::{self, Note, token};
use super::shared::{Own, Shared};
use super::sight::{Sight, leases, tickets};
use super::wire::{
    Outcome, Trouble, children, connected, data_of, ended, is_ambiguous, make_folders, unto_the_end,
};
use super::{evict, success};
use crate::lock::{ClaimState, Entry, LossReason, Mode};

/// How long a claim that had waited holds before it tells those who look since when.
const MARK_AFTER: Duration = Duration::from_secs(1);

/// What to wait for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Hint {
    /// The end of this node.
    Node(String),
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
fn stand_in(own: &Own, mode: Mode, sight: &Sight) -> Option<Stand> {
    let path = |folder: &str, name: &str| format!("{folder}/{name}");
    let record = own.nodes[0].rsplit('/').next().unwrap_or_default();
    let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let Mode::Slots(slots) = mode else {
        let index = sight.line.position(record)?;
        let first = sight.line.places.first().map(|p| path(&own.line, &p.record().name));
        let blocker = sight.line.blocker(index);
        let hint = blocker.map(|place| (Hint::Node(path(&own.line, &place.watched().name)), first));
        return Some(Stand { ahead: count(index), blocked: hint });
    };
    let (waiting, holding) = (tickets(&own.line), leases(&own.line));
    let index = sight.tickets.position(record)?;
    let taken = sight.leases.places.len();
    let first = match (sight.leases.places.first(), sight.tickets.places.first()) {
        (Some(place), _) => Some(path(&holding, &place.record().name)),
        (None, place) => place.map(|p| path(&waiting, &p.record().name)),
    };
    let hint = match index.checked_sub(1) {
        Some(before) => Some(Hint::Node(path(&waiting, &sight.tickets.places[before].watched().name))),
        None if count(taken) >= slots.get() => Some(Hint::Room(holding, taken)),
        None => None,
    };
    Some(Stand { ahead: count(index + taken), blocked: hint.map(|hint| (hint, first)) })
}

/// How the claim stands, given what stands in its lines.
pub(super) fn stand(shared: &Shared, sights: &[Sight]) -> Standing {
    let mut all = 0;
    let mut blocked = None;
    for (own, sight) in shared.own().iter().zip(sights) {
        match stand_in(own, shared.request.mode, sight) {
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

/// Reads the lines and says how the claim stands in them.
pub(super) async fn look(shared: &Shared, client: &Client) -> Outcome<Standing> {
    let own = shared.own();
    let semaphore = matches!(shared.request.mode, Mode::Slots(_));
    let mut sights = Vec::with_capacity(own.len());
    if semaphore {
        for own in &own {
            sights.push(Sight::read(client, &own.line, false).await?);
        }
    } else {
        let listed: Vec<_> = own.iter().map(|own| children(client, &own.line)).collect();
        for listed in listed {
            sights.push(Sight { line: Line::of(&listed.await?), ..Sight::default() });
        }
    }
    Ok(stand(shared, &sights))
}

/// Makes the state what `standing` says.
pub(super) async fn settle(shared: &Shared, client: &Client, standing: &Standing) -> Outcome<()> {
    match standing {
        Standing::Free => {
            if matches!(shared.request.mode, Mode::Slots(_)) {
                take_slots(shared, client).await?;
            }
            shared.set_held();
        }
        Standing::Gone => {
            if adopt_slots(shared, client).await? {
                shared.set_held();
                return Ok(());
            }
            // The one who took its place may be there to be named.
            let end = evict::successor(shared, client).await;
            shared.end(
                end.map_or(ClaimState::Lost(LossReason::Evicted(None)), |by| ClaimState::Superseded { by }),
            );
        }
        Standing::Blocked { ahead, first, .. } => {
            let holder = match first {
                Some(path) => first_entry(client, path).await?,
                None => None,
            };
            shared.set_waiting(*ahead, holder);
        }
    }
    Ok(())
}

async fn first_entry(client: &Client, path: &str) -> Outcome<Option<Entry>> {
    let found = data_of(client, std::slice::from_ref(&path.to_owned())).await?;
    Ok(found.into_iter().flatten().next().map(|(data, stat)| {
        let note = Note::parse(&data);
        note::entry(note.as_ref(), &stat)
    }))
}

/// Changes the place at the head of each line for a slot, all in one step. Only the first in line makes leases,
/// so that none comes between.
async fn take_slots(shared: &Shared, client: &Client) -> Outcome<()> {
    let own = shared.own();
    let Mode::Slots(slots) = shared.request.mode else { return Ok(()) };
    for _ in 0..3 {
        let mut numbers = Vec::with_capacity(own.len());
        let mut step = client.new_multi_writer();
        for own in &own {
            let taken = taken_slots(client, own).await?;
            let number = (1..=slots.get()).find(|n| !taken.contains(n)).unwrap_or(slots.get());
            numbers.push(number);
            let data = data_of(client, &own.nodes[..1]).await?.into_iter().flatten().next();
            let Some(mut note) = data.and_then(|(data, _)| Note::parse(&data)) else {
                shared.lose(LossReason::Evicted(None));
                return Ok(());
            };
            note.slot = Some(number);
            let options: CreateOptions<'static> = shared.door.ephemeral();
            step.add_create(&lease_stem(own, shared.request.id), &note.to_bytes(), &options)?;
            step.add_delete(&own.nodes[0], None)?;
        }
        match step.commit().await {
            Ok(results) => return moved(shared, client, &own, &numbers, results).await,
            Err(MultiWriteError::OperationFailed { index, source: ZkError::NoNode }) if index % 2 == 0 => {
                for own in &own {
                    make_folders(client, shared.door.acls(), &leases(&own.line)).await?;
                }
            }
            Err(MultiWriteError::OperationFailed { source: ZkError::NoNode, .. }) => {
                shared.lose(LossReason::Evicted(None));
                return Ok(());
            }
            Err(error) => return Err(ZkError::from(error).into()),
        }
    }
    Err(Trouble::Service(ZkError::NoNode))
}

async fn taken_slots(client: &Client, own: &Own) -> Outcome<Vec<u32>> {
    let holding = leases(&own.line);
    let listed = children(client, &holding).await?;
    let paths: Vec<String> = listed.iter().map(|name| format!("{holding}/{name}")).collect();
    let data = data_of(client, &paths).await?;
    Ok(data.into_iter().flatten().filter_map(|(data, _)| Note::parse(&data)?.slot).collect())
}

async fn moved(
    shared: &Shared,
    client: &Client,
    own: &[Own],
    numbers: &[u32],
    results: Vec<MultiWriteResult>,
) -> Outcome<()> {
    let created = results.into_iter().filter_map(|result| match result {
        MultiWriteResult::Create { path, stat } => Some((path, stat)),
        _ => None,
    });
    let mut new = Vec::with_capacity(own.len());
    for ((own, number), (path, mut stat)) in own.iter().zip(numbers).zip(created) {
        if stat.is_invalid() {
            stat = client.check_stat(&path).await?.ok_or(ZkError::NoNode)?;
        }
        let token = token(&stat).ok_or(ZkError::NoNode)?;
        new.push(Own { nodes: vec![path], token, slot: Some(*number), ..own.clone() });
    }
    shared.set_own(new);
    Ok(())
}

/// Finds the leases of a change for slots whose answer was lost.
async fn adopt_slots(shared: &Shared, client: &Client) -> Outcome<bool> {
    let own = shared.own();
    if !matches!(shared.request.mode, Mode::Slots(_)) {
        return Ok(false);
    }
    let mut new = Vec::with_capacity(own.len());
    for own in &own {
        let sight = Sight::read(client, &own.line, false).await?;
        let entries = sight.entries(client, &own.line).await?;
        let mine = entries.into_iter().find(|seen| {
            seen.lease
                && seen.place.guid() == Some(shared.request.id)
                && seen.stat.ephemeral_owner == shared.session
        });
        let Some(seen) = mine else { return Ok(false) };
        let (path, slot) = (seen.record_path(), seen.note.as_ref().and_then(|n| n.slot));
        let token = token(&seen.stat).ok_or(ZkError::NoNode)?;
        new.push(Own { nodes: vec![path], token, slot, ..own.clone() });
    }
    shared.set_own(new);
    Ok(true)
}

/// Starts what looks after a claim until its session is closed.
pub(super) fn start(shared: &Arc<Shared>, client: &Client, standing: Standing) {
    guard(shared, client);
    if !shared.holds() && !shared.is_over() {
        let (each, client) = (Arc::clone(shared), client.clone());
        shared.spawn(async move {
            line_up(&each, &client, standing).await;
        });
    }
    let each = Arc::clone(shared);
    shared.spawn(async move {
        expire(&each).await;
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
        shared.door.clock.sleep_until(when).await;
    }
}

/// Waits until the claim holds.
async fn line_up(shared: &Arc<Shared>, client: &Client, first: Standing) {
    let begun = shared.door.clock.now();
    let mut known = Some(first);
    loop {
        let standing = match known.take() {
            Some(standing) => Ok(standing),
            None => match look(shared, client).await {
                Ok(standing) => settle(shared, client, &standing).await.map(|()| standing),
                Err(trouble) => Err(trouble),
            },
        };
        match standing {
            Ok(Standing::Free) => break,
            Ok(Standing::Blocked { hint, .. }) => {
                tokio::select! {
                    () = changed(client, &hint) => {}
                    () = shared.look.notified() => {}
                }
            }
            // What was asked of a connection that broke is asked again of the next one.
            Err(_) if connected(client).await => tokio::time::sleep(Duration::from_millis(20)).await,
            Ok(Standing::Gone) | Err(_) => return,
        }
    }
    let held = shared.door.clock.now();
    // A hold of a slot is another node than the wait for one.
    if shared.holds() && matches!(shared.request.mode, Mode::Slots(_)) {
        guard(shared, client);
    }
    success::prepare(shared, client).await;
    // What is over sooner nobody has looked at, and the next in line need not share the server with this.
    shared.door.clock.sleep_until(held + MARK_AFTER).await;
    mark_held(shared, client, held.since(begun)).await;
}

/// Completes when what `hint` says may have come about.
async fn changed(client: &Client, hint: &Hint) {
    match hint {
        Hint::Room(folder, taken) => {
            if let Ok((names, watcher)) = client.list_and_watch_children(folder).await
                && Line::of(&names).places.len() >= *taken
            {
                watcher.changed().await;
            }
        }
        Hint::Node(path) => {
            while let Ok((.., watcher)) = client.get_and_watch_data(path).await {
                if watcher.changed().await.event_type != EventType::NodeDataChanged {
                    return;
                }
            }
        }
    }
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

/// Watches the own nodes.
fn guard(shared: &Arc<Shared>, client: &Client) {
    for own in shared.own() {
        let (each, client) = (Arc::clone(shared), client.clone());
        shared.spawn(async move {
            watch_own(&each, &client, &own).await;
        });
    }
}

/// Hears of requests to leave, and of the end of one's own node.
async fn watch_own(shared: &Arc<Shared>, client: &Client, own: &Own) {
    loop {
        match unto_the_end(client.get_and_watch_data(&own.nodes[0])).await {
            Ok((data, _, watcher)) => {
                if let Some(by) = Note::parse(&data).and_then(|note| note.asked_by) {
                    shared.set_asked(by);
                }
                unto_the_end(watcher.changed()).await;
            }
            Err(ZkError::NoNode) => {
                if matches!(shared.request.mode, Mode::Slots(_)) && own.slot.is_none() {
                    // It may have become a lease; the line knows.
                    shared.look.notify_one();
                    return;
                }
                let end = evict::successor(shared, client).await;
                let lost = ClaimState::Lost(LossReason::Evicted(None));
                return shared.end(end.map_or(lost, |by| ClaimState::Superseded { by }));
            }
            Err(error) if is_ambiguous(&error) && connected(client).await => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Err(_) => return,
        }
    }
}
