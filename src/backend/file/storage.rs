//! The queue file on disk, and its guard.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{FileType, OFlags, fstat, ftruncate};
use rustix::io::{Errno, pread, pwrite, retry_on_intr};
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard, oneshot};

use super::directory::{Directory, identity_of};
use super::fault;
use super::flock::{self, Flock};
use super::header::{HEADER, Header, checksum};
use super::locker::lockers;
use super::names::FileNames;
use crate::clock::Clock;
use crate::lock::{ErrorKind, LockName, Moment};
use crate::net::fault::{Fault, FaultResult};

/// The unit in which the kernel writes.
const PAGE: usize = 4096;

/// The longest text that is read: that of some hundred thousand entries.
const MOST: usize = 1 << 26;

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
    pub(super) fn open_or_make(directory: &Arc<Directory>, lock: &LockName) -> FaultResult<Arc<Self>> {
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
    ) -> FaultResult<Option<Arc<Self>>> {
        let files = directory.naming.of(lock)?;
        let flags = if write { OFlags::RDWR } else { OFlags::RDONLY };
        let file = directory.open(FileType::RegularFile, &files.queue(), flags)?;
        Ok(file.map(|file| {
            let (directory, lock, file) = (Arc::clone(directory), lock.clone(), Arc::new(file));
            Arc::new(Self { directory, lock, files, file, write, turn: Arc::default() })
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
        let file = fstat(&self.file).ok().map(|stat| identity_of(&stat));
        let owner = file.and_then(|file| lockers(&self.directory, file).first().copied());
        let owner = owner.map(|owner| format!(" (pid {})", owner.pid)).unwrap_or_default();
        let reason = format!(
            "another dlock process{owner} keeps {} locked, which takes microseconds otherwise; it seems to be \
             stopped: continue or end it",
            self.path().display()
        );
        Fault::new(ErrorKind::Unavailable, reason)
    }

    /// Returns whether the queue file was unlinked since it was opened; cheap.
    pub(super) fn is_unlinked(&self) -> FaultResult<bool> {
        Ok(self.directory.stat(&self.files.queue(), &self.file)?.st_nlink == 0)
    }

    /// Reads the header and the text. Without its header, a text is lost, and so is one of another boot.
    pub(super) fn read(&self) -> FaultResult<(Header, Vec<u8>)> {
        let (header, page) = self.first_page()?;
        let size = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let (start, length) = (size(header.start), size(header.length));
        let text = match page.get(start..start.saturating_add(length)) {
            Some(text) => text.to_vec(),
            None => self.pread(length.min(MOST), header.start)?,
        };
        let text = if checksum(&text) == header.sum { text } else { b"[]".to_vec() };
        Ok((header, text))
    }

    fn first_page(&self) -> FaultResult<(Header, Vec<u8>)> {
        let page = self.pread(PAGE, 0)?;
        let header = Header::parse(&page).map_err(|_| self.newer())?;
        Ok((header.unwrap_or_else(|| Header::fresh(self.lock.as_str())), page))
    }

    /// Does what [`Header::record_success`] does, under the guard.
    pub(super) async fn record_success(
        &self,
        held_for: Option<Duration>,
        deadline: Moment,
    ) -> FaultResult<()> {
        let _guard = self.guard(deadline).await?;
        let (mut header, _) = self.first_page()?;
        header.record_success(held_for);
        self.write_header(&header)
    }

    /// Reads `length` bytes from `start`, or all that there are. A short read of a regular file is the last one.
    fn pread(&self, length: usize, start: u64) -> FaultResult<Vec<u8>> {
        let mut bytes = vec![0; length];
        let got = retry_on_intr(|| pread(&self.file, &mut bytes[..], start));
        bytes.truncate(got.map_err(fault::os("read", self.path()))?);
        Ok(bytes)
    }

    /// The fault for a queue that this dlock cannot read.
    pub(super) fn newer(&self) -> Fault {
        let reason = format!("{} was written by a newer dlock; use that one", self.path().display());
        Fault::new(ErrorKind::Corrupt, reason)
    }

    /// Writes the queue: within the first page, if it has room there, or else beside what was read, which counts until
    /// the header is written. A kill can cut no write within a page.
    pub(super) fn write(&self, header: &mut Header, text: &[u8]) -> FaultResult<()> {
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
}
