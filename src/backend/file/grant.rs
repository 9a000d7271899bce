//! Granting: which claims a claim waits for, and taking the lock files when its turn comes.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::fifo::Life;
use super::hold::Hold;
use super::queue::{Fixed, Record, State};
use super::storage::{QueueFile, ReadQueue};
use crate::lock::{Mode, queue};
use crate::net::fault::FaultResult;

/// A claim in one of its queues.
#[derive(Debug)]
pub(super) struct QueuedClaim {
    pub(super) queue: Arc<QueueFile>,
    /// The lock file.
    pub(super) hold: Hold,
    /// With slots: the slot file that the claim has locked or waits for.
    pub(super) slot: Option<(u32, Hold)>,
    /// Where its record begins, and where its part of the queue ends.
    pub(super) at: u64,
    pub(super) end: u64,
    /// The fixed part of its record.
    pub(super) fixed: Fixed,
}

impl QueuedClaim {
    /// Returns the files that carry the hold.
    pub(super) fn holds(&self) -> impl Iterator<Item = &Hold> {
        std::iter::once(&self.hold).chain(self.slot.as_ref().map(|(_, slot)| slot))
    }

    /// Stops waiting in threads, for a claim that leaves.
    pub(super) fn stop_waiting(&mut self) {
        self.hold.abandon();
        self.slot = None;
    }
}

/// The claims ahead of a claim in one queue.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    /// Whether another claim must end first.
    pub(super) waits: bool,
    /// The FIFOs of the claims that must end before that can change.
    pub(super) watch: Vec<OwnedFd>,
}

fn slots_of(mode: Mode) -> usize {
    if let Mode::Slots(n) = mode { usize::try_from(n.get()).unwrap_or(usize::MAX) } else { 0 }
}

/// Returns which claims before `at` a claim of `mode` waits for; buries the dead ones that it meets.
///
/// This is [`queue::held`] without looking at every record. The holders are a prefix of the queue, and each waiter
/// watches the one before it. The first waiter for slots watches every holder. So every death is noticed by the claim
/// that it concerns.
pub(super) fn ahead(file: &QueueFile, queue: &mut ReadQueue, mode: Mode, at: u64) -> FaultResult<Ahead> {
    loop {
        let before: Vec<usize> = (0..queue.image.records.len())
            .filter(|i| queue.image.records[*i].at < at && queue.image.records[*i].fixed.state.in_queue())
            .collect();
        let slots = slots_of(mode);
        if slots > 0 && before.len() <= slots {
            return among_holders(file, queue, &before, slots);
        }
        let conflicts =
            |i: &usize| mode != Mode::Shared || queue.image.records[*i].fixed.mode == Mode::Exclusive;
        let Some(nearest) = before.into_iter().rev().find(conflicts) else { return Ok(Ahead::default()) };
        if let Some(fifo) = alive(file, queue, nearest)? {
            return Ok(Ahead { waits: true, watch: vec![fifo] });
        }
    }
}

fn among_holders(
    file: &QueueFile,
    queue: &mut ReadQueue,
    before: &[usize],
    slots: usize,
) -> FaultResult<Ahead> {
    let mut watch = Vec::with_capacity(before.len());
    for index in before.iter().rev() {
        watch.extend(alive(file, queue, *index)?);
    }
    Ok(Ahead { waits: watch.len() >= slots, watch })
}

/// Returns the FIFO of the record at `index` if its claim lives. Otherwise buries the record, in the image too.
fn alive(file: &QueueFile, queue: &mut ReadQueue, index: usize) -> FaultResult<Option<OwnedFd>> {
    let record = &queue.image.records[index];
    match file.life(queue, record)? {
        Life::Alive(fifo) => Ok(Some(fifo)),
        Life::Dead => {
            file.bury(queue, record)?;
            queue.image.records.remove(index);
            Ok(None)
        }
    }
}

