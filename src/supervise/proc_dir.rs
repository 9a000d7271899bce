//! One process, as a directory that is a /proc shows it.

use std::cell::{Cell, RefCell};
use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags, RawDir, openat};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::carrier::Reader;
use super::proc_files::{Process, number, parse, parse_environment};
use crate::clock::now;

/// The longest wait for the end of a process before looking at it again.
const SLICE: Duration = Duration::from_millis(1);

/// The directory, and spare descriptors to give up for a moment when the system has none left.
#[derive(Debug)]
pub(super) struct Directory {
    pub(super) proc: OwnedFd,
    spare: [RefCell<Option<OwnedFd>>; 2],
}

impl Directory {
    pub(super) fn new(proc: OwnedFd) -> io::Result<Self> {
        let spare = || fcntl_dupfd_cloexec(&proc, 3).map(|fd| RefCell::new(Some(fd)));
        Ok(Self { spare: [spare()?, spare()?], proc })
    }

    /// Calls `open`. If the system has no descriptor left, gives up a spare one and tries again.
    pub(super) fn open(&self, open: impl Fn() -> Result<OwnedFd, Errno>) -> Result<OwnedFd, Errno> {
        let mut spare = self.spare.iter();
        loop {
            match open() {
                Err(Errno::INTR) => {}
                Err(scarce @ (Errno::MFILE | Errno::NFILE)) => match spare.next() {
                    Some(cell) => drop(cell.take()),
                    None => return Err(scarce),
                },
                other => return other,
            }
        }
    }

    /// Replaces the spare descriptors that were given up. Call it after closing what was opened.
    pub(super) fn restore(&self) {
        for cell in &self.spare {
            let mut spare = cell.borrow_mut();
            if spare.is_none() {
                *spare = fcntl_dupfd_cloexec(&self.proc, 3).ok();
            }
        }
    }

    fn file(&self, pid: i32, name: &str, more: OFlags) -> Result<OwnedFd, Errno> {
        let mut path = [0; 24];
        let path = path_of(pid, name, &mut path);
        self.open(|| openat(&self.proc, path, OFlags::RDONLY | OFlags::CLOEXEC | more, Mode::empty()))
    }

    /// Returns the state of `pid`, or `None` if there is no such process. If its first thread has ended, the state is
    /// that of another thread, if it can be read.
    pub(super) fn stat(&self, pid: i32) -> Result<Option<Process>, Errno> {
        let found = self.thread_stat(pid)?;
        let Some(process) = found.filter(|p| p.is_zombie() && p.threads > 1) else { return Ok(found) };
        let other = self.any_thread(pid, |thread| {
            Ok(self.thread_stat(thread)?.filter(|other| !other.is_zombie()).map(|other| other.state))
        });
        Ok(Some(Process { state: other.ok().flatten().unwrap_or(process.state), ..process }))
    }

    /// Returns the state of one thread alone.
    fn thread_stat(&self, pid: i32) -> Result<Option<Process>, Errno> {
        // The name has at most 64 bytes, and each number after it at most 20.
        self.read_stat(pid, &mut [0; 512], |text| parse(pid, text))
    }

    /// Returns the result of `parse` on /proc/PID/stat, as far as that fits into `room`.
    fn read_stat<T>(
        &self,
        pid: i32,
        room: &mut [u8],
        parse: impl Fn(&[u8]) -> Option<T>,
    ) -> Result<Option<T>, Errno> {
        let file = match self.file(pid, "stat", OFlags::empty()) {
            Err(Errno::NOENT | Errno::SRCH) => return Ok(None),
            other => other?,
        };
        let read = read(&file, room);
        drop(file);
        self.restore();
        match read {
            Err(Errno::SRCH) => Ok(None),
            Ok(length) => parse(&room[..length]).map(Some).ok_or(Errno::IO),
            Err(errno) => Err(errno),
        }
    }

    /// Returns whether a process has `claim` in the environment that it was started with, or `None` if that is unknown
    /// at this moment: an exiting process has lost its memory, and one that executes a program has no environment yet.
    ///
    /// All threads share one memory, but that of a first thread that has ended cannot be read.
    ///
    /// Errors: `ACCESS` or `PERM` if this process may not inspect that one, which may have executed a set-uid program.
    pub(super) fn carries(&self, process: Process, claim: u128) -> Result<Option<bool>, Errno> {
        if process.is_of_kernel() {
            return Ok(Some(false));
        }
        if let Some(carries) = self.thread_carries(process.pid, claim)? {
            return Ok(Some(carries));
        }
        match self.stat(process.pid)? {
            Some(now) if now.born != process.born || now.has_ended() => Ok(Some(false)),
            None => Ok(Some(false)),
            Some(now) if now.is_exiting() => {
                self.any_thread(process.pid, |thread| self.thread_carries(thread, claim))
            }
            Some(_) => Ok(None),
        }
    }

