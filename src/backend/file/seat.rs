//! The open files of a claim of this process: its FIFO, and the lock files.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use super::entries::{Document, State, Stored};
use super::fifo::{Listener, Watch};
use super::guard::{self, Guard, Pending};
use super::hold::Hold;
use super::presence::Presence;
use super::storage::QueueFile;
use super::token;
use crate::lock::{LossReason, Mode, Moment};
use crate::net::fault::FaultResult;

/// A claim in one of its queues.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) queue: Arc<QueueFile>,
    /// The lock file.
    pub(super) hold: Hold,
    /// With slots: the slot file that the claim has locked or waits for.
    slot: Option<(u32, Hold)>,
    pub(super) token: u64,
}

/// A claim of this process.
#[derive(Debug)]
pub(super) struct Seat {
    pub(super) mode: Mode,
    /// In the order of the names.
    pub(super) places: Vec<Place>,
    pub(super) fifo: Option<Arc<OwnedFd>>,
    /// The name of the FIFO, unless it is kept.
    pub(super) own_fifo: Option<String>,
    pub(super) listener: Option<Arc<Listener>>,
    pub(super) watches: Vec<Arc<Watch>>,
    /// When it took the lock files.
    pub(super) held_at: Option<Moment>,
    /// The kernel's events about the files of a hold.
    pub(super) presence: Option<Arc<Presence>>,
    /// Since when it has not been able to do its part.
    pub(super) failing_since: Option<Moment>,
}

impl Place {
    pub(super) fn open(queue: &Arc<QueueFile>, token: u64) -> FaultResult<Self> {
        let hold = Hold::open(&queue.directory, queue.files.canonical().to_owned())?;
        Ok(Self { queue: Arc::clone(queue), hold, slot: None, token })
    }

    /// Returns the files that carry the hold.
    pub(super) fn holds(&self) -> impl Iterator<Item = &Hold> {
        std::iter::once(&self.hold).chain(self.slot.as_ref().map(|(_, slot)| slot))
    }

    /// Returns whether the lock file is taken, and a slot is missing.
    pub(super) fn lacks_slot(&self) -> bool {
        self.slot.is_some()
    }

    /// Returns the file that another process has locked.
    pub(super) fn busy(&self) -> &Hold {
        self.slot.as_ref().map_or(&self.hold, |(_, slot)| slot)
    }

    /// Waits, in a thread, for the file that another process has locked. A slot is tried only after the lock file is
    /// locked. So if there is a slot, the slot is the one to wait for.
    pub(super) fn wait(&mut self, mode: Mode) -> FaultResult<Arc<Pending>> {
        let directory = &self.queue.directory;
        match &mut self.slot {
            Some((_, slot)) => slot.wait(directory, true),
            None => self.hold.wait(directory, mode == Mode::Exclusive),
        }
    }

    fn unlock(&mut self) {
        self.hold.unlock();
        if let Some((_, slot)) = &mut self.slot {
            slot.unlock();
        }
    }

    fn take(&mut self, mode: Mode, document: &Document) -> FaultResult<bool> {
        if !self.hold.try_lock(&self.queue.directory, mode == Mode::Exclusive)? {
            return Ok(false);
        }
        match mode {
            Mode::Slots(n) => self.take_slot(document, n.get()),
            _ => Ok(true),
        }
    }

    fn take_slot(&mut self, document: &Document, slots: u32) -> FaultResult<bool> {
        let directory = &self.queue.directory;
        if let Some((_, slot)) = &mut self.slot
            && slot.try_lock(directory, true)?
        {
            return Ok(true);
        }
        let used = |number| document.queue().any(|entry| entry.state == State::Held && entry.slot == number);
        let mut first = None;
        for number in (1..=slots).filter(|number| !used(*number)) {
            let mut slot = Hold::open(directory, self.queue.files.slot(number))?;
            if slot.try_lock(directory, true)? {
                self.slot = Some((number, slot));
                return Ok(true);
            }
            first.get_or_insert((number, slot));
        }
        if self.slot.is_none() {
            self.slot = first;
        }
        Ok(false)
    }
}

impl Seat {
    pub(super) fn new(mode: Mode, places: Vec<Place>) -> Self {
        Self {
            mode,
            places,
            fifo: None,
            own_fifo: None,
            listener: None,
            watches: Vec::new(),
            held_at: None,
            presence: None,
            failing_since: None,
        }
    }

    pub(super) fn queues(&self) -> Vec<Arc<QueueFile>> {
        self.places.iter().map(|place| Arc::clone(&place.queue)).collect()
    }

