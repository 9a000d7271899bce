//! Marks that the kernel drops when their process dies.
//!
//! A keeper owns a [`MarkBoard`]: an anonymous file that other processes of the same user reach through
//! /proc. A nested dlock sets a mark by taking a shared flock(2) on its own open file description of it; the
//! keeper sees whether any mark is left by asking for the exclusive one.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use rustix::fs::{FlockOperation, MemfdFlags, flock, memfd_create};
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
    inode: u64,
}

/// A mark, until it is dropped or its process dies.
#[derive(Debug)]
pub struct Mark(#[expect(dead_code, reason = "the open descriptor is the mark")] OwnedFd);

impl MarkBoard {
    /// A new board without marks.
    pub fn new() -> io::Result<Self> {
        Ok(Self(memfd_create(c"dlock-marks", MemfdFlags::CLOEXEC)?))
    }

    /// Where others find it, as long as this process lives.
    pub fn address(&self) -> io::Result<MarkAddress> {
        let inode = rustix::fs::fstat(&self.0)?.st_ino;
        Ok(MarkAddress { path: format!("/proc/{}/fd/{}", getpid(), self.0.as_raw_fd()), inode })
    }

    /// Prevents further marks if none is set; whether that was so.
    pub fn try_clear(&self) -> bool {
        flock(&self.0, FlockOperation::NonBlockingLockExclusive).is_ok()
    }

    /// Completes when no mark is set, and prevents further ones. Keep it until then: a dropped one leaves a
    /// thread behind that waits for the last mark or the end of the process.
    pub fn cleared(&self) -> impl Future<Output = io::Result<()>> + use<> {
        let board = self.0.as_fd().try_clone_to_owned();
        async move {
            let board = board?;
            let (tell, told) = oneshot::channel();
            std::thread::Builder::new().name("marks".into()).stack_size(64 << 10).spawn(move || {
                while flock(&board, FlockOperation::LockExclusive) == Err(Errno::INTR) {}
                // Nobody listens any more if the wait was given up.
                let _ = tell.send(());
            })?;
            told.await.map_err(io::Error::other)
        }
    }
}

impl MarkAddress {
    /// Sets a mark, unless the board is gone or no longer takes any.
    pub fn set(&self) -> io::Result<Mark> {
        let board = File::open(&self.path)?;
        // The pid and the number may have come to mean something else.
        if board.metadata()?.ino() != self.inode {
            return Err(io::ErrorKind::NotFound.into());
        }
        flock(&board, FlockOperation::NonBlockingLockShared)?;
        Ok(Mark(board.into()))
    }
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

    #[test]
    fn another_file_at_the_address_is_not_taken_for_the_board() {
        let board = MarkBoard::new().expect("a memfd");
        let mut address = board.address().expect("an address");
        address.inode += 1;
        assert!(address.set().is_err());
    }

    fn futures_poll<F: Future + Unpin>(future: &mut F) -> std::task::Poll<F::Output> {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        std::pin::Pin::new(future).poll(&mut context)
    }
}
