//! The slots of a semaphore: which one a claim gets that the queue admits.
//!
//! A slot is an ephemeral node that only one session can have. It is made in one step with the mark on the claim's
//! record that says which it is, and goes with the claim's other nodes. At most as many claims as there are slots
//! are admitted, so that each finds one. The node counts as one of the leases of Curator's
//! `InterProcessSemaphoreV2`. Where Curator's clients may be, a claim makes it as they do theirs: first in their
//! queue, and when there is room.
//!
//! Slots are taken in the order of the queue: a claim waits until those ahead of it have theirs. Tokens are those of the
//! entries, so a claim that took its slot later than one behind it would follow a higher token on that slot. So that nobody
//! waits for more than that, a claim of several names takes the slot of each as soon as that queue admits it.

use std::time::Duration;

use futures_util::future::select_all;
use zookeeper_client::{Client, CreateMode, Error as ZkError, MultiWriteError};

use super::fault::{Fault, FaultResult};
use super::node::ticket_stem;
use super::note::Note;
use super::position::{Hint, Position, Wait, queue_of, stand_in};
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
    /// Something must happen first. It has the slots that it can have until then.
    After(Wait),
    /// The claim's own entry is not there any more.
    Gone,
}

/// What there is of one name, on which the claim has no slot that it knows of.
struct SlotQueue {
    own: Own,
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

/// What can be done next for the claim to have its slot on one name.
enum Step {
    /// Nothing: an attempt whose answer was lost has made it.
    Known(u32),
    /// Join the queue of Curator's semaphore.
    Ticket,
    /// Take this one.
    Slot(u32),
    /// Nothing, before this has come about.
    Wait(Wait),
    /// Nothing, before all ahead of it have theirs.
    Late,
    /// Nothing any more.
    Gone,
}

impl SlotQueue {
    fn next(&self, shared: &Shared, slots: u32) -> Step {
        if let Some(number) = self.note.slot {
            return Step::Known(number);
        }
        match stand_in(&self.own, &self.queue) {
            Position::Free | Position::Partly => {}
            Position::Blocked(wait) => return Step::Wait(wait),
            Position::Gone => return Step::Gone,
        }
        if !those_ahead_have_theirs(&self.own, &self.queue, &self.leases) {
            return Step::Late;
        }
        if shared.ensemble.joins_semaphores() {
            if self.own_tickets(shared).is_empty() {
                return Step::Ticket;
            }
            if let Some(hint) = self.behind(shared, slots) {
                return Step::Wait(Wait { ahead: 1, hints: vec![hint], first: self.foreign_holder() });
            }
        }
        let is_free = |number: &u32| !self.leases.contains(&format!("{SLOT}{number}"));
        match (1..=slots).find(is_free) {
            Some(number) => Step::Slot(number),
            // Whoever had it has left the queue, and the node goes with the session.
            None => Step::Wait(Wait { ahead: 1, hints: vec![self.room()], first: None }),
        }
    }

    /// Fewer leases than there are.
    fn room(&self) -> Hint {
        Hint::Room(leases(&self.own.queue), self.leases.len())
    }

    /// The paths of the claim's places in the queue of Curator's semaphore.
    fn own_tickets(&self, shared: &Shared) -> Vec<String> {
        let stem = ticket_stem(shared.request.id);
        let mine = self.tickets.iter().filter(|name| name.starts_with(&stem));
        mine.map(|name| format!("{}/{name}", tickets(&self.own.queue))).collect()
    }

    /// What the claim must wait for among Curator's clients.
    fn behind(&self, shared: &Shared, slots: u32) -> Option<Hint> {
        let queue = Queue::of(&self.tickets);
        let index = queue.find(shared.request.id)?;
        if let Some(before) = index.checked_sub(1) {
            let name = &queue.entries[before].watched().name;
            return Some(Hint::Node(format!("{}/{name}", tickets(&self.own.queue))));
        }
        let full = u32::try_from(self.leases.len()).unwrap_or(u32::MAX) >= slots;
        full.then(|| self.room())
    }

