//! The slots of a semaphore: which one a claim gets that the queue admits.
//!
//! A slot is an ephemeral node that only one session can have. It is made in one step with the mark on the claim's
//! record that says which it is, and goes with the claim's other nodes. At most as many claims as there are slots
//! are admitted, so that each finds one. The node counts as one of the leases of Curator's
//! `InterProcessSemaphoreV2`. Where Curator's clients may be, a claim makes it as they do theirs: first in their
//! queue, and when there is room.
//!
//! Slots are taken in the order of the queue: a claim waits until those ahead of it have theirs. Tokens are those of the
//! entries, so a claim that took its slot later than one behind it would follow a higher token on that slot.

use std::time::Duration;

use zookeeper_client::{Client, CreateMode, Error as ZkError, MultiWriteError};

use super::fault::{Fault, FaultResult};
use super::node::ticket_stem;
use super::note::Note;
use super::position::{Hint, queue_of};
use super::queue::Queue;
use super::shared::{Own, RETRY, Shared};
use super::snapshot::{SLOT, leases, slot_path, tickets};
use super::wire::{children, make_folders};
use crate::lock::{ErrorKind, Mode, queue};

/// How often others may be first.
const RACES: usize = 100;
/// Those ahead take their slots within an exchange or two. Whoever asks only once is not told to wait for that, unless it
/// takes longer than this, or this part of the ttl.
const PATIENCE: (Duration, u32) = (Duration::from_millis(500), 12);

/// What became of an attempt.
pub(super) enum Taken {
    /// The claim has a slot on each of its names.
    All,
    /// Something must happen first; the node of a foreign holder, if there is one.
    After(Hint, Option<String>),
    /// The claim's own entry is not there any more.
    Gone,
}

/// What there is of one name.
struct SlotQueue {
    note: Note,
    version: i32,
    queue: Queue,
    leases: Vec<String>,
    tickets: Vec<String>,
}

/// Whether all claims ahead of `own` have their slots, given the queue and what was among the leases not before that.
pub(super) fn those_ahead_have_theirs(own: &Own, queue: &Queue, leases: &[String]) -> bool {
    let taken = leases.iter().filter(|name| name.starts_with(SLOT)).count();
    queue.position(own.record()).is_none_or(|ahead| taken >= ahead)
}

/// Takes a slot on each name of a claim that the queue admits, all in one step. What an attempt made whose answer was
/// lost is found in the claim's record.
pub(super) async fn take(shared: &Shared, client: &Client) -> FaultResult<Taken> {
    let Mode::Slots(slots) = shared.request.mode else { return Ok(Taken::All) };
    let patience = PATIENCE.0.min(shared.request.ttl / PATIENCE.1);
    let given_up_at = shared.ensemble.clock.now() + patience;
    for _ in 0..RACES {
        let own = shared.own();
        let Some(places) = read(shared, client, &own).await? else { return Ok(Taken::Gone) };
        if let Some(numbers) = places.iter().map(|place| place.note.slot).collect::<Option<Vec<u32>>>() {
            shared.set_slots(&numbers);
            return Ok(Taken::All);
        }
        let late = own
            .iter()
            .zip(&places)
            .find(|(own, place)| !those_ahead_have_theirs(own, &place.queue, &place.leases));
        if let Some((own, _)) = late {
            if shared.ensemble.clock.now() >= given_up_at {
                return Ok(Taken::After(Hint::Ahead(own.clone()), None));
            }
            let taken = async {
                if all_ahead_taken(shared, client, own).await.is_err() {
                    // The next look shows whether the session is over.
                    tokio::time::sleep(RETRY).await;
                }
            };
            tokio::select! {
                () = taken => {}
                () = shared.ensemble.clock.sleep_until(given_up_at) => {}
            }
            continue;
        }
        if shared.ensemble.joins_semaphores() {
            if make_tickets(shared, client, &own, &places).await? {
                continue;
            }
            if let Some(hint) = behind(shared, &own, &places, slots.get()) {
                return Ok(Taken::After(hint, foreign_holder(&own, &places)));
            }
        }
        let mut numbers = Vec::with_capacity(own.len());
        for (own, place) in own.iter().zip(&places) {
            let is_free = |number: &u32| !place.leases.contains(&format!("{SLOT}{number}"));
            match (1..=slots.get()).find(is_free) {
                Some(number) => numbers.push(number),
                // Whoever had it has left the queue, and the node goes with the session.
                None => return Ok(Taken::After(Hint::Room(leases(&own.queue), place.leases.len()), None)),
            }
        }
        match commit(shared, client, &own, &places, &numbers).await {
            Ok(()) => {
                shared.set_slots(&numbers);
                return Ok(Taken::All);
            }
            Err(MultiWriteError::OperationFailed {
                source: ZkError::NodeExists | ZkError::BadVersion,
                ..
            }) => {}
            Err(MultiWriteError::OperationFailed { source: ZkError::NoNode, .. }) => {
                for own in &own {
                    make_folders(client, shared.ensemble.acls(), &leases(&own.queue)).await?;
                }
            }
            Err(error) => return Err(ZkError::from(error).into()),
        }
    }
    Err(Fault::Refusal(ErrorKind::Unavailable, "others take the slots all the time".into()))
}

