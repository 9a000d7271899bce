//! Changing the entries of other claims.

use super::contents::Contents;
use super::directory::Directory;
use super::entries::{State, Stored};
use super::locker::{self, lockers};
use crate::lock::{ClaimId, ErrorKind, LockName};
use crate::net::fault::{Fault, FaultResult};
use crate::queue::store::{Change, Item, Key, Note};

/// Removes the claim `id` from `queues`. Returns false if they lack an entry of `when`, or if a newer claim wants to
/// supersede a holder. A process outside of the queue counts as there: a claim that waits for it takes the lock file under
/// the guard.
pub(super) fn remove(
    queues: &mut [Contents],
    id: ClaimId,
    note: Option<&Note>,
    when: &[(LockName, Key)],
) -> FaultResult<bool> {
    let state = match note {
        Some(Note::Superseded(by)) => State::Superseded(by.clone()),
        Some(Note::Evicted(by)) => State::Evicted(by.clone()),
        _ => State::Evicted(None),
    };
    let is_own = |entry: &&Stored| entry.id() == Some(id);
    let mut lives = false;
    for queue in &*queues {
        let has = |order| order == 0 || queue.queue().any(|entry| entry.token == order);
        if when.iter().any(|(name, key)| *name == queue.file.lock && !has(key.order)) {
            return Ok(false);
        }
        let Some(entry) = queue.entries.iter().find(is_own) else { continue };
        lives = queue.life(entry)?.is_some();
        if lives && entry.state == State::Held {
            if let State::Superseded(_) = state {
                return Ok(false);
            }
            let advice = "kill that process, or leave out --force to ask it";
            let (directory, pid) = (&queue.file.directory, entry.record().map(|record| record.holder.pid));
            return Err(locked(directory, queue.file.files.canonical(), pid, advice));
        }
    }
    let mut told = Ok(());
    for queue in queues {
        let Some(token) = queue.entries.iter().find(is_own).map(|entry| entry.token) else { continue };
        if !lives {
            queue.bury(token)?;
            queue.write()?;
            continue;
        }
        queue.at(token).into_iter().for_each(|own| own.state = state.clone());
        queue.write()?;
        // It, and those that may wait for it.
        told = told.and(queue.wake(|entry| entry.token >= token && entry.state != State::Held));
    }
    told.map(|()| true)
}

/// Changes the entry `item` of `queue`. Returns whether it is there and its owner lives.
pub(super) fn change(queue: &mut Contents, item: &Item, change: &Change) -> FaultResult<bool> {
    let token = item.key.order;
    let Some(entry) = queue.queue().find(|entry| entry.token == token) else { return Ok(false) };
    if queue.life(entry)?.is_none() {
        return Ok(false);
    }
    if let Some(entry) = queue.at(token) {
        match change {
            Change::Asked(by) => entry.asked = Some(by.clone()),
            Change::Label(label) => entry.set_label(label),
            // The entry says since when.
            Change::HeldFor(_) => return Ok(true),
        }
    }
    queue.write()?;
    queue.wake(|entry| entry.token == token).map(|()| true)
}

/// Returns why the process that has the lock file of `name` cannot be removed.
pub(super) fn immovable(directory: &Directory, name: &LockName) -> FaultResult<Fault> {
    let file = directory.naming.of(name)?;
    let identity = directory.present(file.canonical())?;
    let pid = identity.and_then(|file| locker::who_has(file, lockers(directory, file).first().copied()));
    Ok(locked(directory, file.canonical(), pid, "kill that process"))
}

/// The error for a hold of the process `pid` on the lock file `file`, which cannot be taken away: the kernel has no way
/// to release the flock of another process.
fn locked(directory: &Directory, file: &str, pid: Option<u32>, advice: &str) -> Fault {
    let process =
        pid.map_or_else(|| "a process that is not visible here".to_owned(), |pid| format!("process {pid}"));
    let path = directory.path_of(file);
    let path = path.display();
    let reason =
        format!("{process} has locked {path} with flock, and only that process can release it; {advice}");
    Fault::new(ErrorKind::Unsupported, reason)
}
