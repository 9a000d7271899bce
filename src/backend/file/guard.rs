//! flock(2) without blocking the runtime: at once where it is free, else in a thread of its own.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use tokio::sync::Notify;

use crate::clock::Clock;
use crate::lock::Moment;

/// A lock on an open file, let go on drop.
///
/// Explicitly, because a process that is just being started may have a copy of the descriptor.
#[derive(Debug)]
pub(super) struct Flock(Option<Arc<OwnedFd>>);

impl Flock {
    /// Leaves the lock in place: from now on it belongs to the descriptor.
    pub(super) fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for Flock {
    fn drop(&mut self) {
        if let Some(file) = &self.0 {
            unlock(file);
        }
    }
}

/// How often letting go is tried: a lock that stays by mistake keeps everybody out.
const UNLOCKS: usize = 8;

/// Lets go of a lock, whoever else has the descriptor. What a file system refuses for good ends with the last descriptor.
pub(super) fn unlock(file: &OwnedFd) {
    let _is_free = (0..UNLOCKS).any(|_| flock(file, FlockOperation::Unlock).is_ok());
}

/// Takes the lock if it is free; says whether it was.
pub(super) fn try_lock(file: &OwnedFd, exclusive: bool) -> Result<bool, Errno> {
    let operation = if exclusive {
        FlockOperation::NonBlockingLockExclusive
    } else {
        FlockOperation::NonBlockingLockShared
    };
    loop {
        match flock(file, operation) {
            Ok(()) => return Ok(true),
            Err(Errno::WOULDBLOCK) => return Ok(false),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// A lock that a thread waits for. Dropping the last handle gives it up: the thread, which nothing can wake
/// without a signal, lets go of the lock as soon as it gets it.
///
/// Meanwhile nobody else may lock through the same open file, or that release would hit their lock.
#[derive(Debug, Default)]
pub(super) struct Pending {
    result: Mutex<Option<Result<Flock, Errno>>>,
    ready: Notify,
}

impl Pending {
    /// Starts to wait for the lock on `file`.
    pub(super) fn start(file: Arc<OwnedFd>, exclusive: bool) -> Result<Arc<Self>, Errno> {
        let pending = Arc::new(Self::default());
        let thread = Arc::clone(&pending);
        let operation = if exclusive { FlockOperation::LockExclusive } else { FlockOperation::LockShared };
        let wait = move || {
            let result = loop {
                match flock(&*file, operation) {
                    Err(Errno::INTR) => {}
                    other => break other.map(|()| Flock(Some(file))),
                }
            };
            *thread.result.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
            thread.ready.notify_waiters();
        };
        std::thread::Builder::new()
            .name("flock".to_owned())
            .stack_size(64 * 1024)
            .spawn(wait)
            .map(|_| pending)
            .map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::AGAIN))
    }

    fn is_done(&self) -> bool {
        self.result.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// The result, once, if there is one.
    pub(super) fn take(&self) -> Option<Result<Flock, Errno>> {
        self.result.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Completes when there is a result. Cancel-safe.
    pub(super) async fn done(&self) {
        loop {
            let ready = self.ready.notified();
            if self.is_done() {
                return;
            }
            ready.await;
        }
    }
}

/// Why a lock was not taken.
#[derive(Debug)]
pub(super) enum Failed {
    /// Somebody had it until the deadline.
    Late,
    /// The system refused it.
    Refused(Errno),
}

/// Takes the lock on `file` before `deadline`. Cancel-safe: a dropped wait leaves no lock behind.
pub(super) async fn lock(file: &Arc<OwnedFd>, exclusive: bool, deadline: Moment) -> Result<Flock, Failed> {
    if try_lock(file, exclusive).map_err(Failed::Refused)? {
        return Ok(Flock(Some(Arc::clone(file))));
    }
    let pending = Pending::start(Arc::clone(file), exclusive).map_err(Failed::Refused)?;
    tokio::select! {
        biased;
        () = pending.done() => {}
        () = Clock::Boot.sleep_until(deadline) => {}
    }
    pending.take().ok_or(Failed::Late)?.map_err(Failed::Refused)
}

#[cfg(test)]
mod tests {
    use super::super::testing::TempDir;
    use super::*;
    use std::time::Duration;

    fn opened(temp: &TempDir) -> Arc<OwnedFd> {
        Arc::new(std::fs::File::create(temp.path().join("f")).expect("made").into())
    }

    #[tokio::test]
    async fn waits_in_a_thread_and_gives_up_at_the_deadline() {
        let temp = TempDir::new();
        let (a, b) = (opened(&temp), opened(&temp));
        let held = lock(&a, true, Moment::NEVER).await.expect("free");
        let soon = crate::clock::now() + Duration::from_millis(10);
        assert!(matches!(lock(&b, true, soon).await, Err(Failed::Late)));
        drop(held);
        // The thread that was given up may still get the lock; it lets go of it by itself.
        let c = opened(&temp);
        drop(lock(&c, true, Moment::NEVER).await.expect("free again"));
    }
}
