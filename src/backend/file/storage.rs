//! The queue file on disk, read and changed under its guard.

use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{FallocateFlags, OFlags, fallocate, fdatasync, fstat, ftruncate};
use rustix::io::{Errno, pread, pwrite};

use super::directory::{Directory, Identity, Opened, identity_of};
use super::fault;
use super::fifo::{self, Life};
use super::guard::{Failed, Guard, GuardFile};
use super::header::{HEADER, Header};
use super::locker::Locks;
use super::names::FileNames;
use super::queue::{FIXED, Image, Record, State, Which, in_one_page, padding};
use super::surroundings;
use super::token;
use crate::backend::success;
use crate::lock::{ClaimId, ErrorKind, LockName, Moment};
use crate::net::fault::{Fault, FaultResult};

/// How many bytes are read at once: all of a short queue.
const CHUNK: usize = 8192;
/// How many bytes of a dead front are freed in the file system at once.
const HOLE: u64 = 64 * 1024;

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

/// A queue as read under its guard.
#[derive(Debug)]
pub(super) struct ReadQueue {
    pub(super) header: Header,
    /// Whether the header on disk is lost or has another start.
    pub(super) unwritten: bool,
    pub(super) image: Image,
    /// Whether it was read to its end.
    pub(super) whole: bool,
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

