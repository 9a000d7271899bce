//! Removing another claim's entry, or asking its holder to leave.

use std::path::Path;
use std::sync::Arc;

use super::directory::Directory;
use super::fifo::{self, Life};
use super::grant;
use super::queue::{Mark, Record, State, mark_line};
use super::storage::{QueueFile, ReadQueue, guards};
use crate::backend::Evict;
use crate::lock::{ClaimId, ErrorKind, Holder, LockName, Moment};
use crate::net::fault::{Fault, FaultResult};

/// An eviction: which claim, how, and by which holder.
pub(super) struct Eviction<'a> {
    pub(super) id: ClaimId,
    pub(super) how: Evict,
    pub(super) by: &'a Holder,
}

/// One of the claim's queues, as read.
struct ClaimQueue {
    file: Arc<QueueFile>,
    queue: ReadQueue,
    record: Record,
}

impl Eviction<'_> {
    /// Carries it out. Returns whether there was such a claim, alive.
    pub(super) async fn carry_out(
        &self,
        directory: &Arc<Directory>,
        lock: &LockName,
        deadline: Moment,
    ) -> FaultResult<bool> {
        let Some(names) = self.names(directory, lock, deadline).await? else { return Ok(false) };
        let mut files = Vec::new();
        for name in &names {
            files.extend(QueueFile::open(directory, name, true)?.map(Arc::new));
        }
        files.sort_by(|a, b| a.files.cmp(&b.files));
        let _guards = guards(&files, deadline).await?;
        let mut found = Vec::new();
        for file in files {
            let queue = file.read(None)?;
            let own = queue.image.records.iter().find(|r| r.fixed.id == self.id && r.fixed.state.in_queue());
            if let Some(record) = own.cloned() {
                found.push(ClaimQueue { file, queue, record });
            }
        }
        self.act(found)
    }

    /// Returns all names of the claim, or `None` if it is not in the queue.
    async fn names(
        &self,
        directory: &Arc<Directory>,
        lock: &LockName,
        deadline: Moment,
    ) -> FaultResult<Option<Vec<LockName>>> {
        let Some(file) = QueueFile::open(directory, lock, true)? else { return Ok(None) };
        let _guard = file.guard(deadline).await?;
        // A process that was killed may have left an unfinished file.
        directory.unlink(&file.files.unready());
        let queue = file.read(None)?;
        let own = queue.image.records.iter().find(|r| r.fixed.id == self.id && r.fixed.state.in_queue());
        let Some(record) = own else {
            // The process that removed the record may have failed before it removed the FIFO.
            let fifo = file.files.fifo(self.id);
            if let Life::Dead = fifo::probe(directory, &fifo)? {
                directory.unlink(&fifo);
            }
            return Ok(None);
        };
        let names = queue.image.details(record).map(|d| d.names).unwrap_or_default();
        let mut names: Vec<_> = names.into_iter().filter_map(|n| LockName::new(n).ok()).collect();
        if names.is_empty() {
            names.push(lock.clone());
        }
        Ok(Some(names))
    }

    fn act(&self, mut found: Vec<ClaimQueue>) -> FaultResult<bool> {
        let Some(first) = found.first() else { return Ok(false) };
        if let Life::Dead = first.file.life(&first.queue, &first.record)? {
            for found in &found {
                found.file.bury(&found.queue, &found.record)?;
            }
            return Ok(false);
        }
        if let (Evict::Force, State::Held) = (self.how, first.record.fixed.state) {
            let pid = first.queue.image.details(&first.record).map(|details| details.holder.pid);
            let advice = "kill that process, or leave --force out to have it asked";
            let path = first.file.directory.path_of(first.file.files.canonical());
            return Err(locked(&path, pid, advice));
        }
        for found in &mut found {
            self.mark(found)?;
        }
        let mut woken = Ok(());
        for found in &found {
            woken = woken.and(found.file.wake(&found.queue, &found.record));
            if self.how != Evict::Ask {
                woken = woken.and(grant::wake_behind(&found.file, &found.queue, &found.record));
            }
        }
        woken.map(|()| true)
    }

    fn mark(&self, found: &mut ClaimQueue) -> FaultResult<()> {
        let kind = if self.how == Evict::Ask { Mark::Asked } else { Mark::Evicted };
        let text = mark_line(kind, self.id, self.by, 0);
        found.file.append(&mut found.queue, &text, 0, false)?;
        if self.how == Evict::Ask {
            found.record.fixed.asked = true;
        } else {
            found.record.fixed.state = State::Evicted;
        }
        found.file.overwrite(found.record.at, found.record.fixed.print().as_bytes())
    }
}

/// Implements [`crate::backend::Backend::evict_foreign`]. It can only refuse: the kernel has no way to take a flock
/// from another process.
pub(super) async fn evict_foreign(
    directory: &Arc<Directory>,
    lock: &LockName,
    id: ClaimId,
    deadline: Moment,
) -> FaultResult<bool> {
    let status = super::inspect::status(directory, lock, true, deadline).await?;
    let mut foreign = status.holders.iter().filter(|entry| entry.foreign);
    let Some(entry) = foreign.find(|entry| entry.claim == Some(id)) else { return Ok(false) };
    let path = directory.path_of(directory.naming.of(lock)?.canonical());
    Err(locked(&path, entry.pid, "end that process"))
}

/// The error for a hold of the process `pid` on the lock file `path`, which cannot be taken away: the kernel has no way
/// to release the flock of another process.
fn locked(path: &Path, pid: Option<u32>, advice: &str) -> Fault {
    let who =
        pid.map_or_else(|| "a process that cannot be seen from here".to_owned(), |pid| format!("pid {pid}"));
    let path = path.display();
    let reason = format!("{who} has {path} locked by flock, and no other process can release it; {advice}");
    Fault::new(ErrorKind::Unsupported, reason)
}
