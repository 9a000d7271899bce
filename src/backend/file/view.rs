//! Showing a queue: to a claim in it, with the entries that a decision needs, or all of it, with the processes outside of it.

use std::slice::from_ref;
use std::sync::Arc;

use super::contents::{self, Contents};
use super::directory::{Directory, identity_of};
use super::entries::{State, Stored};
use super::inspect;
use super::locker::Locks;
use super::seat::{Place, Seat};
use super::storage::QueueFile;
use crate::lock::{LockName, Mode, Moment};
use crate::net::fault::FaultResult;
use crate::queue::store::{Item, Note, Queue};

/// Looks at the queues of a claim, and takes its lock files if it is its turn.
pub(super) fn look(seat: &mut Seat, queues: &mut [Contents]) -> FaultResult<(Vec<Queue>, Option<Note>)> {
    let mut note = None;
    for (place, queue) in seat.places.iter().zip(&mut *queues) {
        match queue.at(place.token) {
            Some(own) if own.in_queue() => note = note.or_else(|| own.asked.clone().map(Note::Asked)),
            own => return Ok((Vec::new(), own.and_then(|own| own.removal()))),
        }
        queue.tidy(place.token, seat.mode)?;
    }
    Ok((settle(seat, queues)?, note))
}

/// Takes the lock files if it is the claim's turn, writes the tidied queues that have changed, and shows them.
pub(super) fn settle(seat: &mut Seat, queues: &mut [Contents]) -> FaultResult<Vec<Queue>> {
    let held = seat.holds;
    let mut settled = seat.take(queues);
    for queue in queues.iter_mut().filter(|queue| queue.changed) {
        settled = settled.and_then(|()| queue.write());
    }
    if settled.is_err() && !held {
        seat.release();
    }
    settled?;
    if seat.holds && !held && matches!(seat.mode, Mode::Slots(_)) {
        for (place, queue) in seat.places.iter().zip(&*queues) {
            // The next claim is the first of the waiters now, and must watch every holder. After a failure it looks
            // again only when a claim that it watches ends.
            let mut waiters =
                queue.queue().filter(|entry| entry.token > place.token && entry.state != State::Held);
            let next = waiters.next().map(|entry| entry.token);
            let _ = queue.wake(|entry| Some(entry.token) == next);
        }
    }
    seat.places.iter().zip(queues).map(|(place, queue)| for_claim(queue, place, seat)).collect()
}

/// Returns what a queue shows to the claim of `seat`, which has the entry of `place` in it.
fn for_claim(queue: &Contents, place: &Place, seat: &Seat) -> FaultResult<Queue> {
    let (file, name) = (&queue.file, &queue.file.lock);
    let mut items = Vec::new();
    for (at, entry) in queue.queue().enumerate().filter(|(_, entry)| queue.living.contains(&entry.token)) {
        items.push(entry.item(name, at, queue.fifo_of(entry)?));
    }
    let is_blocked = |entry: &Stored| entry.state == State::Blocked;
    if queue.queue().any(|entry| entry.token == place.token && is_blocked(entry)) {
        let mut stranger = inspect::holder_of(file, place.busy())?;
        stranger.mode = Some(seat.mode).filter(|_| place.slot.is_some());
        for item in &mut items {
            item.at += 1;
        }
        items.insert(0, stranger);
    } else if let Some(first) = items.first_mut()
        && queue.queue().next().is_some_and(is_blocked)
    {
        // The first entry is not the holder.
        first.about = inspect::holder_of(file, &place.hold)?.about;
    }
    Ok(Queue { name: name.clone(), items })
}

/// Returns the whole queue of `name`. With `probe` it also finds holders in other PID namespaces, by locking the file
/// for a moment.
pub(super) async fn whole(
    directory: &Arc<Directory>,
    name: &LockName,
    probe: bool,
    deadline: Moment,
) -> FaultResult<Queue> {
    let (queues, locks) = loop {
        let queues = contents::open(directory, from_ref(name), false, deadline).await?;
        let locks = Locks::read(directory);
        // A claim that has made the queue meanwhile may have the lock file by now.
        if !queues.is_empty() || QueueFile::open(directory, name, false)?.is_none() {
            break (queues, locks);
        }
    };
    // The processes that have the lock file locked for a claim: their pids in this namespace.
    let (mut owners, mut items, mut mode, mut is_blocked) = (Vec::new(), Vec::new(), None, false);
    for queue in &queues {
        for entry in &queue.entries {
            let Some(fifo) = queue.life(entry)? else { continue };
            if entry.state == State::Held {
                let fifo = identity_of(&directory.stat(queue.file.files.canonical(), &fifo)?);
                owners.push(locks.lockers(fifo).first().map(|locker| locker.pid));
            }
            is_blocked |= entry.state == State::Blocked;
            if entry.in_queue() {
                mode = mode.or(Some(entry.mode()));
                items.push(entry.item(name, 0, queue.fifo_of(entry)?));
            }
        }
    }
    for mut item in inspect::strangers(directory, name, &locks, &owners, probe, is_blocked)? {
        // A shared lock beside slots is that of a process that took one.
        if item.mode == Some(Mode::Shared) && matches!(mode, Some(Mode::Slots(_))) {
            item.mode = mode;
        }
        items.insert(owners.len(), item);
    }
    Ok(queue_of(name, items))
}

/// Returns the processes that have the lock file locked, as the queue of `name`, whose own file is another user's.
pub(super) fn outside(directory: &Directory, name: &LockName) -> FaultResult<Queue> {
    Ok(queue_of(name, inspect::strangers(directory, name, &Locks::read(directory), &[], false, false)?))
}

fn queue_of(name: &LockName, mut items: Vec<Item>) -> Queue {
    for (at, item) in items.iter_mut().enumerate() {
        item.at = at;
    }
    Queue { name: name.clone(), items }
}
