//! Marks that the kernel removes when the processes that have them die.
//!
//! A keeper and its front have a [`MarkBoard`]: a pipe that other processes of the same user reach through the keeper's
//! /proc. A nested dlock sets a mark by taking a shared flock(2) on its own open file description of the pipe. The keeper,
//! or the front once the keeper is dead, checks whether any mark is left by requesting the exclusive lock. The keeper alone
//! has the writing end: the pipe hangs up when the keeper loses the lock or ends.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::fs::{FlockOperation, FsWord, Mode, OFlags, flock, fstat, fstatfs, open};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};
use rustix::process::getpid;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use crate::fd;

/// The reading end of the pipe of one keeper.
#[derive(Debug)]
pub struct MarkBoard(OwnedFd);

/// The address of a [`MarkBoard`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MarkAddress {
    path: String,
    /// 0 if the text lacks it; no board has that.
    #[serde(default)]
    device: u64,
    inode: u64,
}

/// A mark. It lasts until it is removed, or until no process has it or an anchor of it.
#[derive(Debug)]
pub struct Mark(OwnedFd);

/// The size of the pipe, in bytes: the least. Nothing is written to it, and the kernel limits the sum of a user's pipes.
const SIZE: usize = 4096;

/// The type of the file system that has all pipes without a name (`PIPEFS_MAGIC` of linux/magic.h).
const PIPEFS: FsWord = 0x5049_5045;

/// How often to try to remove a mark: one that stays by mistake keeps the hold.
const REMOVALS: usize = 8;

impl MarkBoard {
    /// Creates a board without marks, and its writing end.
    ///
    /// Errors: the system has no memory or descriptor left, or does not lock a pipe.
    pub fn new() -> io::Result<(Self, OwnedFd)> {
        let (board, writing_end) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let _ = fcntl_setpipe_size(&board, SIZE);
        // Fail here if a pipe cannot be locked: no mark could be set, and the wait for the last one would never end.
        flock(&board, FlockOperation::NonBlockingLockShared)?;
        Ok((Self(board), writing_end))
    }

    /// Returns where others find it while this process lives.
    pub fn address(&self) -> io::Result<MarkAddress> {
        let stat = fstat(&self.0)?;
        let path = format!("/proc/{}/fd/{}", getpid(), self.0.as_raw_fd());
        Ok(MarkAddress { path, device: stat.st_dev, inode: stat.st_ino })
    }

    /// Prevents further marks if none is set. Returns whether none was.
    pub fn try_clear(&self) -> bool {
        flock(&self.0, FlockOperation::NonBlockingLockExclusive).is_ok()
    }

    /// Completes when no mark is set, and prevents further ones. Keep the future until then: a dropped one leaves a
    /// thread behind that waits for the last mark or the end of the process.
    ///
    /// Errors: the system has no thread left, or fails to wait; marks may be left.
    pub fn cleared(&self) -> impl Future<Output = io::Result<()>> + use<> {
        // Without marks it needs nothing of the system.
        let board = (!self.try_clear()).then(|| self.0.as_fd().try_clone_to_owned());
        async move {
            let Some(board) = board.transpose()? else { return Ok(()) };
            let (tell, told) = oneshot::channel();
            std::thread::Builder::new().name("marks".into()).stack_size(64 << 10).spawn(move || {
                let cleared = loop {
                    match flock(&board, FlockOperation::LockExclusive) {
                        Err(Errno::INTR) => {}
                        cleared => break cleared,
                    }
                };
                // If the wait was dropped, there is no receiver.
                let _ = tell.send(cleared);
            })?;
            Ok(told.await.map_err(io::Error::other)??)
        }
    }
}

impl Mark {
    /// Returns another descriptor of it, which keeps it as well.
    pub fn anchor(&self) -> io::Result<OwnedFd> {
        self.0.try_clone()
    }

