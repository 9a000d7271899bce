//! The flock on a lock file or slot file, which also excludes `flock(1)`.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::Errno;
use tokio::sync::oneshot::{self, error::TryRecvError};

use super::directory::Directory;
use super::fault;
use super::fifo;
use super::flock::{self, Flock, try_lock};
use crate::lock::ErrorKind;
use crate::net::fault::{Fault, FaultResult};

/// One lock file, opened.
#[derive(Debug)]
pub(super) struct Hold {
    pub(super) name: String,
    pub(super) file: Arc<OwnedFd>,
    locked: bool,
    /// The lock that a thread waits for, through a descriptor of its own.
    pending: Option<oneshot::Receiver<Result<Flock, Errno>>>,
}

impl Hold {
    pub(super) fn open(directory: &Directory, name: String) -> FaultResult<Self> {
        let file = Arc::new(directory.open_lock(&name)?);
        Ok(Self { name, file, locked: false, pending: None })
    }

    /// Takes the lock if it is free, on the file that is at the path now. Returns whether it has the lock.
    pub(super) fn try_lock(&mut self, directory: &Directory, exclusive: bool) -> FaultResult<bool> {
        let path = directory.path_of(&self.name);
        loop {
            if let Some(pending) = &mut self.pending {
                let ended = match pending.try_recv() {
                    Err(TryRecvError::Empty) => return Ok(false),
                    ended => ended.unwrap_or(Err(Errno::CANCELED)),
                };
                self.pending = None;
                if let Some(file) = ended.map_err(fault::os("lock", &path))?.keep() {
                    (self.file, self.locked) = (file, true);
                }
            }
            if !self.locked {
                self.locked = try_lock(&self.file, exclusive).map_err(fault::os("lock", &path))?;
            }
            if !self.locked || !directory.is_replaced(&self.name, &self.file)? {
                return Ok(self.locked);
            }
            *self = Self::open(directory, std::mem::take(&mut self.name))?;
            if directory.is_replaced(&self.name, &self.file)? {
                let path = directory.path().display();
                let reason =
                    format!("the lock directory {path} was replaced since dlock started; start it again");
                return Err(Fault::new(ErrorKind::Unwritable, reason));
            }
        }
    }

    /// Releases the lock, even if other processes inherited the descriptor. One that a thread has got ends too, as it is
    /// dropped.
    pub(super) fn unlock(&mut self) {
        self.pending.take_if(|pending| !matches!(pending.try_recv(), Err(TryRecvError::Empty)));
        if self.locked {
            flock::unlock(&self.file);
            self.locked = false;
        }
    }

    /// Waits for the lock in a thread, which then wakes the owner of `fifo`, if that is still there.
    pub(super) fn wait(
        &mut self,
        directory: &Directory,
        exclusive: bool,
        fifo: &Arc<OwnedFd>,
    ) -> FaultResult<()> {
        if self.pending.is_none() {
            let (file, fifo) = (Arc::new(directory.open_lock(&self.name)?), Arc::downgrade(fifo));
            let (done, pending) = oneshot::channel();
            let then = move |lock| {
                drop(done.send(lock));
                let _ = fifo.upgrade().map(|fifo| rustix::io::write(fifo, fifo::WAKE));
            };
            let what = "start a thread that waits for";
            flock::wait(file, exclusive, then).map_err(fault::os(what, directory.path_of(&self.name)))?;
            self.pending = Some(pending);
        }
        Ok(())
    }
}