/// Buries the dead at the front of the queue. A killed shared holder blocks no claim, so its record would stay
/// otherwise.
pub(super) fn bury_front(file: &QueueFile, queue: &mut ReadQueue) -> FaultResult<()> {
    while !queue.image.records.is_empty() && alive(file, queue, 0)?.is_none() {}
    Ok(())
}

/// Returns the first live records that hold by the rule; stops probing at the first that does not.
pub(super) fn holders(file: &QueueFile, queue: &ReadQueue) -> FaultResult<Vec<Record>> {
    let (mut modes, mut holders) = (Vec::new(), Vec::new());
    for record in queue.image.records.iter().filter(|r| r.fixed.state.in_queue()) {
        if let Life::Alive(_) = file.life(queue, record)? {
            modes.push(record.fixed.mode);
            if queue::held(&modes) < modes.len() {
                break;
            }
            holders.push(record.clone());
        }
    }
    Ok(holders)
}

/// Wakes the waiters that the record `gone` held up. Continues after a failure, so that every waiter that can be woken is.
pub(super) fn wake_behind(file: &QueueFile, queue: &ReadQueue, gone: &Record) -> FaultResult<()> {
    let mut result = Ok(());
    let waiting = |r: &&Record| r.at > gone.at && matches!(r.fixed.state, State::Waiting | State::Blocked);
    for record in queue.image.records.iter().filter(waiting) {
        result = result.and(file.wake(queue, record));
        if record.fixed.mode != Mode::Shared {
            break;
        }
    }
    result
}

/// Takes the lock files of all places, or none. Returns the index of the first place with a file that a process outside
/// of the queue has locked.
pub(super) fn take(places: &mut [QueuedClaim], queues: &[ReadQueue]) -> FaultResult<Option<usize>> {
    for index in 0..places.len() {
        let taken = take_one(&mut places[index], &queues[index]);
        if !matches!(taken, Ok(true)) {
            release(places);
            return taken.map(|_| Some(index));
        }
    }
    Ok(None)
}

/// Releases the lock files that were taken; a thread that waits for one continues.
pub(super) fn release(places: &mut [QueuedClaim]) {
    for place in places {
        place.hold.unlock();
        if let Some((_, slot)) = &mut place.slot {
            slot.unlock();
        }
    }
}

/// Releases the lock files that were taken, and stops waiting in threads.
pub(super) fn withdraw(places: &mut [QueuedClaim]) -> FaultResult<()> {
    release(places);
    for place in places {
        place.hold.give_up(&place.queue.directory)?;
        place.slot = None;
    }
    Ok(())
}

fn take_one(place: &mut QueuedClaim, queue: &ReadQueue) -> FaultResult<bool> {
    let directory = Arc::clone(&place.queue.directory);
    let exclusive = place.fixed.mode == Mode::Exclusive;
    if !place.hold.try_lock(&directory, exclusive)? {
        return Ok(false);
    }
    match place.fixed.mode {
        Mode::Slots(n) => take_slot(place, queue, n.get()),
        _ => Ok(true),
    }
}

fn take_slot(place: &mut QueuedClaim, queue: &ReadQueue, slots: u32) -> FaultResult<bool> {
    let directory = Arc::clone(&place.queue.directory);
    if let Some((_, slot)) = &mut place.slot
        && slot.try_lock(&directory, true)?
    {
        return Ok(true);
    }
    let used = |k: u32| {
        let held = |r: &Record| r.fixed.state == State::Held && r.fixed.slot == k;
        queue.image.records.iter().any(held)
    };
    let mut first = None;
    for number in (1..=slots).filter(|k| !used(*k)) {
        let mut slot = Hold::open(&directory, place.queue.files.slot(number))?;
        if slot.try_lock(&directory, true)? {
            place.slot = Some((number, slot));
            return Ok(true);
        }
        first.get_or_insert((number, slot));
    }
    if place.slot.is_none() {
        place.slot = first;
    }
    Ok(false)
}
