//! The flock on a lock file or slot file, which also excludes `flock(1)`.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::fstat;

use super::directory::{Directory, Identity, identity_of};
use super::fault;
use super::guard::{self, Pending};
use super::surroundings;
use crate::net::fault::FaultResult;

/// One lock file, opened.
#[derive(Debug)]
pub(super) struct Hold {
    pub(super) name: String,
    file: Arc<OwnedFd>,
    identity: Identity,
    locked: bool,
    /// A thread that waits for the lock. Until it has the lock, nothing else may lock through this descriptor.
    pending: Option<Arc<Pending>>,
}

impl Hold {
    pub(super) fn open(directory: &Directory, name: String) -> FaultResult<Self> {
        let (file, stat) = directory.open_lock(&name)?;
        let identity = identity_of(&stat);
        Ok(Self { name, file: Arc::new(file), identity, locked: false, pending: None })
    }

    fn reopen(&mut self, directory: &Directory) -> FaultResult<()> {
        *self = Self::open(directory, std::mem::take(&mut self.name))?;
        Ok(())
    }

    /// Takes the lock if it is free, on the file that is at the path now. Returns whether it has the lock.
    pub(super) fn try_lock(&mut self, directory: &Directory, exclusive: bool) -> FaultResult<bool> {
        loop {
            if let Some(pending) = &self.pending {
                match pending.take() {
                    None => return Ok(false),
                    Some(Ok(lock)) => lock.keep(),
                    Some(Err(errno)) => {
                        self.pending = None;
                        return Err(fault::os("lock", directory.path_of(&self.name))(errno));
                    }
                }
                self.pending = None;
                self.locked = true;
            }
            if !self.locked {
                let at = || directory.path_of(&self.name);
                if !guard::try_lock(&self.file, exclusive).map_err(fault::os("lock", at()))? {
                    return Ok(false);
                }
                self.locked = true;
            }
            if !self.is_replaced(directory)? {
                return Ok(true);
            }
            let before = self.identity;
            self.reopen(directory)?;
            if self.identity == before {
                // The file exists, but its path leads elsewhere.
                return Err(directory.replaced());
            }
        }
    }

    /// Releases the lock, even if other processes inherited the descriptor.
    pub(super) fn unlock(&mut self) {
        if self.locked {
            guard::unlock(&self.file);
            self.locked = false;
        }
    }

    /// Stops waiting in a thread, for good: the file may not be locked through this value any more.
    pub(super) fn abandon(&mut self) {
        self.pending = None;
    }

    /// Waits for the lock in a thread.
    pub(super) fn wait(&mut self, directory: &Directory, exclusive: bool) -> FaultResult<Arc<Pending>> {
        if let Some(pending) = &self.pending {
            return Ok(Arc::clone(pending));
        }
        let pending = Pending::start(Arc::clone(&self.file), exclusive)
            .map_err(fault::os("start a thread that waits for", directory.path_of(&self.name)))?;
        let pending = Arc::new(pending);
        self.pending = Some(Arc::clone(&pending));
        Ok(pending)
    }

    /// Updates the times of an old file, so that it looks used.
    pub(super) fn freshen(&self) {
        surroundings::freshen(self.file.as_fd());
    }

    /// Returns whether another file, or none, is at the path now. An unlinked file counts as replaced, even if its
    /// directory is out of reach.
    pub(super) fn is_replaced(&self, directory: &Directory) -> FaultResult<bool> {
        let stat = fstat(&self.file).map_err(fault::os("examine", directory.path_of(&self.name)))?;
        Ok(stat.st_nlink == 0 || directory.present(&self.name)? != Some(self.identity))
    }

    pub(super) fn identity(&self) -> Identity {
        self.identity
    }

    /// Returns another descriptor of the same open file.
    pub(super) fn anchor(&self, directory: &Directory) -> FaultResult<OwnedFd> {
        rustix::io::fcntl_dupfd_cloexec(&self.file, 0)
            .map_err(fault::os("keep open", directory.path_of(&self.name)))
    }
}