    /// Takes the lock files of all queues if it is the claim's turn, and notes that in the entries, or which of the
    /// files a process outside of the queue has. All entries that are needed for the decision live. Returns whether an
    /// entry was changed.
    pub(super) fn take(&mut self, documents: &mut [Document], now: Moment) -> FaultResult<bool> {
        let may = self.places.iter().zip(&*documents).all(|(place, document)| document.may_hold(place.token));
        if self.held_at.is_some() || !may {
            return Ok(false);
        }
        for (index, document) in documents.iter_mut().enumerate() {
            let place = &mut self.places[index];
            let taken = place.take(self.mode, document);
            if matches!(taken, Ok(true)) {
                continue;
            }
            let own = document.at(place.token);
            self.release();
            let blocked =
                |own: &mut Stored| std::mem::replace(&mut own.state, State::Blocked) != State::Blocked;
            return taken.map(|_| own.is_some_and(blocked));
        }
        self.held_at = Some(now);
        for (place, document) in self.places.iter().zip(documents) {
            if let Some(own) = document.at(place.token) {
                let slot = place.slot.as_ref().map_or(0, |(number, _)| *number);
                (own.state, own.since, own.slot) = (State::Held, token::wall(), slot);
            }
        }
        Ok(true)
    }

    /// Releases the lock files, even if other processes have the descriptors.
    pub(super) fn release(&mut self) {
        self.held_at = None;
        self.places.iter_mut().for_each(Place::unlock);
    }

    /// Unlocks and closes the FIFO, which ends the claim, even if a task that waits, or a process that was forked a moment ago, still
    /// has it.
    fn close_fifo(&mut self) {
        self.listener = None;
        if let Some(fifo) = self.fifo.take() {
            guard::unlock(&fifo);
        }
    }

    /// Ends a claim that leaves, whose guards are given.
    pub(super) fn end(mut self, guards: Option<Vec<Guard>>) {
        self.release();
        drop(guards);
        // This wakes the successor, which then finds the guard and the locks free.
        self.close_fifo();
        // The kernel often puts the successor on this processor, where it would wait until this process has ended.
        rustix::thread::sched_yield();
        if let (Some(place), Some(fifo)) = (self.places.first(), &self.own_fifo) {
            place.queue.directory.unlink(fifo);
        }
        // The rest is dropped last, since the kernel takes time to dismantle it.
    }

    /// Stops asking for the lock files, for a claim that was removed.
    pub(super) fn give_up(&mut self) {
        self.release();
        for place in &mut self.places {
            place.hold.abandon();
            place.slot = None;
        }
    }

    /// Returns why the claim is lost, if one of its files is not the one at its path any more. A waiter may leave that
    /// to its renewals: with `is_cheap` only an unlinked queue counts.
    pub(super) fn loss(&self, is_cheap: bool) -> FaultResult<Option<LossReason>> {
        let lost = |path: PathBuf| {
            let path = path.display();
            Some(LossReason::Replaced(format!("the lock file {path} was removed or replaced")))
        };
        let holds = self.held_at.is_some();
        for place in &self.places {
            let queue = &place.queue;
            if if is_cheap && !holds { queue.is_unlinked()? } else { queue.is_replaced()? } {
                return Ok(lost(queue.path()));
            }
            for hold in place.holds().filter(|_| holds) {
                if hold.is_replaced(&queue.directory)? {
                    return Ok(lost(queue.directory.path_of(&hold.name)));
                }
            }
        }
        Ok(None)
    }

    /// Returns other descriptors of the open files that carry the hold.
    pub(super) fn anchors(&self) -> FaultResult<Vec<OwnedFd>> {
        let each = self.places.iter().flat_map(|place| place.holds().map(move |hold| (place, hold)));
        each.map(|(place, hold)| hold.anchor(&place.queue.directory)).collect()
    }

    /// Returns the paths of all its files.
    pub(super) fn paths(&self) -> Vec<PathBuf> {
        let paths = |place: &Place| {
            let holds: Vec<_> = place.holds().map(|hold| place.queue.directory.path_of(&hold.name)).collect();
            [vec![place.queue.path()], holds].concat()
        };
        self.places.iter().flat_map(paths).collect()
    }

    /// Updates the times of a hold's old files, so that they look used.
    pub(super) fn freshen(&self) {
        for place in self.places.iter().filter(|_| self.held_at.is_some()) {
            place.queue.freshen();
            place.holds().for_each(Hold::freshen);
        }
    }
}

impl Drop for Seat {
    /// Processes that inherited the lock files keep them.
    fn drop(&mut self) {
        self.close_fifo();
    }
}