/// Reads it all in one exchange; `None` if the claim's own entry is gone.
async fn read(shared: &Shared, client: &Client, own: &[Own]) -> FaultResult<Option<Vec<SlotQueue>>> {
    let joins = shared.ensemble.joins_semaphores();
    let asked: Vec<_> = own
        .iter()
        .map(|own| {
            let record = client.get_data(&own.nodes[0]);
            let queue = children(client, &own.queue);
            let tickets = joins.then(|| children(client, &tickets(&own.queue)));
            (record, queue, children(client, &leases(&own.queue)), tickets)
        })
        .collect();
    let mut places = Vec::with_capacity(own.len());
    for ((record, queue, leases, tickets), own) in asked.into_iter().zip(own) {
        let (data, stat) = match record.await {
            Ok(found) => found,
            Err(ZkError::NoNode) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        // Whoever overwrote it has taken the claim away.
        let Some(note) = Note::parse(&data) else { return Ok(None) };
        let queue = queue_of(client, shared.request.id, own, &queue.await?);
        let leases = leases.await?;
        let tickets = match tickets {
            Some(tickets) => tickets.await?,
            None => Vec::new(),
        };
        places.push(SlotQueue { note, version: stat.version, queue, leases, tickets });
    }
    Ok(Some(places))
}

/// The paths of the claim's places in the queue of Curator's semaphore.
fn own_tickets(shared: &Shared, own: &Own, place: &SlotQueue) -> Vec<String> {
    let stem = ticket_stem(shared.request.id);
    let mine = place.tickets.iter().filter(|name| name.starts_with(&stem));
    mine.map(|name| format!("{}/{name}", tickets(&own.queue))).collect()
}

/// Joins the queues of Curator's semaphores where the claim does not stand in them, in one step, so that any two claims
/// come in the same order on all names. Says whether there was anything to do.
async fn make_tickets(
    shared: &Shared,
    client: &Client,
    own: &[Own],
    places: &[SlotQueue],
) -> FaultResult<bool> {
    let mut step = client.new_multi_writer();
    let mut any = false;
    for (own, place) in own.iter().zip(places) {
        if own_tickets(shared, own, place).is_empty() {
            let ticket = format!("{}/{}", tickets(&own.queue), ticket_stem(shared.request.id));
            step.add_create(&ticket, b"", &shared.ensemble.ephemeral())?;
            any = true;
        }
    }
    if !any {
        return Ok(false);
    }
    match step.commit().await {
        Ok(_) => Ok(true),
        Err(MultiWriteError::OperationFailed { source: ZkError::NoNode, .. }) => {
            for own in own {
                make_folders(client, shared.ensemble.acls(), &tickets(&own.queue)).await?;
            }
            Ok(true)
        }
        Err(error) => Err(ZkError::from(error).into()),
    }
}

/// What the claim must wait for among Curator's clients.
fn behind(shared: &Shared, own: &[Own], places: &[SlotQueue], slots: u32) -> Option<Hint> {
    own.iter().zip(places).find_map(|(own, place)| {
        let queue = Queue::of(&place.tickets);
        let index = queue.find(shared.request.id)?;
        if let Some(before) = index.checked_sub(1) {
            let name = &queue.entries[before].watched().name;
            return Some(Hint::Node(format!("{}/{name}", tickets(&own.queue))));
        }
        let taken = place.leases.len();
        let full = u32::try_from(taken).unwrap_or(u32::MAX) >= slots;
        full.then(|| Hint::Room(leases(&own.queue), taken))
    })
}

/// The node of a foreign client that has a lease.
fn foreign_holder(own: &[Own], places: &[SlotQueue]) -> Option<String> {
    own.iter().zip(places).find_map(|(own, place)| {
        let foreign = place.leases.iter().find(|name| !name.starts_with(SLOT))?;
        Some(format!("{}/{foreign}", leases(&own.queue)))
    })
}

async fn commit(
    shared: &Shared,
    client: &Client,
    own: &[Own],
    places: &[SlotQueue],
    numbers: &[u32],
) -> Result<(), MultiWriteError> {
    let options = CreateMode::Ephemeral.with_acls(shared.ensemble.acls());
    let mut step = client.new_multi_writer();
    for ((own, place), number) in own.iter().zip(places).zip(numbers) {
        let note = Note { slot: Some(*number), ..place.note.clone() };
        step.add_create(&slot_path(&own.queue, *number), b"", &options)?;
        step.add_set_data(&own.nodes[0], &note.to_bytes(), Some(place.version))?;
        for ticket in own_tickets(shared, own, place) {
            step.add_delete(&ticket, None)?;
        }
    }
    step.commit().await.map(drop)
}

/// The end of one of so many holders, all that are ahead of `own`. Each has a node among the leases, made a moment after
/// the queue admits it: so its end shows there, where no arrival and no other waiter does; while one of those nodes is
/// missing, in the queue.
pub(super) async fn one_freed(shared: &Shared, client: &Client, own: &Own, slots: u32) -> FaultResult<()> {
    let all_there = |leases: &[String]| u32::try_from(leases.len()).unwrap_or(u32::MAX) >= slots;
    let is_admitted = |queue: &Queue, _: &[String]| {
        queue.position(own.record()).is_none_or(|index| index < queue::held(&queue.modes()))
    };
    changed(shared, client, own, all_there, is_admitted).await
}

/// All claims ahead of `own` have their slots.
pub(super) async fn all_ahead_taken(shared: &Shared, client: &Client, own: &Own) -> FaultResult<()> {
    let have_theirs = |queue: &Queue, leases: &[String]| those_ahead_have_theirs(own, queue, leases);
    changed(shared, client, own, |_| false, have_theirs).await
}

/// A change of the leases, or of the queue unless the leases say `enough`. None is waited for where they show that it
/// `is_past`.
async fn changed(
    shared: &Shared,
    client: &Client,
    own: &Own,
    enough: impl Fn(&[String]) -> bool,
    is_past: impl Fn(&Queue, &[String]) -> bool,
) -> FaultResult<()> {
    let folder = leases(&own.queue);
    let (names, lease) = match client.list_and_watch_children(&folder).await {
        Err(ZkError::NoNode) => {
            // Servers remove one that nobody uses. What is not there cannot be watched.
            make_folders(client, shared.ensemble.acls(), &folder).await?;
            client.list_and_watch_children(&folder).await?
        }
        listed => listed?,
    };
    if enough(&names) {
        lease.changed().await;
        return Ok(());
    }
    let (listed, moved) = client.list_and_watch_children(&own.queue).await?;
    let queue = queue_of(client, shared.request.id, own, &listed);
    if is_past(&queue, &names) {
        return Ok(());
    }
    tokio::select! {
        _ = lease.changed() => {}
        _ = moved.changed() => {}
    }
    Ok(())
}

/// Fewer than so many leases in this folder.
pub(super) async fn room_in(client: &Client, folder: &str, taken: usize) -> FaultResult<()> {
    let (names, watcher) = client.list_and_watch_children(folder).await?;
    if names.len() >= taken {
        watcher.changed().await;
    }
    Ok(())
}
