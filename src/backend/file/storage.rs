//! The queue file on disk, read and changed under its guard.

use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

use rustix::fs::{OFlags, fdatasync, fstat, ftruncate};
use rustix::io::{Errno, pread, pwrite};

use super::directory::{Directory, Identity, Opened, identity_of};
use super::entries::{Document, Stored};
use super::fault;
use super::fifo::{self, Life};
use super::guard::{Failed, Guard, GuardFile};
use super::header::{HEADER, Header, checksum};
use super::locker::Locks;
use super::names::FileNames;
use super::surroundings;
use super::token;
use crate::lock::{ErrorKind, LockName, Moment};
use crate::net::fault::{Fault, FaultResult};

/// The unit in which the kernel writes.
const PAGE: usize = 4096;

/// A call to the file system that may fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Call {
    Read,
    Write,
    Sync,
}

/// The queue file of one lock, opened.
#[derive(Debug)]
pub(super) struct QueueFile {
    pub(super) directory: Arc<Directory>,
    pub(super) lock: LockName,
    pub(super) files: FileNames,
    file: GuardFile,
    identity: Identity,
}

impl QueueFile {
    /// Opens the queue of `lock`, and creates it if it is missing.
    pub(super) fn open_or_make(
        directory: &Arc<Directory>,
        lock: &LockName,
        files: FileNames,
    ) -> FaultResult<Self> {
        let opened = directory.open_or_make(&files.queue())?;
        Ok(Self::opened(directory, lock, files, opened, true))
    }

    /// Opens the queue of `lock` for changes or for reading, if there is one.
    pub(super) fn open(
        directory: &Arc<Directory>,
        lock: &LockName,
        write: bool,
    ) -> FaultResult<Option<Self>> {
        let files = directory.naming.of(lock)?;
        let flags = if write { OFlags::RDWR } else { OFlags::RDONLY };
        let Some(opened) = directory.open(&files.queue(), flags)? else { return Ok(None) };
        Ok(Some(Self::opened(directory, lock, files, opened, write)))
    }

    fn opened(
        directory: &Arc<Directory>,
        lock: &LockName,
        files: FileNames,
        (file, stat): Opened,
        write: bool,
    ) -> Self {
        let (directory, lock) = (Arc::clone(directory), lock.clone());
        Self { directory, lock, files, file: GuardFile::new(file, write), identity: identity_of(&stat) }
    }

    pub(super) fn path(&self) -> PathBuf {
        self.directory.path_of(&self.files.queue())
    }

    /// Takes the guard: exclusively if the queue was opened for changes, else shared.
    pub(super) async fn guard(&self, deadline: Moment) -> FaultResult<Guard> {
        match self.file.lock(deadline).await {
            Ok(guard) => Ok(guard),
            Err(Failed::Refused(errno)) => Err(fault::os("lock", self.path())(errno)),
            Err(failed) => {
                let owner = super::locker::lockers(self.identity).first().map(|l| l.pid);
                let path = self.path();
                if matches!(failed, Failed::TurnLate) && owner == Some(std::process::id()) {
                    // Nothing else takes this process long under the guard.
                    return Err(fault::silent_disk(&path));
                }
                let owner = owner.map(|pid| format!(" (pid {pid})")).unwrap_or_default();
                let reason = format!(
                    "another dlock process{owner} keeps {} locked, which takes microseconds otherwise; it seems \
                     to be stopped: continue or end it",
                    path.display()
                );
                Err(Fault::new(ErrorKind::Unavailable, reason))
            }
        }
    }

    /// Returns whether the queue file was unlinked since it was opened; cheap.
    pub(super) fn is_unlinked(&self) -> FaultResult<bool> {
        let stat = fstat(&self.file).map_err(fault::os("examine", self.path()))?;
        Ok(stat.st_nlink == 0)
    }

    /// Updates the times of an old file, so that it looks used.
    pub(super) fn freshen(&self) {
        surroundings::freshen(self.file.as_fd());
    }

    /// Returns whether another file, or none, is at the path now. An unlinked file counts as replaced, even if its
    /// directory is out of reach.
    pub(super) fn is_replaced(&self) -> FaultResult<bool> {
        Ok(self.is_unlinked()? || self.directory.present(&self.files.queue())? != Some(self.identity))
    }