    /// Waits for the end of `process`, but at most for [`SLICE`] or for what is left of `patience`. Subtracts the time
    /// from `patience`.
    ///
    /// Errors: `AGAIN` if no patience is left; others of the system.
    pub(super) fn await_end(&self, process: Process, patience: &Cell<Duration>) -> Result<(), Errno> {
        let slice = patience.get().min(SLICE);
        if slice.is_zero() {
            return Err(Errno::AGAIN);
        }
        let pid = Pid::from_raw(process.pid).ok_or(Errno::SRCH)?;
        let handle = match self.open(|| pidfd_open(pid, PidfdFlags::empty())) {
            Err(Errno::SRCH) => return Ok(()),
            other => other?,
        };
        let begun = now();
        let limit = Timespec::try_from(slice).map_err(|_| Errno::INVAL)?;
        let ended = poll(&mut [PollFd::new(&handle, PollFlags::IN)], Some(&limit));
        patience.set(patience.get().saturating_sub(now().since(begun)));
        drop(handle);
        self.restore();
        ended.map(|_| ())
    }

    /// Calls `read` for the threads of `pid` until it finds something, and returns that.
    fn any_thread<T>(
        &self,
        pid: i32,
        read: impl Fn(i32) -> Result<Option<T>, Errno>,
    ) -> Result<Option<T>, Errno> {
        let threads = match self.file(pid, "task", OFlags::DIRECTORY) {
            Err(Errno::NOENT | Errno::SRCH) => return Ok(None),
            other => other?,
        };
        let mut buffer = [MaybeUninit::uninit(); 1 << 10];
        let mut entries = RawDir::new(&threads, &mut buffer);
        let found = loop {
            let entry = match entries.next() {
                None | Some(Err(Errno::NOENT | Errno::SRCH)) => break Ok(None),
                Some(Err(errno)) => break Err(errno),
                Some(Ok(entry)) => entry,
            };
            // A thread has a directory as a process does, though /proc does not list it.
            let Some(thread) = number(entry.file_name().to_bytes()) else { continue };
            let found = read(thread);
            if !matches!(found, Ok(None)) {
                break found;
            }
        };
        drop(threads);
        self.restore();
        found
    }

    /// Returns for one thread what [`Directory::carries`] returns for a process.
    fn thread_carries(&self, thread: i32, claim: u128) -> Result<Option<bool>, Errno> {
        let found = self.environment_has(thread, claim)?;
        if found.is_some() {
            return Ok(found);
        }
        // The environment is empty, or could not be read just then: the kernel sets its end last.
        let bounds = self.read_stat(thread, &mut [0; 1536], parse_environment)?;
        Ok(bounds.filter(|(begin, end)| begin == end && *end != 0).map(|_| false))
    }

    /// Returns whether the environment that one thread was started with has `claim`, or `None` if it is empty.
    fn environment_has(&self, thread: i32, claim: u128) -> Result<Option<bool>, Errno> {
        let file = match self.file(thread, "environ", OFlags::empty()) {
            Err(Errno::NOENT | Errno::SRCH) => return Ok(None),
            other => other?,
        };
        let mut reader = Reader::new(claim);
        let mut text = [0; 4096];
        let mut carries = None;
        let read = loop {
            match read(&file, &mut text) {
                Ok(0) | Err(Errno::SRCH) => break Ok(carries),
                Ok(length) => carries = Some(reader.finds(&text[..length])),
                Err(errno) => break Err(errno),
            }
            if carries == Some(true) {
                break Ok(carries);
            }
        };
        drop(file);
        self.restore();
        read
    }
}

fn read(file: &OwnedFd, text: &mut [u8]) -> Result<usize, Errno> {
    loop {
        match rustix::io::read(file, &mut *text) {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}

/// Writes `PID/NAME` into `room`, which is zeroed.
fn path_of<'a>(pid: i32, name: &str, room: &'a mut [u8; 24]) -> &'a CStr {
    use std::io::Write as _;
    // Ten digits, a sign, a name and the NUL fit.
    let _ = write!(&mut room[..23], "{pid}/{name}");
    CStr::from_bytes_until_nul(room).unwrap_or(c"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_pid_has_room() {
        assert_eq!(path_of(i32::MIN, "environ", &mut [0; 24]), c"-2147483648/environ");
    }
}
