//! The open files of a claim of this process: its FIFO, and the lock files.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt as _, SelectAll, select_all};
use tokio::io::unix::AsyncFd;

use super::contents::Contents;
use super::directory::Directory;
use super::entries::State;
use super::events::Events;
use super::fault;
use super::fifo;
use super::flock;
use super::header::wall;
use super::hold::Hold;
use super::storage::QueueFile;
use crate::lock::{LossReason, Mode};
use crate::net::fault::FaultResult;
use crate::queue::store::Target;

/// A claim in one of its queues.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) queue: Arc<QueueFile>,
    /// The lock file.
    pub(super) hold: Hold,
    /// With slots: the slot file that the claim has locked or waits for.
    pub(super) slot: Option<(u32, Hold)>,
    pub(super) token: u64,
}

/// A claim of this process.
#[derive(Debug)]
pub(super) struct Seat {
    pub(super) mode: Mode,
    /// In the order of the names.
    pub(super) places: Vec<Place>,
    pub(super) fifo: Option<Arc<OwnedFd>>,
    /// The name of the FIFO, if it ends with the claim.
    pub(super) fifo_name: Option<String>,
    /// The FIFO, as the task listens to it that follows the claim.
    listener: Option<Arc<AsyncFd<Arc<OwnedFd>>>>,
    /// The FIFOs of other claims for whose end it waits.
    watches: Vec<Arc<AsyncFd<OwnedFd>>>,
    /// Whether it has the lock files.
    pub(super) holds: bool,
    /// The kernel's events about the files of a hold.
    events: Option<Arc<Events>>,
}

impl Place {
    /// Returns the files that carry the hold.
    pub(super) fn holds(&self) -> impl Iterator<Item = &Hold> {
        std::iter::once(&self.hold).chain(self.slot.as_ref().map(|(_, slot)| slot))
    }

    /// Returns the file that another process has locked.
    pub(super) fn busy(&self) -> &Hold {
        self.slot.as_ref().map_or(&self.hold, |(_, slot)| slot)
    }

    /// Waits, in a thread that then wakes the claim through its FIFO, for the file that another process has locked. A slot
    /// is tried only after the lock file is locked. So if there is a slot, the slot is the one to wait for.
    fn wait(&mut self, mode: Mode, fifo: &Arc<OwnedFd>) -> FaultResult<()> {
        let exclusive = self.slot.is_some() || mode == Mode::Exclusive;
        let busy = self.slot.as_mut().map_or(&mut self.hold, |(_, slot)| slot);
        busy.wait(&self.queue.directory, exclusive, fifo)
    }

    fn unlock(&mut self) {
        self.hold.unlock();
        self.slot.iter_mut().for_each(|(_, slot)| slot.unlock());
    }

    fn take(&mut self, mode: Mode, queue: &Contents) -> FaultResult<bool> {
        if !self.hold.try_lock(&self.queue.directory, mode == Mode::Exclusive)? {
            // It is the file to wait for.
            self.slot = None;
            return Ok(false);
        }
        match mode {
            Mode::Slots(n) => self.take_slot(queue, n.get()),
            _ => Ok(true),
        }
    }