    /// Reads the queue.
    pub(super) fn read(&self) -> FaultResult<Document> {
        let mut page = [0; PAGE];
        let got = self.pread(&mut page, 0)?;
        let page = &page[..got];
        let header = match Header::parse(page) {
            Ok(Some(header)) => header,
            Ok(None) => token::fresh(self.lock.as_str(), self.directory.boot()),
            Err(_) => {
                let reason = format!("{} was written by a newer dlock; use that one", self.path().display());
                return Err(Fault::new(ErrorKind::Corrupt, reason));
            }
        };
        let size = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let (start, length) = (size(header.start), size(header.length));
        let mut more = Vec::new();
        let text = if let Some(text) = page.get(start..start.saturating_add(length)) {
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
        let mut bytes = document.after(HEADER);
        let (text, header) = (&bytes[HEADER..], &mut document.header);
        let end = header.start + header.length;
        (header.length, header.sum) = (text.len() as u64, checksum(text));
        if bytes.len() <= PAGE {
            header.start = HEADER as u64;
            bytes[..HEADER].copy_from_slice(&header.print());
            self.pwrite(&bytes, 0)?;
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
        self.inject(Call::Read)?;
        let mut done = 0;
        while done < buffer.len() {
            match pread(&self.file, &mut buffer[done..], at + done as u64) {
                // A short read of a regular file is the last one.
                Ok(got) if done + got < buffer.len() => return Ok(done + got),
                Ok(got) => done += got,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(fault::os("read", self.path())(errno)),
            }
        }
        Ok(done)
    }

    fn pwrite(&self, mut bytes: &[u8], mut at: u64) -> FaultResult<()> {
        self.inject(Call::Write)?;
        while !bytes.is_empty() {
            match pwrite(&self.file, bytes, at) {
                Ok(0) | Err(Errno::NOSPC) => return Err(fault::os("write", self.path())(Errno::NOSPC)),
                Ok(got) => {
                    bytes = &bytes[got..];
                    at += got as u64;
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(fault::os("write", self.path())(errno)),
            }
        }
        Ok(())
    }

    /// Returns the process of the claim that has this FIFO, as seen in this PID namespace.
    pub(super) fn owner(&self, fifo: &OwnedFd, locks: &Locks) -> FaultResult<Option<u32>> {
        let stat = fstat(fifo).map_err(fault::os("examine", self.path()))?;
        Ok(locks.lockers(identity_of(&stat)).first().map(|locker| locker.pid))
    }

    /// Writes the header.
    pub(super) fn write_header(&self, header: &Header) -> FaultResult<()> {
        self.pwrite(&header.print(), 0)
    }

    /// Writes the header to the disk itself; for a thread that may block.
    pub(super) fn sync_header(&self, header: &Header) -> FaultResult<()> {
        self.write_header(header)?;
        self.inject(Call::Sync)?;
        fdatasync(&self.file).map_err(fault::os("sync", self.path()))
    }

    /// Fails if a test has set a fault for this call.
    #[cfg(test)]
    fn inject(&self, call: Call) -> FaultResult<()> {
        match self.directory.faults.of(call) {
            Some(errno) => Err(fault::os(call.name(), self.path())(errno)),
            None => Ok(()),
        }
    }

    #[cfg(not(test))]
    #[expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "as in tests")]
    fn inject(&self, _: Call) -> FaultResult<()> {
        Ok(())
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

    /// Returns whether the claim of `entry` lives.
    pub(super) fn life(&self, entry: &Stored) -> FaultResult<Life> {
        fifo::probe(&self.directory, &self.fifo_of(entry)?)
    }

    /// Removes the entry of a dead claim from `document`, and its FIFO.
    pub(super) fn bury(&self, document: &mut Document, token: u64) -> FaultResult<()> {
        if let Some(entry) = document.at(token).filter(|entry| !entry.kept) {
            self.directory.unlink(&self.fifo_of(entry)?);
        }
        document.entries.retain(|entry| entry.token != token);
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