    /// Completes when the keeper of the board has lost its lock, or has ended. Needs a running tokio runtime.
    /// Cancel-safe.
    ///
    /// Errors: no descriptor or memory is left to wait with.
    pub async fn is_in_vain(&self) -> io::Result<()> {
        fd::watch(self.0.try_clone()?)?.readable().await.map(drop)
    }

    /// Removes it, even if other processes have anchors of it.
    pub fn remove(&self) {
        let _is_removed = (0..REMOVALS).any(|_| flock(&self.0, FlockOperation::Unlock).is_ok());
    }
}

impl MarkAddress {
    /// Sets a mark.
    ///
    /// Errors: `NotFound` if the board is gone, `WouldBlock` if it takes none any more, others of the system.
    pub fn set(&self) -> io::Result<Mark> {
        let board = self.open()?;
        flock(&board, FlockOperation::NonBlockingLockShared)?;
        Ok(Mark(board))
    }

    /// Returns whether the board is known to be gone, or to take no marks any more.
    pub fn takes_none(&self) -> bool {
        let over = [io::ErrorKind::NotFound, io::ErrorKind::WouldBlock];
        // Not known is not gone: the board may be another user's, or there may be no descriptor left to check with.
        self.set().is_err_and(|error| over.contains(&error.kind()))
    }

    /// Opens the board. The address comes from the environment, so any process may have written it, and its pid and
    /// number may mean something else by now. Opening a FIFO, a terminal or a device has effects, so this opens only
    /// what is known to be the board.
    fn open(&self) -> io::Result<OwnedFd> {
        let another = || io::Error::from(io::ErrorKind::NotFound);
        if !is_descriptor(&self.path) {
            return Err(another());
        }
        let found = open(&self.path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let stat = fstat(&found)?;
        let is_pipe = fstatfs(&found)?.f_type == PIPEFS;
        if !is_pipe || (stat.st_dev, stat.st_ino) != (self.device, self.inode) {
            return Err(another());
        }
        let same = format!("/proc/self/fd/{}", found.as_raw_fd());
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        Ok(open(same, flags, Mode::empty())?)
    }
}

/// Returns whether `path` is `/proc/PID/fd/NUMBER`.
fn is_descriptor(path: &str) -> bool {
    let number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let parts = path.strip_prefix("/proc/").and_then(|rest| rest.split_once("/fd/"));
    parts.is_some_and(|(pid, descriptor)| number(pid) && number(descriptor))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::FileType;

    #[tokio::test]
    async fn failed_wait_does_not_clear_the_board() {
        // flock(2) refuses this one, as a system without memory for locks refuses any.
        let unlockable =
            open("/dev/null", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).expect("a descriptor");
        assert!(MarkBoard(unlockable).cleared().await.is_err());
    }

    #[test]
    fn other_file_than_a_board_is_neither_opened_nor_awaited() {
        let path = std::env::temp_dir().join(format!("dlock-test-mark-{}", std::process::id()));
        rustix::fs::mknodat(rustix::fs::CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)
            .expect("a FIFO");
        let stat = rustix::fs::stat(&path).expect("its stat");
        // Opened to read and write, which does not block.
        let fifo = open(&path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).expect("an open FIFO");
        let number = fifo.as_raw_fd();
        let paths = [path.display().to_string(), format!("/proc/{}/fd/{number}", getpid())];
        for path in paths {
            let address = MarkAddress { path, device: stat.st_dev, inode: stat.st_ino };
            let (told, result) = std::sync::mpsc::channel();
            std::thread::spawn(move || told.send(address.set().is_err()));
            let refused = result.recv_timeout(std::time::Duration::from_secs(5));
            assert_eq!(refused, Ok(true), "a FIFO is no board");
        }
        drop(fifo);
        std::fs::remove_file(path).expect("removed");
    }

    #[test]
    fn board_address_is_a_descriptor_path() {
        assert!(is_descriptor("/proc/12/fd/3"));
        for path in ["/proc/12/fd/", "/proc//fd/3", "/proc/1/../2/fd/3", "/proc/self/fd/3", "/dev/tty", ""] {
            assert!(!is_descriptor(path), "{path}");
        }
    }
}
