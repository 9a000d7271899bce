//! Showing a queue: the entries that a decision needs, or all of them, and the processes outside of it.

use std::cell::LazyCell;
use std::sync::Arc;

use super::directory::Directory;
use super::entries::{Document, State, Stored};
use super::fifo::Life;
use super::inspect;
use super::locker::Locks;
use super::seat::{Place, Seat};
use super::storage::QueueFile;
use crate::lock::{ClaimId, Entry, LockName, Mode, Moment};
use crate::net::fault::FaultResult;
use crate::queue::store::{About, Item, Key, Queue};

/// Returns the entries that a decision on the entry `token` needs, which come first, and those of claims that were
/// removed: a process that left them may have died.
fn needed(document: &Document, token: u64, mode: Mode) -> Vec<&Stored> {
    let ahead: Vec<&Stored> = document.queue().take_while(|entry| entry.token != token).collect();
    let first = if let Mode::Slots(n) = mode { usize::try_from(n.get()).unwrap_or(usize::MAX) } else { 1 };
    let other = ahead.iter().rev().find(|entry| entry.mode() != mode);
    let shown = ahead.iter().take(first).chain(ahead.last()).chain(other).copied();
    shown.chain(document.entries.iter().filter(|entry| !entry.in_queue())).collect()
}

/// Buries the dead among the entries that a decision on the entry of `place` needs. Returns the tokens of the living
/// ones, and whether there were dead ones.
pub(super) fn tidy(document: &mut Document, place: &Place, mode: Mode) -> FaultResult<(Vec<u64>, bool)> {
    let (mut living, mut changed) = (vec![place.token], false);
    loop {
        let each = needed(document, place.token, mode);
        let Some(next) = each.into_iter().find(|entry| !living.contains(&entry.token)) else {
            return Ok((living, changed));
        };
        let token = next.token;
        if let Life::Dead = place.queue.life(next)? {
            place.queue.bury(document, token)?;
            changed = true;
        } else {
            living.push(token);
        }
    }
}

/// Returns what a queue shows to the claim of `seat`, which has the entry of `place` in it.
pub(super) fn for_claim(
    document: &Document,
    place: &Place,
    seat: &Seat,
    living: &[u64],
) -> FaultResult<Queue> {
    let (file, name) = (&place.queue, &place.queue.lock);
    let mut items = Vec::new();
    for (at, entry) in document.queue().enumerate().filter(|(_, entry)| living.contains(&entry.token)) {
        items.push(entry.item(name, at, file.fifo_of(entry)?));
    }
    let is_blocked = |entry: &Stored| entry.state == State::Blocked;
    if document.queue().any(|entry| entry.token == place.token && is_blocked(entry)) {
        let mut stranger = foreign(name, inspect::holder_of(file, place.busy().identity()));
        stranger.mode = Some(seat.mode).filter(|_| place.lacks_slot());
        for item in &mut items {
            item.at += 1;
        }
        items.insert(0, stranger);
    } else if let Some(about) = items.first_mut().and_then(|item| item.about.as_mut())
        && document.queue().next().is_some_and(is_blocked)
    {
        // The first entry is not the holder.
        about.entry = inspect::holder_of(file, place.hold.identity());
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
    all_of(directory, name, file.as_ref(), probe)
}

fn all_of(
    directory: &Directory,
    name: &LockName,
    file: Option<&QueueFile>,
    probe: bool,
) -> FaultResult<Queue> {
    let locks: LazyCell<Locks> = LazyCell::new(Locks::read);
    // The processes that have the lock file locked for a claim: their pids in this namespace.
    let (mut owners, mut items, mut mode, mut is_blocked) = (Vec::new(), Vec::new(), None, false);
    if let Some(file) = file {
        for entry in &file.read()?.entries {
            let Life::Alive(fifo) = file.life(entry)? else { continue };
            if entry.state == State::Held {
                owners.push(file.owner(&fifo, &locks)?);
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
