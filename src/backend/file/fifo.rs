//! FIFOs, by which the kernel shows that a claim lives and reports its end to its successor.
//!
//! A claim's owner keeps its FIFO open for reading and writing, and flocked. While it does, the claim lives, in
//! whatever PID namespace. A successor opens the FIFO for reading and waits until its last writer is gone. The kernel
//! reports the owner's death in the same way as its leaving. A byte written into the FIFO means "look again".

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::directory::Directory;
use super::fault::{self, PLANTED};
use super::flock::try_lock;
use crate::fd;
use crate::lock::ErrorKind;
use crate::net::fault::{Fault, FaultResult};

/// The bytes that mean "look again".
pub(super) const WAKE: &[u8] = b"!";

/// Opens the FIFO `file` and flocks it for this process. Creates it if it is missing. Returns `None` if another process has
/// it locked.
pub(super) fn take(directory: &Directory, file: &str) -> FaultResult<Option<Arc<OwnedFd>>> {
    let fifo = match directory.open(FileType::Fifo, file, OFlags::RDWR)? {
        Some(fifo) => fifo,
        None => directory.make_fifo(file)?,
    };
    let locked = try_lock(&fifo, true).map_err(fault::os("lock", directory.path_of(file)))?;
    Ok(locked.then(|| Arc::new(fifo)))
}

/// Opens the FIFO `file`, if there is one. Something else in its place counts as none: a hold still has its lock file. So
/// does a FIFO without a reader, if it is opened for writing: its owner is dead.
fn open(directory: &Directory, file: &str, flags: OFlags) -> FaultResult<Option<OwnedFd>> {
    match directory.open(FileType::Fifo, file, flags) {
        Err(fault) if fault.code == PLANTED => Ok(None),
        opened => opened,
    }
}

/// Returns the FIFO `file`, open for reading, if its owner lives.
pub(super) fn probe(directory: &Directory, file: &str) -> FaultResult<Option<OwnedFd>> {
    // Opened before the test: the end of a writer is reported only if the writer had it open at that time.
    let Some(fifo) = open(directory, file, OFlags::RDONLY)? else { return Ok(None) };
    let free = try_lock(&fifo, false).map_err(fault::os("lock", directory.path_of(file)))?;
    Ok((!free).then_some(fifo))
}

/// Tells the owner of the FIFO `file` to look again. A dead owner is no failure.
pub(super) fn wake(directory: &Directory, file: &str) -> FaultResult<()> {
    let Some(fifo) = open(directory, file, OFlags::WRONLY)? else { return Ok(()) };
    match rustix::io::write(&fifo, WAKE) {
        // A full FIFO wakes its owner anyway, and an owner that closed it meanwhile has left.
        Ok(_) | Err(Errno::AGAIN | Errno::PIPE) => Ok(()),
        Err(errno) => Err(fault::os("write", directory.path_of(file))(errno)),
    }
}

/// Completes when the owner of another claim has closed its FIFO `fifo`. Cancel-safe.
pub(super) async fn ended(fifo: &AsyncFd<OwnedFd>) {
    loop {
        match fifo.ready(Interest::READABLE).await {
            Ok(mut ready) if !ready.ready().is_read_closed() => {
                // The bytes are for the owner.
                ready.clear_ready();
            }
            _ => return,
        }
    }
}

/// Completes when another process has asked for a look through the own FIFO `fifo`. Cancel-safe, but look again after a
/// drop, too.
pub(super) async fn heard(fifo: &AsyncFd<Arc<OwnedFd>>) {
    let mut buffer = [0; 64];
    loop {
        let Ok(mut ready) = fifo.readable().await else { return };
        let mut heard = false;
        while rustix::io::read(fifo.get_ref(), &mut buffer).is_ok_and(|n| n > 0) {
            heard = true;
        }
        ready.clear_ready();
        if heard {
            return;
        }
    }
}

/// Registers `fd` with the runtime, so that tasks can wait for it.
pub(super) fn register<T: fd::Owner>(fd: T) -> FaultResult<AsyncFd<T>> {
    fd::watch(fd).map_err(|e| Fault::new(ErrorKind::System, format!("cannot wait for other processes: {e}")))
}