    /// The node of a foreign client that has a lease.
    fn foreign_holder(&self) -> Option<String> {
        let foreign = self.leases.iter().find(|name| !name.starts_with(SLOT))?;
        Some(format!("{}/{foreign}", leases(&self.own.queue)))
    }
}

/// Takes a slot on each name whose queue admits the claim.
pub(super) async fn take(shared: &Shared, client: &Client) -> FaultResult<Taken> {
    let Mode::Slots(slots) = shared.request.mode else { return Ok(Taken::All) };
    let patience = PATIENCE.0.min(shared.request.ttl / PATIENCE.1);
    let given_up_at = shared.ensemble.clock.now() + patience;
    for _ in 0..RACES {
        let Some(places) = read(shared, client).await? else { return Ok(Taken::Gone) };
        let (mut without_ticket, mut free, mut late) = (Vec::new(), Vec::new(), Vec::new());
        let mut wait = Wait::default();
        for place in &places {
            match place.next(shared, slots.get()) {
                Step::Known(number) => shared.set_slot(&place.own.queue, number),
                Step::Ticket => without_ticket.push(place),
                Step::Slot(number) => free.push((place, number)),
                Step::Wait(more) => wait.add(more),
                Step::Late => late.push(place.own.clone()),
                Step::Gone => return Ok(Taken::Gone),
            }
        }
        if !without_ticket.is_empty() {
            make_tickets(shared, client, &without_ticket).await?;
        } else if !free.is_empty() {
            make_slots(shared, client, &free).await?;
        } else if late.is_empty() && wait.hints.is_empty() {
            return Ok(Taken::All);
        } else if wait.hints.is_empty() && shared.ensemble.clock.now() < given_up_at {
            let taken = late.iter().map(|own| Box::pin(all_ahead_taken(shared, client, own)));
            let taken = async {
                if select_all(taken).await.0.is_err() {
                    // The next look shows whether the session is over.
                    tokio::time::sleep(RETRY).await;
                }
            };
            tokio::select! {
                () = taken => {}
                () = shared.ensemble.clock.sleep_until(given_up_at) => {}
            }
        } else {
            let late = late.into_iter().map(Hint::Ahead).collect();
            wait.add(Wait { ahead: 1, hints: late, first: None });
            return Ok(Taken::After(wait));
        }
    }
    Err(Fault::Refusal(ErrorKind::Unavailable, "others take the slots all the time".into()))
}

/// Reads all names on which the claim has no slot in one exchange; `None` if an entry of its own is gone.
async fn read(shared: &Shared, client: &Client) -> FaultResult<Option<Vec<SlotQueue>>> {
    let joins = shared.ensemble.joins_semaphores();
    let own: Vec<Own> = shared.own().into_iter().filter(|own| own.slot.is_none()).collect();
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
    for ((record, queue, leases, tickets), own) in asked.into_iter().zip(&own) {
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
        places.push(SlotQueue { own: own.clone(), note, version: stat.version, queue, leases, tickets });
    }
    Ok(Some(places))
}

/// Joins the queues of Curator's semaphores at `places`, in one step.
async fn make_tickets(shared: &Shared, client: &Client, places: &[&SlotQueue]) -> FaultResult<()> {
    let mut step = client.new_multi_writer();
    for place in places {
        let ticket = format!("{}/{}", tickets(&place.own.queue), ticket_stem(shared.request.id));
        step.add_create(&ticket, b"", &shared.ensemble.ephemeral())?;
    }
    match step.commit().await {
        Ok(_) => Ok(()),
        Err(MultiWriteError::OperationFailed { source: ZkError::NoNode, .. }) => {
            for place in places {
                make_folders(client, shared.ensemble.acls(), &tickets(&place.own.queue)).await?;
            }
            Ok(())
        }
        Err(error) => Err(ZkError::from(error).into()),
    }
}

/// Takes the numbered slots, all in one step, unless others are first.
async fn make_slots(shared: &Shared, client: &Client, free: &[(&SlotQueue, u32)]) -> FaultResult<()> {
    let options = CreateMode::Ephemeral.with_acls(shared.ensemble.acls());
    let mut step = client.new_multi_writer();
    for (place, number) in free {
        let note = Note { slot: Some(*number), ..place.note.clone() };
        step.add_create(&slot_path(&place.own.queue, *number), b"", &options)?;
        step.add_set_data(&place.own.nodes[0], &note.to_bytes(), Some(place.version))?;
        for ticket in place.own_tickets(shared) {
            step.add_delete(&ticket, None)?;
        }
    }
    match step.commit().await {
        Ok(_) => {
            for (place, number) in free {
                shared.set_slot(&place.own.queue, *number);
            }
            Ok(())
        }
        Err(MultiWriteError::OperationFailed {
            source: ZkError::NodeExists | ZkError::BadVersion, ..
        }) => Ok(()),
        Err(MultiWriteError::OperationFailed { source: ZkError::NoNode, .. }) => {
            for (place, _) in free {
                make_folders(client, shared.ensemble.acls(), &leases(&place.own.queue)).await?;
            }
            Ok(())
        }
        Err(error) => Err(ZkError::from(error).into()),
    }
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
