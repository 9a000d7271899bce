//! Showing a queue: to a claim in it, with the entries that a decision needs, or all of it, with the processes outside of it.

use std::sync::Arc;

use super::directory::{Directory, identity_of};
use super::entries::{Document, State, Stored};
use super::inspect;
use super::locker::Locks;
use super::seat::{Place, Seat};
use super::storage::QueueFile;
use crate::lock::{ClaimId, Entry, LockName, Mode, Moment};
use crate::net::fault::FaultResult;
use crate::queue::store::{About, Item, Key, Note, Queue};

/// Looks at the queues of a claim, under their guards, and takes its lock files if it is its turn.
pub(super) fn look_under(seat: &mut Seat) -> FaultResult<(Vec<Queue>, Option<Note>)> {
    let mut documents =
        seat.places.iter().map(|place| place.queue.read()).collect::<FaultResult<Vec<_>>>()?;
    let mut note = None;
    for (place, document) in seat.places.iter().zip(&mut documents) {
        match document.at(place.token) {
            Some(own) if own.in_queue() => {
                note = note.or_else(|| own.details()?.asked.map(Note::Asked));
            }
            own => return Ok((Vec::new(), own.and_then(|own| removal(own)))),
        }
    }
    let living = tidy(&seat.places, seat.mode, &mut documents)?;
    Ok((settle(seat, &mut documents, &living)?, note))
}

/// Returns the entries that a decision on the entry `token` needs, which come first, and those of claims that were
/// removed: a process that left them may have died.
fn needed(document: &Document, token: u64, mode: Mode) -> Vec<&Stored> {
    let ahead: Vec<&Stored> = document.queue().take_while(|entry| entry.token != token).collect();
    let first = if let Mode::Slots(n) = mode { usize::try_from(n.get()).unwrap_or(usize::MAX) } else { 1 };
    let other = ahead.iter().rev().find(|entry| entry.mode() != mode);
    let shown = ahead.iter().take(first).chain(ahead.last()).chain(other).copied();
    shown.chain(document.entries.iter().filter(|entry| !entry.in_queue())).collect()
}

/// Buries the dead among the entries that a decision needs on a claim with these places. Returns the tokens of the living
/// ones in each queue.
pub(super) fn tidy(places: &[Place], mode: Mode, documents: &mut [Document]) -> FaultResult<Vec<Vec<u64>>> {
    let mut all = Vec::new();
    for (place, document) in places.iter().zip(documents) {
        let mut living = vec![place.token];
        loop {
            let each = needed(document, place.token, mode);
            let Some(next) = each.into_iter().find(|entry| !living.contains(&entry.token)) else { break };
            let token = next.token;
            match place.queue.life(next)? {
                Some(_) => living.push(token),
                None => place.queue.bury(document, token)?,
            }
        }
        all.push(living);
    }
    Ok(all)
}

/// Takes the lock files if it is the claim's turn, writes the queues that have changed, and shows them.
pub(super) fn settle(
    seat: &mut Seat,
    documents: &mut [Document],
    living: &[Vec<u64>],
) -> FaultResult<Vec<Queue>> {
    let held = seat.holds;
    seat.take(documents)?;
    let mut changed = seat.places.iter().zip(&mut *documents).filter(|(_, document)| document.changed);
    let written = changed.try_for_each(|(place, document)| place.queue.write(document));
    if written.is_err() && !held {
        seat.release();
    }
    written?;
    let each = || seat.places.iter().zip(&*documents);
    if seat.holds && !held && matches!(seat.mode, Mode::Slots(_)) {
        for (place, document) in each() {
            // The next claim is the first of the waiters now, and must watch every holder. After a failure it looks
            // again only when a claim that it watches ends.
            let waits = |entry: &&Stored| entry.token > place.token && entry.state != State::Held;
            let _ = place.queue.wake(document.queue().find(waits));
        }
    }
    each().zip(living).map(|((place, document), living)| for_claim(document, place, seat, living)).collect()
}

/// Returns the notice that another process left in a removed entry.
fn removal(own: &Stored) -> Option<Note> {
    let by = own.details().and_then(|details| details.by);
    match own.state {
        State::Superseded => by.map(Note::Superseded),
        State::Evicted => Some(Note::Evicted(by)),
        State::Waiting | State::Blocked | State::Held => None,
    }
}

/// Returns what a queue shows to the claim of `seat`, which has the entry of `place` in it.
fn for_claim(document: &Document, place: &Place, seat: &Seat, living: &[u64]) -> FaultResult<Queue> {
    let (file, name) = (&place.queue, &place.queue.lock);
    let mut items = Vec::new();
    for (at, entry) in document.queue().enumerate().filter(|(_, entry)| living.contains(&entry.token)) {
        items.push(entry.item(name, at, file.fifo_of(entry)?));
    }
    let is_blocked = |entry: &Stored| entry.state == State::Blocked;
    if document.queue().any(|entry| entry.token == place.token && is_blocked(entry)) {
        let mut stranger = foreign(name, inspect::holder_of(file, place.busy())?);
        stranger.mode = Some(seat.mode).filter(|_| place.slot.is_some());
        for item in &mut items {
            item.at += 1;
        }
        items.insert(0, stranger);
    } else if let Some(about) = items.first_mut().and_then(|item| item.about.as_mut())
        && document.queue().next().is_some_and(is_blocked)
    {
        // The first entry is not the holder.
        about.entry = inspect::holder_of(file, &place.hold)?;
    }
    Ok(Queue { name: name.clone(), items })
}

/// Returns the item of a process outside of the queue of `name`.
fn foreign(name: &LockName, entry: Entry) -> Item {
    let text = entry.pid.map(|pid| pid.to_string()).unwrap_or_default();
    let about = About { entry, ..About::foreign(name, ClaimId::from_number(0), String::new()) };
    Item::foreign(Key { order: 0, text }, None, about)
}

/// Returns the whole queue of `name`. With `probe` it also finds holders in other PID namespaces, by locking the file
/// for a moment.
pub(super) async fn whole(
    directory: &Arc<Directory>,
    name: &LockName,
    probe: bool,
    deadline: Moment,
) -> FaultResult<Queue> {
    let file = QueueFile::open(directory, name, false)?;
    let _guard = match &file {
        Some(file) => Some(file.guard(deadline).await?),
        None => None,
    };
    let locks = Locks::read();
    // The processes that have the lock file locked for a claim: their pids in this namespace.
    let (mut owners, mut items, mut mode, mut is_blocked) = (Vec::new(), Vec::new(), None, false);
    if let Some(file) = file {
        for entry in &file.read()?.entries {
            let Some(fifo) = file.life(entry)? else { continue };
            if entry.state == State::Held {
                let fifo = identity_of(&directory.stat(file.files.canonical(), &fifo)?);
                owners.push(locks.lockers(fifo).first().map(|locker| locker.pid));
            }
            is_blocked |= entry.state == State::Blocked;
            if entry.in_queue() {
                mode = mode.or(Some(entry.mode()));
                items.push(entry.item(name, 0, file.fifo_of(entry)?));
            }
        }
    }
    for entry in inspect::strangers(directory, name, &locks, &owners, probe, is_blocked)? {
        let mut item = foreign(name, entry);
        // A shared lock beside slots is that of a process that took one.
        if item.mode == Some(Mode::Shared) && matches!(mode, Some(Mode::Slots(_))) {
            item.mode = mode;
        }
        items.insert(owners.len(), item);
    }
    for (at, item) in items.iter_mut().enumerate() {
        item.at = at;
    }
    Ok(Queue { name: name.clone(), items })
}