    /// Reads the queue, up to the first record that ends behind the offset `until`, or all of it.
    pub(super) fn read(&self, until: Option<u64>) -> FaultResult<ReadQueue> {
        let mut bytes = vec![0; CHUNK];
        let got = self.pread(&mut bytes, 0)?;
        bytes.truncate(got);
        let (mut header, mut unwritten) = match Header::parse(&bytes) {
            Ok(Some(header)) => (header, false),
            Ok(None) => (token::fresh(self.lock.as_str(), self.directory.boot()), true),
            Err(_) => {
                let reason = format!("{} was written by a newer dlock; use that one", self.path().display());
                return Err(Fault::new(ErrorKind::Corrupt, reason));
            }
        };
        let mut end = got < CHUNK;
        if header.start < got as u64 {
            bytes.drain(..usize::try_from(header.start).unwrap_or(HEADER).max(HEADER).min(got));
        } else {
            bytes.clear();
        }
        while !end && until.is_none_or(|u| header.start + (bytes.len() as u64) < u) {
            let from = bytes.len();
            bytes.resize(from + CHUNK.max(from), 0);
            let got = self.pread(&mut bytes[from..], header.start + from as u64)?;
            end = got < bytes.len() - from;
            bytes.truncate(from + got);
        }
        if bytes.is_empty() && header.start != HEADER as u64 {
            // The queue was emptied, and the start in the header is no longer valid.
            header.start = HEADER as u64;
            unwritten = true;
        }
        let image = Image::parse(header.start, bytes, until);
        let whole = end && !image.cut;
        Ok(ReadQueue { header, unwritten, image, whole })
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

    fn write(&self, mut bytes: &[u8], mut at: u64) -> FaultResult<()> {
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

    fn truncate(&self, length: u64) -> FaultResult<()> {
        ftruncate(&self.file, length).map_err(fault::os("truncate", self.path()))
    }

    /// Returns the process of the claim that has this FIFO, as seen in this PID namespace.
    pub(super) fn owner(&self, fifo: &OwnedFd, locks: &Locks) -> FaultResult<Option<u32>> {
        let stat = fstat(fifo).map_err(fault::os("examine", self.path()))?;
        Ok(locks.lockers(identity_of(&stat)).first().map(|locker| locker.pid))
    }

    /// Writes the header.
    pub(super) fn write_header(&self, header: &Header) -> FaultResult<()> {
        self.write(&header.print(), 0)
    }

    /// Writes the header with its start moved up to `start`, and frees the space in front of it.
    pub(super) fn advance(&self, header: &mut Header, start: u64) -> FaultResult<()> {
        let before = std::mem::replace(&mut header.start, start);
        self.write_header(header)?;
        self.give_back(before, start);
        Ok(())
    }

    /// Frees the space in front of `start`, once the header no longer says `before`. Earlier, a reader would begin
    /// in the hole and take the first record for the end of it.
    fn give_back(&self, before: u64, start: u64) {
        if before / HOLE != start / HOLE {
            let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            let _ = fallocate(&self.file, hole, 4096, (start - start % 4096).saturating_sub(4096));
        }
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

    /// Appends `text`, whose first `whole` bytes are written all or not at all. Writes the header too if it is
    /// unwritten or `header_too` is set. Returns where `text` begins.
    pub(super) fn append(
        &self,
        queue: &mut ReadQueue,
        text: &[u8],
        whole: usize,
        header_too: bool,
    ) -> FaultResult<u64> {
        if queue.image.records.is_empty() && queue.image.end > HEADER as u64 {
            self.truncate(HEADER as u64)?;
            queue.unwritten |= queue.header.start != HEADER as u64;
            queue.header.start = HEADER as u64;
            queue.image.end = HEADER as u64;
        } else if queue.image.torn {
            self.truncate(queue.image.end)?;
        }
        queue.image.torn = false;
        let header_too = header_too || queue.unwritten;
        let before = queue.header.start;
        if let (true, Some(first)) = (header_too, queue.image.records.first()) {
            queue.header.start = first.at;
        }
        let pad = padding(queue.image.end, whole);
        let at = queue.image.end + pad as u64;
        let mut bytes = vec![b' '; pad];
        if pad > 0 {
            bytes[pad - 1] = b'\n';
        }
        bytes.extend_from_slice(text);
        let written =
            if header_too && queue.image.end == HEADER as u64 && in_one_page(0, HEADER + bytes.len()) {
                let mut both = queue.header.print();
                both.extend(bytes);
                self.write(&both, 0)
            } else {
                let header = if header_too { self.write_header(&queue.header) } else { Ok(()) };
                header.and_then(|()| self.write(&bytes, queue.image.end))
            };
        if let Err(fault) = written {
            let _ = self.truncate(queue.image.end);
            return Err(fault);
        }
        self.give_back(before, queue.header.start);
        queue.unwritten = false;
        queue.image.end = at + text.len() as u64;
        Ok(at)
    }

    /// Writes `text` over the bytes at `at`, within one page.
    pub(super) fn overwrite(&self, at: u64, text: &[u8]) -> FaultResult<()> {
        debug_assert!(in_one_page(at, text.len()), "a kill could cut this");
        self.write(text, at)
    }

    /// Sets the state of the record at `at`.
    pub(super) fn set_state(&self, at: u64, state: State) -> FaultResult<()> {
        self.write(&[state.letter()], at)
    }

    /// Reads the fixed part of the record at `at`; needs no guard.
    pub(super) fn read_fixed(&self, at: u64) -> FaultResult<[u8; FIXED]> {
        let mut bytes = [0; FIXED];
        self.pread(&mut bytes, at)?;
        Ok(bytes)
    }

    /// Removes the record at `at`; the last one leaves an empty queue. `succeeded` is the time of a success to record,
    /// unless a later one is known.
    pub(super) fn remove(&self, id: ClaimId, at: u64, end: u64, succeeded: Option<u64>) -> FaultResult<()> {
        let mut queue = self.read(Some(end + 1))?;
        let others = queue.image.records.iter().any(|r| r.fixed.id != id);
        let own = queue.image.records.iter().any(|r| r.fixed.id == id && r.at == at);
        if let Some(when) = succeeded {
            let [now, known, when] = [token::wall(), queue.header.success, when].map(Duration::from_micros);
            let latest = success::latest(now, known, when).as_micros();
            queue.header.success = u64::try_from(latest).unwrap_or(u64::MAX);
        }
        if own && queue.whole && !others {
            queue.header.start = HEADER as u64;
            if succeeded.is_some() {
                self.write_header(&queue.header)?;
            }
            return self.truncate(HEADER as u64);
        }
        // The last record gives its room back. Otherwise a queue that is never empty would grow for ever.
        let kept = (own && queue.whole).then(|| queue.image.end_without(id)).filter(|kept| *kept <= at);
        if succeeded.is_some() || queue.unwritten {
            self.write_header(&queue.header)?;
        }
        match kept {
            Some(kept) => self.truncate(kept),
            None if own => self.set_state(at, State::Gone),
            None => Ok(()),
        }
    }

    /// Returns the name of the FIFO of `record`'s claim.
    pub(super) fn fifo_of(&self, queue: &ReadQueue, record: &Record) -> FaultResult<String> {
        let id = record.fixed.id;
        match record.fixed.fifo {
            Which::Kept => return Ok(self.files.kept_fifo()),
            Which::Own => return Ok(self.files.fifo(id)),
            Which::First => {}
        }
        let names = queue.image.details(record).map(|d| d.names).unwrap_or_default();
        match names.first().and_then(|n| LockName::new(n.as_str()).ok()) {
            Some(first) => Ok(self.directory.naming.of(&first)?.fifo(id)),
            None => Ok(self.files.fifo(id)),
        }
    }

    /// Returns whether the claim of `record` lives.
    pub(super) fn life(&self, queue: &ReadQueue, record: &Record) -> FaultResult<Life> {
        fifo::probe(&self.directory, &self.fifo_of(queue, record)?)
    }

    /// Removes a dead claim's record and FIFO.
    pub(super) fn bury(&self, queue: &ReadQueue, record: &Record) -> FaultResult<()> {
        if record.fixed.fifo != Which::Kept {
            self.directory.unlink(&self.fifo_of(queue, record)?);
        }
        self.set_state(record.at, State::Gone)
    }

    /// Tells the claim of `record` to look again.
    pub(super) fn wake(&self, queue: &ReadQueue, record: &Record) -> FaultResult<()> {
        fifo::wake(&self.directory, &self.fifo_of(queue, record)?)
    }
}

/// Takes the guards of `queues`, which must be in the order of their files.
pub(super) async fn guards(queues: &[Arc<QueueFile>], deadline: Moment) -> FaultResult<Vec<Guard>> {
    let mut guards = Vec::with_capacity(queues.len());
    for queue in queues {
        guards.push(queue.guard(deadline).await?);
    }
    Ok(guards)
}
