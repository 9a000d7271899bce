//! The contents of a queue, read and changed under its guard.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::directory::Directory;
use super::entries::Stored;
use super::fifo;
use super::header::Header;
use super::names::claim_fifo;
use super::storage::{Guard, QueueFile};
use crate::lock::{LockName, Mode, Moment, queue};
use crate::net::fault::FaultResult;

/// A queue as it was read: its header, and all entries, also those of claims that were removed and have not left yet.
#[derive(Debug)]
pub(super) struct Contents {
    pub(super) file: Arc<QueueFile>,
    pub(super) header: Header,
    pub(super) entries: Vec<Stored>,
    /// The tokens of the entries that [`Contents::tidy`] has found alive.
    pub(super) living: Vec<u64>,
    /// Whether it was changed since.
    pub(super) changed: bool,
    _guard: Guard,
}

/// Reads the queues `files` under their guards, which are taken in one order for all processes.
pub(super) async fn read(files: &[Arc<QueueFile>], deadline: Moment) -> FaultResult<Vec<Contents>> {
    let mut ordered: Vec<_> = files.iter().enumerate().collect();
    ordered.sort_by(|(_, a), (_, b)| a.files.cmp(&b.files));
    let mut guards = Vec::with_capacity(files.len());
    for (at, file) in ordered {
        guards.push((at, file.guard(deadline).await?));
    }
    guards.sort_by_key(|(at, _)| *at);
    files.iter().zip(guards).map(|(file, (_, guard))| Contents::read(file, guard)).collect()
}

/// Opens the queues of `names` for changes or for reading, as far as they exist, and reads them.
pub(super) async fn open(
    directory: &Arc<Directory>,
    names: &[LockName],
    write: bool,
    deadline: Moment,
) -> FaultResult<Vec<Contents>> {
    let mut files = Vec::new();
    for name in names {
        files.extend(QueueFile::open(directory, name, write)?);
    }
    read(&files, deadline).await
}

impl Contents {
    fn read(file: &Arc<QueueFile>, guard: Guard) -> FaultResult<Self> {
        let (header, text) = file.read()?;
        let entries = serde_json::from_slice(&text).map_err(|_| file.newer())?;
        Ok(Self {
            file: Arc::clone(file),
            header,
            entries,
            living: Vec::new(),
            changed: false,
            _guard: guard,
        })
    }

    /// Writes the queue.
    pub(super) fn write(&mut self) -> FaultResult<()> {
        let text = serde_json::to_vec(&self.entries).expect("texts and numbers are JSON");
        self.file.write(&mut self.header, &text)
    }

    /// Returns the entries that count.
    pub(super) fn queue(&self) -> impl DoubleEndedIterator<Item = &Stored> {
        self.entries.iter().filter(|entry| entry.in_queue())
    }

    /// Returns the entry with this token, to change it.
    pub(super) fn at(&mut self, token: u64) -> Option<&mut Stored> {
        self.entries.iter_mut().find(|entry| entry.token == token)
    }

    /// Returns whether the entry with this token holds, if all those ahead of it live.
    pub(super) fn may_hold(&self, token: u64) -> bool {
        let modes: Vec<Mode> = self.queue().map(Stored::mode).collect();
        self.queue().take(queue::held(&modes)).any(|entry| entry.token == token)
    }

    /// Returns the name of the FIFO of an entry's claim.
    ///
    /// Errors: the entry's id cannot be read, so it is not known whether its claim lives.
    pub(super) fn fifo_of(&self, entry: &Stored) -> FaultResult<String> {
        if entry.kept {
            return Ok(self.file.files.kept_fifo());
        }
        entry.id().map(claim_fifo).ok_or_else(|| self.file.newer())
    }

    /// Returns the FIFO of the claim of `entry`, if that lives.
    pub(super) fn life(&self, entry: &Stored) -> FaultResult<Option<OwnedFd>> {
        fifo::probe(&self.file.directory, &self.fifo_of(entry)?)
    }

    /// Removes the FIFO of an entry, if it is not kept, and then the entry. So a kill leaves no FIFO without an entry.
    pub(super) fn bury(&mut self, token: u64) -> FaultResult<()> {
        for entry in self.entries.iter().filter(|entry| entry.token == token && !entry.kept) {
            self.file.directory.unlink(&self.fifo_of(entry)?);
        }
        self.entries.retain(|entry| entry.token != token);
        self.changed = true;
        Ok(())
    }

    /// Tells the claims of the entries that are `meant` to look again. Continues after a failure, so that every claim
    /// that can be woken is.
    pub(super) fn wake(&self, meant: impl Fn(&&Stored) -> bool) -> FaultResult<()> {
        let mut told = Ok(());
        for entry in self.entries.iter().filter(meant) {
            told = told.and(fifo::wake(&self.file.directory, &self.fifo_of(entry)?));
        }
        told
    }

    /// Buries the dead among the entries that a decision on the entry `token`, of a claim in `mode`, needs. Notes the
    /// living ones.
    pub(super) fn tidy(&mut self, token: u64, mode: Mode) -> FaultResult<()> {
        self.living = vec![token];
        loop {
            let unknown = |entry: &&Stored| !self.living.contains(&entry.token);
            let Some(next) = self.needed(token, mode).into_iter().find(unknown) else { return Ok(()) };
            let (next, lives) = (next.token, self.life(next)?.is_some());
            if lives {
                self.living.push(next);
            } else {
                self.bury(next)?;
            }
        }
    }

    /// Returns the entries that a decision needs, which come first, and those of claims that were removed: a process that
    /// left them may have died.
    fn needed(&self, token: u64, mode: Mode) -> Vec<&Stored> {
        let ahead: Vec<&Stored> = self.queue().take_while(|entry| entry.token != token).collect();
        let first =
            if let Mode::Slots(n) = mode { usize::try_from(n.get()).unwrap_or(usize::MAX) } else { 1 };
        let other = ahead.iter().rev().find(|entry| entry.mode() != mode);
        let shown = ahead.iter().take(first).chain(ahead.last()).chain(other).copied();
        shown.chain(self.entries.iter().filter(|entry| !entry.in_queue())).collect()
    }
}
