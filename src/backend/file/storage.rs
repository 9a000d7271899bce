//! The queue file on disk, read and changed under its guard.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use rustix::fs::{FileType, OFlags, fdatasync, fstat, ftruncate};
use rustix::io::{Errno, pread, pwrite, retry_on_intr};
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard, oneshot};

use super::directory::{Directory, identity_of};
use super::entries::{Document, Stored};
use super::fault;
use super::fifo;
use super::flock::{self, Flock};
use super::header::{HEADER, Header, checksum};
use super::locker::lockers;
use super::names::FileNames;
use crate::clock::Clock;
use crate::lock::{ErrorKind, LockName, Moment};
use crate::net::fault::{Fault, FaultResult};

/// The unit in which the kernel writes.
const PAGE: usize = 4096;

/// How much is read at first: all of a queue of some fifty entries.
const FIRST: usize = 4 * PAGE;

/// The queue file of one lock, opened.
#[derive(Debug)]
pub(super) struct QueueFile {
    pub(super) directory: Arc<Directory>,
    pub(super) lock: LockName,
    pub(super) files: FileNames,
    pub(super) file: Arc<OwnedFd>,
    /// Whether it was opened for changes.
    write: bool,
    /// The turn of one call of this process, since an open file does not exclude itself.
    turn: Arc<AsyncMutex<()>>,
}

/// The lock on a [`QueueFile`], and the turn. Both end on drop, the lock first.
#[derive(Debug)]
pub(super) struct Guard {
    _lock: Flock,
    _turn: OwnedMutexGuard<()>,
}

impl QueueFile {
    /// Opens the queue of `lock`, and creates it if it is missing.
    pub(super) fn open_or_make(directory: &Arc<Directory>, lock: &LockName) -> FaultResult<Self> {
        loop {
            if let Some(queue) = Self::open(directory, lock, true)? {
                return Ok(queue);
            }
            directory.open_or_make(&directory.naming.of(lock)?.queue())?;
        }
    }

    /// Opens the queue of `lock` for changes or for reading, if there is one.
    pub(super) fn open(
        directory: &Arc<Directory>,
        lock: &LockName,
        write: bool,
    ) -> FaultResult<Option<Self>> {
        let files = directory.naming.of(lock)?;
        let flags = if write { OFlags::RDWR } else { OFlags::RDONLY };
        let file = directory.open(FileType::RegularFile, &files.queue(), flags)?;
        Ok(file.map(|file| {
            let (directory, lock, file) = (Arc::clone(directory), lock.clone(), Arc::new(file));
            Self { directory, lock, files, file, write, turn: Arc::default() }
        }))
    }

    pub(super) fn path(&self) -> PathBuf {
        self.directory.path_of(&self.files.queue())
    }

    /// Takes the guard: exclusively if the queue was opened for changes, else shared.
    ///
    /// Cancel-safe: a dropped call leaves no lock behind, and at most one thread, which has the turn until it has got and
    /// released the lock.
    pub(super) async fn guard(&self, deadline: Moment) -> FaultResult<Guard> {
        let work = async {
            let turn = Arc::clone(&self.turn).lock_owned().await;
            if let Some(lock) = Flock::try_take(&self.file, self.write)? {
                return Ok(Guard { _lock: lock, _turn: turn });
            }
            let (done, guard) = oneshot::channel();
            let then =
                |lock: Result<_, _>| drop(done.send(lock.map(|lock| Guard { _lock: lock, _turn: turn })));
            flock::wait(Arc::clone(&self.file), self.write, then)?;
            guard.await.unwrap_or(Err(Errno::CANCELED))
        };
        match Clock::Boot.by(deadline, work).await {
            Some(guard) => guard.map_err(fault::os("lock", self.path())),
            None => Err(self.late()),
        }
    }

    /// The fault for a guard that another call had until the deadline.
    fn late(&self) -> Fault {
        let path = self.path();
        let identity = fstat(&self.file).map(|stat| identity_of(&stat));
        let owner = identity.ok().and_then(|file| Some(lockers(file).first()?.pid));
        if owner == Some(std::process::id()) {
            // Nothing else takes this process long under the guard.
            return fault::silent_disk(&path);
        }
        let owner = owner.map(|pid| format!(" (pid {pid})")).unwrap_or_default();
        let reason = format!(
            "another dlock process{owner} keeps {} locked, which takes microseconds otherwise; it seems to be \
             stopped: continue or end it",
            path.display()
        );
        Fault::new(ErrorKind::Unavailable, reason)
    }

    /// Returns whether the queue file was unlinked since it was opened; cheap.
    pub(super) fn is_unlinked(&self) -> FaultResult<bool> {
        Ok(self.directory.stat(&self.files.queue(), &self.file)?.st_nlink == 0)
    }

