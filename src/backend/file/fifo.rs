//! FIFOs, by which the kernel shows that a claim lives and reports its end to its successor.
//!
//! A claim's owner keeps its FIFO open for reading and writing, and flocked. While it does, the claim lives, in
//! whatever PID namespace. A successor opens the FIFO for reading and waits until its last writer is gone. The kernel
//! reports the owner's death in the same way as its leaving. A byte written into the FIFO means "look again".

use super::fault::{self, PLANTED, is_one_of};
use crate::fd;
use crate::net::fault::{Fault, FaultResult};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::OFlags;
use rustix::io::Errno;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::directory::Directory;
use super::guard::try_lock;

/// Whether a claim lives.
pub(super) enum Life {
    /// It lives; its FIFO, open for reading.
    Alive(OwnedFd),
    /// It does not live.
    Dead,
}

/// Creates the FIFO `file`, which is called `unready` until it is ready, and flocks it for this process.
pub(super) fn make(directory: &Directory, file: &str, unready: &str) -> FaultResult<Arc<OwnedFd>> {
    let fd = directory.make_fifo(file, unready)?;
    let locked = try_lock(&fd, true).map_err(fault::os("lock", directory.path_of(file)))?;
    if locked { Ok(Arc::new(fd)) } else { Err(fault::os("lock", directory.path_of(file))(Errno::WOULDBLOCK)) }
}

/// Opens the FIFO `file`, which is kept, and flocks it for this process. Creates it if it is missing, as [`make`] does.
/// Returns `None` if another process has it locked or this user may not use it.
pub(super) fn keep(directory: &Directory, file: &str, unready: &str) -> Option<Arc<OwnedFd>> {
    let fd = match directory.open_fifo(file, OFlags::RDWR) {
        Ok(Some(fd)) => fd,
        Ok(None) => directory.make_fifo(file, unready).ok()?,
        Err(_) => return None,
    };
    try_lock(&fd, true).is_ok_and(|locked| locked).then(|| Arc::new(fd))
}

/// Returns whether the owner of the FIFO `file` lives.
pub(super) fn probe(directory: &Directory, file: &str) -> FaultResult<Life> {
    // Opened before the test: the end of a writer is reported only if the writer had it open at that time.
    let fd = match directory.open_fifo(file, OFlags::RDONLY) {
        Ok(Some(fd)) => fd,
        // Something else in its place counts as no FIFO: a hold still has its lock file.
        Ok(None) => return Ok(Life::Dead),
        Err(fault) if fault.code == PLANTED => return Ok(Life::Dead),
        Err(fault) => return Err(fault),
    };
    let free = try_lock(&fd, false).map_err(fault::os("lock", directory.path_of(file)))?;
    Ok(if free { Life::Dead } else { Life::Alive(fd) })
}

/// Tells the owner of the FIFO `file` to look again. A dead owner is no failure.
pub(super) fn wake(directory: &Directory, file: &str) -> FaultResult<()> {
    let fd = match directory.open_fifo(file, OFlags::WRONLY) {
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

/// Waits for the end of another process's claim.
#[derive(Debug)]
pub(super) struct Watch(AsyncFd<OwnedFd>);

impl Watch {
    pub(super) fn new(fifo: OwnedFd) -> FaultResult<Self> {
        register(fifo).map(Self)
    }

    /// Completes when the owner has closed the FIFO. Cancel-safe.
    pub(super) async fn ended(&self) {
        loop {
            match self.0.ready(Interest::READABLE).await {
                Ok(mut ready) if !ready.ready().is_read_closed() => {
                    // The bytes are for the owner.
                    ready.clear_ready();
                }
                _ => return,
            }
        }
    }
}

/// The claim's own FIFO, listening.
#[derive(Debug)]
pub(super) struct Listener(AsyncFd<Arc<OwnedFd>>);

impl Listener {
    pub(super) fn new(fifo: Arc<OwnedFd>) -> FaultResult<Self> {
        register(fifo).map(Self)
    }

    /// Completes when another process has asked for a look. Cancel-safe, but look again after a drop, too.
    pub(super) async fn heard(&self) {
        let mut buffer = [0; 64];
        loop {
            let Ok(mut ready) = self.0.readable().await else { return };
            let mut heard = false;
            while rustix::io::read(self.0.get_ref(), &mut buffer).is_ok_and(|n| n > 0) {
                heard = true;
            }
            ready.clear_ready();
            if heard {
                return;
            }
        }
    }
}

/// Registers `fd` with the runtime, so that tasks can wait for it.
pub(super) fn register<T: fd::Owner>(fd: T) -> FaultResult<AsyncFd<T>> {
    fd::watch(fd).map_err(|e| {
        Fault::new(crate::lock::ErrorKind::System, format!("cannot wait for other processes: {e}"))
    })
}
