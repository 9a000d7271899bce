//! flock(2) without blocking the runtime.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::{FlockOperation, flock};
use rustix::io::{Errno, retry_on_intr};

/// A lock on an open file, released on drop.
///
/// It is released explicitly, because a process that is just being started may have a copy of the descriptor.
#[derive(Debug)]
pub(super) struct Flock(Option<Arc<OwnedFd>>);

impl Flock {
    /// Takes the lock on `file` if it is free.
    pub(super) fn try_take(file: &Arc<OwnedFd>, exclusive: bool) -> Result<Option<Self>, Errno> {
        Ok(try_lock(file, exclusive)?.then(|| Self(Some(Arc::clone(file)))))
    }

    /// Returns the file and leaves the lock in place: from now on it belongs to the descriptor.
    pub(super) fn keep(mut self) -> Option<Arc<OwnedFd>> {
        self.0.take()
    }
}

impl Drop for Flock {
    fn drop(&mut self) {
        if let Some(file) = &self.0 {
            unlock(file);
        }
    }
}

/// How often a release is tried: a lock that stays by mistake keeps every other process out.
const UNLOCKS: usize = 8;

/// Releases a lock, even if other processes have the descriptor. If the file system refuses for good, the lock ends
/// with the last descriptor.
pub(super) fn unlock(file: &OwnedFd) {
    let _is_free = (0..UNLOCKS).any(|_| flock(file, FlockOperation::Unlock).is_ok());
}

/// Takes the lock if it is free. Returns whether it was.
pub(super) fn try_lock(file: &OwnedFd, exclusive: bool) -> Result<bool, Errno> {
    let operation = if exclusive {
        FlockOperation::NonBlockingLockExclusive
    } else {
        FlockOperation::NonBlockingLockShared
    };
    match retry_on_intr(|| flock(file, operation)) {
        Err(Errno::WOULDBLOCK) => Ok(false),
        locked => locked.map(|()| true),
    }
}

/// Waits for the lock on `file` in a thread, which then calls `then`. Nothing can wake the thread without a signal. So
/// until then nothing else may lock through `file`, and `then` releases a lock that is not wanted any more.
pub(super) fn wait(
    file: Arc<OwnedFd>,
    exclusive: bool,
    then: impl FnOnce(Result<Flock, Errno>) + Send + 'static,
) -> Result<(), Errno> {
    let operation = if exclusive { FlockOperation::LockExclusive } else { FlockOperation::LockShared };
    let wait = move || then(retry_on_intr(|| flock(&file, operation)).map(|()| Flock(Some(file))));
    let thread = std::thread::Builder::new().name("flock".to_owned()).stack_size(64 * 1024).spawn(wait);
    thread.map(drop).map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::AGAIN))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::super::testing::TempDir;
    use super::*;

    #[test]
    fn lock_of_a_waiting_thread_lasts_until_the_drop() {
        let temp = TempDir::new();
        let open = || Arc::new(OwnedFd::from(std::fs::File::create(temp.path().join("f")).expect("made")));
        let (held, other) = (open(), open());
        let lock = Flock::try_take(&held, true).expect("a lock").expect("free");
        let (done, result) = mpsc::channel();
        wait(open(), true, move |lock| done.send(lock).expect("wanted")).expect("a thread");
        assert!(result.try_recv().is_err(), "it is locked");
        drop(lock);
        let lock = result.recv().expect("a result").expect("a lock");
        assert_eq!(try_lock(&other, true), Ok(false), "it is locked");
        drop(lock);
        assert_eq!(try_lock(&other, true), Ok(true), "it is free");
    }
}