    fn take_slot(&mut self, queue: &Contents, slots: u32) -> FaultResult<bool> {
        let directory = &self.queue.directory;
        let used =
            |number| queue.queue().any(|entry| entry.state == State::Held && entry.slot == Some(number));
        for number in (1..=slots).filter(|number| !used(*number)) {
            let mut slot = match self.slot.take_if(|(waits_for, _)| *waits_for == number) {
                Some((_, slot)) => slot,
                None => Hold::open(directory, self.queue.files.slot(number))?,
            };
            let is_taken = slot.try_lock(directory, true)?;
            if is_taken || self.slot.is_none() {
                self.slot = Some((number, slot));
            }
            if is_taken {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Seat {
    /// Creates the claim. `fifo` is the lock's own FIFO, if it is that of the claim.
    pub(super) fn new(mode: Mode, places: Vec<Place>, fifo: Option<Arc<OwnedFd>>) -> Self {
        Self {
            mode,
            places,
            fifo,
            fifo_name: None,
            listener: None,
            watches: Vec::new(),
            holds: false,
            events: None,
        }
    }

    /// Returns whether a task has its FIFO open.
    pub(super) fn is_followed(&self) -> bool {
        self.listener.as_ref().is_some_and(|listener| Arc::strong_count(listener) > 1)
    }

    /// Returns whether the next claim removes its entry, as that of a killed process: the entry is the first, and no other claim
    /// uses the FIFO's name.
    pub(super) fn is_removed_by_the_next(&self) -> bool {
        self.holds && self.mode == Mode::Exclusive && self.fifo_name.is_some()
    }

    pub(super) fn queues(&self) -> Vec<Arc<QueueFile>> {
        self.places.iter().map(|place| Arc::clone(&place.queue)).collect()
    }

    /// Takes the lock files of all queues if it is the claim's turn, and notes that in the entries, or which of the
    /// files a process outside of the queue has. All entries that are needed for the decision live.
    pub(super) fn take(&mut self, queues: &mut [Contents]) -> FaultResult<()> {
        let may = self.places.iter().zip(&*queues).all(|(place, queue)| queue.may_hold(place.token));
        if self.holds || !may {
            return Ok(());
        }
        let mut busy = None;
        for (index, (place, queue)) in self.places.iter_mut().zip(&*queues).enumerate() {
            if !place.take(self.mode, queue)? {
                busy = Some(index);
                break;
            }
        }
        if busy.is_some() {
            self.release();
            for (index, (place, queue)) in self.places.iter().zip(queues).enumerate() {
                // A claim waits for one file at a time. A process that has this one may wait for the others.
                let state = if busy == Some(index) { State::Blocked } else { State::Waiting };
                if let Some(own) = queue.at(place.token).filter(|own| own.state != state) {
                    own.state = state;
                    queue.changed = true;
                }
            }
            return Ok(());
        }
        self.holds = true;
        for (place, queue) in self.places.iter().zip(queues) {
            if let Some(own) = queue.at(place.token) {
                let slot = place.slot.as_ref().map(|(number, _)| *number);
                (own.state, own.since, own.slot) = (State::Held, wall(), slot);
                queue.changed = true;
            }
        }
        Ok(())
    }

    /// Returns the first sign of a change of the claim, which waits for `on`; `None` if there is one already.
    pub(super) fn sign(&mut self, on: &[Target]) -> FaultResult<Option<SelectAll<BoxFuture<'static, ()>>>> {
        let Some(fifo) = &self.fifo else { return Ok(None) };
        if self.listener.is_none() {
            self.listener = Some(Arc::new(fifo::register(Arc::clone(fifo))?));
        }
        let mut watches = Vec::new();
        for target in on {
            let place = &mut self.places[target.name];
            if target.key.order == 0 {
                place.wait(self.mode, fifo)?;
                continue;
            }
            match fifo::probe(&place.queue.directory, &target.key.text)? {
                None => return Ok(None),
                Some(fifo) => watches.push(Arc::new(fifo::register(fifo)?)),
            }
        }
        // Those of a hold end here, and not at the moment of acquiring: the last process to close a FIFO waits for the
        // kernel to dismantle it, and the command would wait too.
        self.watches = watches;
        if self.holds && self.events.is_none() {
            let directory = self.directory();
            let paths: Vec<_> = self.files().map(|(name, _)| directory.path_of(&name)).collect();
            self.events = Events::of_hold(directory.path(), &paths).ok().map(Arc::new);
            if self.events.is_some() {
                // They may have changed before.
                return Ok(None);
            }
        }
        let heard = self.listener.iter().cloned().map(|fifo| async move { fifo::heard(&fifo).await }.boxed());
        let ended = self.watches.iter().cloned().map(|fifo| async move { fifo::ended(&fifo).await }.boxed());
        let events = self.events.iter().cloned().map(|events| async move { events.next().await }.boxed());
        Ok(Some(select_all(heard.chain(ended).chain(events))))
    }

    /// Releases the lock files, even if other processes have the descriptors.
    pub(super) fn release(&mut self) {
        self.holds = false;
        self.places.iter_mut().for_each(Place::unlock);
    }

    /// Unlocks and closes the FIFO, which ends the claim, even if a task that waits, or a process that was forked a moment ago, still
    /// has it.
    fn close_fifo(&mut self) {
        self.listener = None;
        if let Some(fifo) = self.fifo.take() {
            flock::unlock(&fifo);
        }
    }

    /// Removes the claim's entries. `held_for` is how long ago a successful run acquired.
    pub(super) fn leave(&self, queues: &mut [Contents], held_for: Option<Duration>) -> FaultResult<()> {
        for (place, queue) in self.places.iter().zip(queues) {
            queue.bury(place.token)?;
            queue.header.record_success(held_for);
            queue.write()?;
        }
        Ok(())
    }

    /// Ends a claim that leaves, with the guards of `queues`.
    pub(super) fn end(mut self, queues: Option<Vec<Contents>>) {
        let is_removed = self.is_removed_by_the_next();
        self.release();
        drop(queues);
        // This wakes the successor, which then finds the guard and the locks free.
        self.close_fifo();
        // The kernel often puts the successor on this processor, where it would wait until this process has ended.
        rustix::thread::sched_yield();
        if let Some(name) = self.fifo_name.as_ref().filter(|_| is_removed) {
            self.directory().unlink(name);
        }
        // The rest is dropped last, since the kernel takes time to dismantle it.
    }

    fn directory(&self) -> &Directory {
        &self.places[0].queue.directory
    }

    /// Returns the open files that must not be replaced, and their names: the queues and, for a hold, the lock files.
    fn files(&self) -> impl Iterator<Item = (String, &OwnedFd)> {
        self.places.iter().flat_map(|place| {
            let holds = place.holds().filter(|_| self.holds).map(|hold| (hold.name.clone(), &*hold.file));
            std::iter::once((place.queue.files.queue(), &*place.queue.file)).chain(holds)
        })
    }

    /// Returns why the claim is lost, if one of its files is not the one at its path any more. A waiter may leave that
    /// to its renewals: with `is_cheap` only an unlinked queue counts.
    pub(super) fn loss(&self, is_cheap: bool) -> FaultResult<Option<LossReason>> {
        for (name, file) in self.files() {
            let is_gone = if is_cheap && !self.holds {
                self.directory().stat(&name, file)?.st_nlink == 0
            } else {
                self.directory().is_replaced(&name, file)?
            };
            if is_gone {
                let path = self.directory().path_of(&name);
                let reason = format!("the lock file {} was removed or replaced", path.display());
                return Ok(Some(LossReason::Replaced(reason)));
            }
        }
        Ok(None)
    }

    /// Returns other descriptors of the open files that carry the hold.
    pub(super) fn anchors(&self) -> FaultResult<Vec<OwnedFd>> {
        let holds = self.places.iter().flat_map(Place::holds);
        let anchor = |hold: &Hold| {
            rustix::io::fcntl_dupfd_cloexec(&hold.file, 0)
                .map_err(fault::os("keep open", self.directory().path_of(&hold.name)))
        };
        holds.map(anchor).collect()
    }
}

impl Drop for Seat {
    /// Processes that inherited the lock files keep them.
    fn drop(&mut self) {
        self.close_fifo();
    }
}
