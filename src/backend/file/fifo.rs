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
use super::fault::{self, PLANTED, is_one_of};
use super::flock::try_lock;
use crate::fd;
use crate::lock::ErrorKind;
use crate::net::fault::{Fault, FaultResult};

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

/// Returns the FIFO `file`, open for reading, if its owner lives.
pub(super) fn probe(directory: &Directory, file: &str) -> FaultResult<Option<OwnedFd>> {
    // Opened before the test: the end of a writer is reported only if the writer had it open at that time.
    let fd = match directory.open(FileType::Fifo, file, OFlags::RDONLY) {
        Ok(Some(fd)) => fd,
        // Something else in its place counts as no FIFO: a hold still has its lock file.
        Ok(None) => return Ok(None),
        Err(fault) if fault.code == PLANTED => return Ok(None),
        Err(fault) => return Err(fault),
    };
    let free = try_lock(&fd, false).map_err(fault::os("lock", directory.path_of(file)))?;
    Ok((!free).then_some(fd))
}

/// Tells the owner of the FIFO `file` to look again. A dead owner is no failure.
pub(super) fn wake(directory: &Directory, file: &str) -> FaultResult<()> {
    let fd = match directory.open(FileType::Fifo, file, OFlags::WRONLY) {
        Ok(Some(fd)) => fd,
        // Without a reader the owner is dead.
        Ok(None) => return Ok(()),
        Err(fault) if fault.code == PLANTED || is_one_of(&fault, &[Errno::NXIO]) => return Ok(()),
        Err(fault) => return Err(fault),
    };
    match rustix::io::write(&fd, b"!") {
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
