//! Changing entries, and leaving.

use std::sync::Arc;
use std::time::Duration;

use super::directory::Directory;
use super::entries::{Document, State, Stored};
use super::fifo;
use super::header::wall;
use super::locker::{self, lockers};
use super::seat::Seat;
use super::storage::{Guard, QueueFile, guards};
use crate::backend::success;
use crate::lock::{ClaimId, ErrorKind, LockName, Moment};
use crate::net::fault::{Fault, FaultResult};
use crate::queue::store::{Change, Item, Key, Note};

/// Queues that are read and changed under their guards.
pub(super) struct Section {
    queues: Vec<(Arc<QueueFile>, Document)>,
    _guards: Vec<Guard>,
}

impl Section {
    /// Reads the queues of `names`, as far as they exist.
    pub(super) async fn of(
        directory: &Arc<Directory>,
        names: &[LockName],
        deadline: Moment,
    ) -> FaultResult<Self> {
        let mut files = Vec::new();
        for name in names {
            files.extend(QueueFile::open(directory, name, true)?.map(Arc::new));
        }
        let guards = guards(&files, deadline).await?;
        let read = |file: Arc<QueueFile>| file.read().map(|document| (file, document));
        Ok(Self { queues: files.into_iter().map(read).collect::<FaultResult<_>>()?, _guards: guards })
    }

    /// Returns whether each entry is there. A process outside of the queue counts as there: a claim that waits for it
    /// takes the lock file under the guard.
    fn has(&self, when: &[(LockName, Key)]) -> bool {
        when.iter().all(|(name, key)| {
            let mut queue = self.queues.iter().filter(|(file, _)| file.lock == *name);
            key.order == 0 || queue.any(|(_, document)| document.queue().any(|e| e.token == key.order))
        })
    }

    /// Removes the claim `id` from all queues. Returns false if an entry of `when` is absent, or if a newer claim wants
    /// to supersede a holder.
    pub(super) fn remove(
        mut self,
        id: ClaimId,
        note: Option<&Note>,
        when: &[(LockName, Key)],
    ) -> FaultResult<bool> {
        if !self.has(when) {
            return Ok(false);
        }
        let (state, by) = match note {
            Some(Note::Superseded(by)) => (State::Superseded, Some(by.clone())),
            Some(Note::Evicted(by)) => (State::Evicted, by.clone()),
            _ => (State::Evicted, None),
        };
        let is_own = |entry: &Stored| entry.id == id && entry.in_queue();
        let (mut lives, mut found) = (false, false);
        for (file, document) in &self.queues {
            let Some(entry) = document.queue().find(|entry| is_own(entry)) else { continue };
            found = true;
            lives = file.life(entry)?.is_some();
            if lives && entry.state == State::Held {
                if state == State::Superseded {
                    return Ok(false);
                }
                let path = file.directory.path_of(file.files.canonical());
                let advice = "kill that process, or leave out --force to ask it";
                let pid = entry.details().map(|details| details.record.holder.pid);
                return Err(locked(&path, pid, advice));
            }
        }
        let mut told = Ok(());
        for (file, document) in &mut self.queues {
            let Some(own) = document.entries.iter_mut().find(|entry| is_own(entry)) else {
                // A process that was killed may have left a FIFO without an entry.
                let fifo = file.files.fifo(id);
                if !found && fifo::probe(&file.directory, &fifo)?.is_none() {
                    file.directory.unlink(&fifo);
                }
                continue;
            };
            let token = own.token;
            if !lives {
                file.bury(document, token)?;
                file.write(document)?;
                continue;
            }
            own.state = state;
            own.change(|details| details.by.clone_from(&by));
            file.write(document)?;
            // It, and those that may wait for it.
            let behind = document.entries.iter().filter(|entry| entry.token >= token);
            told = told.and(file.wake(behind.filter(|entry| entry.state != State::Held)));
        }
        told.map(|()| true)
    }

    /// Changes the entry `item`. Returns whether it is there and its owner lives.
    pub(super) fn change(mut self, item: &Item, change: &Change) -> FaultResult<bool> {
        for (file, document) in &mut self.queues {
            let Some(entry) = document.at(item.key.order).filter(|entry| entry.in_queue()) else { continue };
            if file.life(entry)?.is_none() {
                return Ok(false);
            }
            match change {
                Change::Asked(by) => entry.change(|details| details.asked = Some(by.clone())),
                Change::Label(label) => {
                    entry.change(|details| details.record.holder.label = Some(label.clone()));
                }
                // The entry says since when.
                Change::HeldFor(_) => return Ok(true),
            }
            let entry = entry.clone();
            file.write(document)?;
            if let Change::Asked(_) = change {
                file.wake([&entry])?;
            }
            return Ok(true);
        }
        Ok(false)
    }
}

impl Seat {
    /// Removes the claim's entries under the guards. `held_for` is how long ago a successful run acquired.
    pub(super) fn leave(&self, held_for: Option<Duration>) -> FaultResult<()> {
        let mut left = Ok(());
        for place in &self.places {
            let remove = || {
                let mut document = place.queue.read()?;
                document.entries.retain(|entry| entry.token != place.token);
                if let Some(held_for) = held_for {
                    let [now, known] = [wall(), document.header.success].map(Duration::from_micros);
                    let latest = success::latest(now, known, now.saturating_sub(held_for)).as_micros();
                    document.header.success = u64::try_from(latest).unwrap_or(u64::MAX);
                }
                place.queue.write(&mut document)
            };
            left = left.and(remove());
        }
        left
    }
}

/// Returns why the process that has the lock file of `name` cannot be removed.
pub(super) fn immovable(directory: &Directory, name: &LockName) -> FaultResult<Fault> {
    let file = directory.naming.of(name)?;
    let identity = directory.present(file.canonical())?;
    let pid = identity.and_then(|file| locker::who_has(file, lockers(file).first().copied()));
    Ok(locked(&directory.path_of(file.canonical()), pid, "kill that process"))
}

/// The error for a hold of the process `pid` on the lock file `path`, which cannot be taken away: the kernel has no way
/// to release the flock of another process.
fn locked(path: &std::path::Path, pid: Option<u32>, advice: &str) -> Fault {
    let process =
        pid.map_or_else(|| "a process that is not visible here".to_owned(), |pid| format!("process {pid}"));
    let path = path.display();
    let reason =
        format!("{process} has locked {path} with flock, and only that process can release it; {advice}");
    Fault::new(ErrorKind::Unsupported, reason)
}