    /// Reads the queue.
    pub(super) fn read(&self) -> FaultResult<Document> {
        let mut first = [0; FIRST];
        let got = self.pread(&mut first, 0)?;
        let first = &first[..got];
        let header = match Header::parse(first) {
            Ok(Some(header)) => header,
            Ok(None) => Header::fresh(self.lock.as_str(), self.directory.boot()),
            Err(_) => {
                let reason = format!("{} was written by a newer dlock; use that one", self.path().display());
                return Err(Fault::new(ErrorKind::Corrupt, reason));
            }
        };
        let size = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let (start, length) = (size(header.start), size(header.length));
        let mut more = Vec::new();
        let text = if let Some(text) = first.get(start..start.saturating_add(length)) {
            text
        } else {
            // A damaged length must not take all memory.
            let file = fstat(&self.file).map_err(fault::os("examine", self.path()))?;
            let there = u64::try_from(file.st_size).unwrap_or(0).saturating_sub(header.start);
            more.resize(size(header.length.min(there)), 0);
            let got = self.pread(&mut more, header.start)?;
            &more[..got]
        };
        // Lost entries are those of another boot.
        let text = if checksum(text) == header.sum { text } else { &[] };
        Ok(Document::parse(header, text))
    }

    /// Writes the queue: within the first page, if it has room there, or else beside what was read, which counts until
    /// the header is written. A kill can cut no write within a page.
    pub(super) fn write(&self, document: &mut Document) -> FaultResult<()> {
        let (text, header) = (document.print(), &mut document.header);
        let text = text.as_bytes();
        let end = header.start + header.length;
        (header.length, header.sum) = (text.len() as u64, checksum(text));
        if HEADER + text.len() <= PAGE {
            header.start = HEADER as u64;
            self.pwrite(&[&header.print(), text].concat(), 0)?;
            if end > PAGE as u64 {
                // It is only room.
                let _ = ftruncate(&self.file, PAGE as u64);
            }
            return Ok(());
        }
        let is_free = header.start >= PAGE as u64 + header.length;
        header.start = if is_free { PAGE as u64 } else { end.max(PAGE as u64) };
        self.pwrite(text, header.start)?;
        self.write_header(header)
    }

    fn pread(&self, buffer: &mut [u8], at: u64) -> FaultResult<usize> {
        let mut done = 0;
        while done < buffer.len() {
            match retry_on_intr(|| pread(&self.file, &mut buffer[done..], at + done as u64)) {
                // A short read of a regular file is the last one.
                Ok(got) if done + got < buffer.len() => return Ok(done + got),
                Ok(got) => done += got,
                Err(errno) => return Err(fault::os("read", self.path())(errno)),
            }
        }
        Ok(done)
    }

    fn pwrite(&self, bytes: &[u8], at: u64) -> FaultResult<()> {
        let written = retry_on_intr(|| pwrite(&self.file, bytes, at)).and_then(|written| {
            // The file system is full if a part did not fit.
            if written == bytes.len() { Ok(()) } else { Err(Errno::NOSPC) }
        });
        written.map_err(fault::os("write", self.path()))
    }

    /// Writes the header.
    pub(super) fn write_header(&self, header: &Header) -> FaultResult<()> {
        self.pwrite(&header.print(), 0)
    }

    /// Waits until the header is on the disk itself; for a thread that may block.
    pub(super) fn sync(&self) -> FaultResult<()> {
        fdatasync(&self.file).map_err(fault::os("sync", self.path()))
    }

    /// Returns the name of the FIFO of an entry's claim. With several names it belongs to the first.
    pub(super) fn fifo_of(&self, entry: &Stored) -> FaultResult<String> {
        if entry.kept {
            return Ok(self.files.kept_fifo());
        }
        let names = entry.details().map(|details| details.record.names(&self.lock)).unwrap_or_default();
        match names.first() {
            Some(first) if *first != self.lock => Ok(self.directory.naming.of(first)?.fifo(entry.id)),
            _ => Ok(self.files.fifo(entry.id)),
        }
    }

    /// Returns the FIFO of the claim of `entry`, if that lives.
    pub(super) fn life(&self, entry: &Stored) -> FaultResult<Option<OwnedFd>> {
        fifo::probe(&self.directory, &self.fifo_of(entry)?)
    }

    /// Removes the entry of a dead claim from `document`, and its FIFO.
    pub(super) fn bury(&self, document: &mut Document, token: u64) -> FaultResult<()> {
        if let Some(entry) = document.at(token).filter(|entry| !entry.kept) {
            self.directory.unlink(&self.fifo_of(entry)?);
        }
        document.entries.retain(|entry| entry.token != token);
        document.changed = true;
        Ok(())
    }

    /// Tells the claims of `entries` to look again. Continues after a failure, so that every claim that can be woken
    /// is.
    pub(super) fn wake<'a>(&self, entries: impl IntoIterator<Item = &'a Stored>) -> FaultResult<()> {
        let mut told = Ok(());
        for entry in entries {
            told = told.and(fifo::wake(&self.directory, &self.fifo_of(entry)?));
        }
        told
    }
}

/// Takes the guards of `queues`, in one order for all processes.
pub(super) async fn guards(queues: &[Arc<QueueFile>], deadline: Moment) -> FaultResult<Vec<Guard>> {
    let mut ordered: Vec<_> = queues.iter().collect();
    ordered.sort_by(|a, b| a.files.cmp(&b.files));
    let mut guards = Vec::with_capacity(queues.len());
    for queue in ordered {
        guards.push(queue.guard(deadline).await?);
    }
    Ok(guards)
}
