//! Marks that the kernel drops when the processes die that have them.
//!
//! A keeper owns a [`MarkBoard`]: an anonymous file that other processes of the same user reach through
//! /proc. A nested dlock sets a mark by taking a shared flock(2) on its own open file description of it; the
//! keeper sees whether any mark is left by asking for the exclusive one.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::fs::{FileType, FlockOperation, MemfdFlags, Mode, OFlags, flock, fstat, memfd_create, open};
use rustix::io::Errno;
use rustix::process::getpid;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

/// The anonymous file of one keeper.
#[derive(Debug)]
pub struct MarkBoard(OwnedFd);

/// Where to find a [`MarkBoard`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MarkAddress {
    path: String,
    /// Of an address that does not say it: none that a board has.
    #[serde(default)]
    device: u64,
    inode: u64,
}

/// A mark, until it is removed, or until nobody has it or an anchor of it any more.
#[derive(Debug)]
pub struct Mark(OwnedFd);

/// How often removing a mark is tried: one that stays by mistake keeps the hold.
const REMOVALS: usize = 8;

impl MarkBoard {
    /// A new board without marks. Errors: the system has no memory or descriptor for it, or does not lock it.
    pub fn new() -> io::Result<Self> {
        let board = memfd_create(c"dlock-marks", MemfdFlags::CLOEXEC)?;
        // Where nothing can be locked no mark would be set, and the wait for none would have no end.
        flock(&board, FlockOperation::NonBlockingLockShared)?;
        Ok(Self(board))
    }

    /// Where others find it, as long as this process lives.
    pub fn address(&self) -> io::Result<MarkAddress> {
        let stat = fstat(&self.0)?;
        let path = format!("/proc/{}/fd/{}", getpid(), self.0.as_raw_fd());
        Ok(MarkAddress { path, device: stat.st_dev, inode: stat.st_ino })
    }

    /// Prevents further marks if none is set; whether that was so.
    pub fn try_clear(&self) -> bool {
        flock(&self.0, FlockOperation::NonBlockingLockExclusive).is_ok()
    }

    /// Completes when no mark is set, and prevents further ones. Keep it until then: a dropped one leaves a
    /// thread behind that waits for the last mark or the end of the process. Errors: the system has no thread for it, or does
    /// not say when; marks may be left.
    pub fn cleared(&self) -> impl Future<Output = io::Result<()>> + use<> {
        let board = self.0.as_fd().try_clone_to_owned();
        async move {
            let board = board?;
            if flock(&board, FlockOperation::NonBlockingLockExclusive).is_ok() {
                return Ok(());
            }
            let (tell, told) = oneshot::channel();
            std::thread::Builder::new().name("marks".into()).stack_size(64 << 10).spawn(move || {
                let cleared = loop {
                    match flock(&board, FlockOperation::LockExclusive) {
                        Err(Errno::INTR) => {}
                        cleared => break cleared,
                    }
                };
                // Nobody listens any more if the wait was given up.
                let _ = tell.send(cleared);
            })?;
            Ok(told.await.map_err(io::Error::other)??)
        }
    }
}

impl Mark {
    /// Another descriptor of it, which keeps it as well.
    pub fn anchor(&self) -> io::Result<OwnedFd> {
        self.0.try_clone()
    }

    /// Removes it, whoever has an anchor.
    pub fn remove(&self) {
        let _is_removed = (0..REMOVALS).any(|_| flock(&self.0, FlockOperation::Unlock).is_ok());
    }
}

impl MarkAddress {
    /// Sets a mark, unless the board is gone or no longer takes any.
    pub fn set(&self) -> io::Result<Mark> {
        let board = self.open()?;
        flock(&board, FlockOperation::NonBlockingLockShared)?;
        Ok(Mark(board))
    }

    /// Whether the board is known to be gone, or to take no mark any more.
    pub fn takes_none(&self) -> bool {
        let over = [io::ErrorKind::NotFound, io::ErrorKind::WouldBlock];
        // Not known is not gone: it may be another user's, or there may be no descriptor to look with.
        self.set().is_err_and(|error| over.contains(&error.kind()))
    }

    /// Opens the board. An address comes from the environment, where anybody may have written it, and the pid and the
    /// number in it may have come to mean something else: what is there is opened only once it is known to be the
    /// board, since to open a FIFO, a terminal or a device is to act on it.
    fn open(&self) -> io::Result<OwnedFd> {
        let another = || io::Error::from(io::ErrorKind::NotFound);
        if !is_descriptor(&self.path) {
            return Err(another());
        }
        let found = open(&self.path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let stat = fstat(&found)?;
        let regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        if !regular || (stat.st_dev, stat.st_ino) != (self.device, self.inode) {
            return Err(another());
        }
        let same = format!("/proc/self/fd/{}", found.as_raw_fd());
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        Ok(open(same, flags, Mode::empty())?)
    }
}

/// Whether `path` is `/proc/PID/fd/NUMBER`.
fn is_descriptor(path: &str) -> bool {
    let number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let parts = path.strip_prefix("/proc/").and_then(|rest| rest.split_once("/fd/"));
    parts.is_some_and(|(pid, descriptor)| number(pid) && number(descriptor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_board_is_cleared_when_the_last_mark_goes() {
        let board = MarkBoard::new().expect("a memfd");
        let address = board.address().expect("an address");
        let first = address.set().expect("a mark");
        let second = address.set().expect("another mark");
        let mut cleared = Box::pin(board.cleared());
        assert!(futures_poll(&mut cleared).is_pending());
        drop(first);
        assert!(futures_poll(&mut cleared).is_pending());
        drop(second);
        cleared.await.expect("cleared");
        assert!(address.set().is_err(), "a cleared board takes no mark");
    }

    #[tokio::test]
    async fn a_wait_that_fails_does_not_clear_the_board() {
        // Which flock(2) refuses, as a system without memory for locks refuses any.
        let unlockable =
            open("/dev/null", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).expect("a descriptor");
        assert!(MarkBoard(unlockable).cleared().await.is_err());
    }

    #[test]
    fn another_file_at_the_address_is_not_taken_for_the_board() {
        let board = MarkBoard::new().expect("a memfd");
        let address = board.address().expect("an address");
        assert!(MarkAddress { inode: address.inode + 1, ..address.clone() }.set().is_err());
        assert!(MarkAddress { device: address.device + 1, ..address }.set().is_err());
    }

    #[test]
    fn what_is_no_board_is_neither_waited_for_nor_opened() {
        let path = std::env::temp_dir().join(format!("dlock-test-mark-{}", std::process::id()));
        rustix::fs::mknodat(rustix::fs::CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)
            .expect("a FIFO");
        let stat = rustix::fs::stat(&path).expect("its stat");
        // Opened to read and write, which waits for nobody.
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
    fn an_address_is_that_of_a_descriptor() {
        assert!(is_descriptor("/proc/12/fd/3"));
        for path in ["/proc/12/fd/", "/proc//fd/3", "/proc/1/../2/fd/3", "/proc/self/fd/3", "/dev/tty", ""] {
            assert!(!is_descriptor(path), "{path}");
        }
    }

    fn futures_poll<F: Future + Unpin>(future: &mut F) -> std::task::Poll<F::Output> {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        std::pin::Pin::new(future).poll(&mut context)
    }
}
