//! flock(2) without blocking the runtime: at once if the lock is free, else in a thread of its own.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use tokio::sync::{Mutex as AsyncMutex, Notify, OwnedMutexGuard};

use crate::clock::Clock;
use crate::lock::Moment;
use crate::sync::locked;

/// A lock on an open file, released on drop.
///
/// It is released explicitly, because a process that is just being started may have a copy of the descriptor.
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
    loop {
        match flock(file, operation) {
            Ok(()) => return Ok(true),
            Err(Errno::WOULDBLOCK) => return Ok(false),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// A lock that a thread waits for. Dropping it gives it up. Nothing can wake the thread without a signal, so the thread
/// releases the lock as soon as it gets it.
///
/// Until then nothing else may lock through the same open file, since the thread would release that lock.
#[derive(Debug)]
pub(super) struct Pending(Arc<Wait>);

/// The state that a waiting thread shares with the task that wants its lock.
#[derive(Debug)]
struct Wait {
    stage: Mutex<Stage>,
    ready: Notify,
}

/// The stage of a waiting thread.
#[derive(Debug)]
enum Stage {
    /// The thread waits, and a task wants the lock.
    Wanted,
    /// The thread waits, and no task wants the lock.
    GivenUp,
    /// The thread has ended. This is its result, unless the result was taken or dropped.
    Over(Option<Result<Flock, Errno>>),
}

impl Wait {
    /// Notes the thread's end. A lock that no task wants is released before its end can be seen.
    fn end(&self, result: Result<Flock, Errno>) {
        let stage = &mut *locked(&self.stage);
        let wanted = matches!(stage, Stage::Wanted);
        *stage = Stage::Over(wanted.then_some(result));
        self.ready.notify_waiters();
    }
}

impl Pending {
    /// Starts to wait for the lock on `file`.
    pub(super) fn start(file: Arc<OwnedFd>, exclusive: bool) -> Result<Self, Errno> {
        let pending = Self(Arc::new(Wait { stage: Mutex::new(Stage::Wanted), ready: Notify::new() }));
        let thread = Arc::clone(&pending.0);
        let operation = if exclusive { FlockOperation::LockExclusive } else { FlockOperation::LockShared };
        let wait = move || {
            let result = loop {
                match flock(&*file, operation) {
                    Err(Errno::INTR) => {}
                    other => break other.map(|()| Flock(Some(file))),
                }
            };
            thread.end(result);
        };
        std::thread::Builder::new()
            .name("flock".to_owned())
            .stack_size(64 * 1024)
            .spawn(wait)
            .map(|_| pending)
            .map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::AGAIN))
    }

    /// Resumes a wait that was given up. Returns `None` if the thread has ended, and so releases nothing any more.
    fn resume(wait: Arc<Wait>) -> Option<Self> {
        let waits = {
            let stage = &mut *locked(&wait.stage);
            let waits = matches!(stage, Stage::GivenUp);
            if waits {
                *stage = Stage::Wanted;
            }
            waits
        };
        waits.then_some(Self(wait))
    }

    fn is_done(&self) -> bool {
        matches!(*locked(&self.0.stage), Stage::Over(Some(_)))
    }

    /// Returns the result, once, if there is one.
    pub(super) fn take(&self) -> Option<Result<Flock, Errno>> {
        if let Stage::Over(result) = &mut *locked(&self.0.stage) { result.take() } else { None }
    }

    /// Completes when there is a result. Cancel-safe.
    pub(super) async fn done(&self) {
        loop {
            let ready = self.0.ready.notified();
            if self.is_done() {
                return;
            }
            ready.await;
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let stage = &mut *locked(&self.0.stage);
        *stage = match stage {
            Stage::Wanted | Stage::GivenUp => Stage::GivenUp,
            Stage::Over(_) => Stage::Over(None),
        };
    }
}

/// Why a lock was not taken.
#[derive(Debug)]
pub(super) enum Failed {
    /// Another process had it until the deadline.
    Late,
    /// Another call of this process had the turn until the deadline.
    TurnLate,
    /// The system refused it.
    Refused(Errno),
}

/// An open file that is locked for a moment at a time. The calls of this process take turns, since an open file does
/// not exclude itself.
#[derive(Debug)]
pub(super) struct GuardFile {
    file: Arc<OwnedFd>,
    exclusive: bool,
    /// The turn of one call. It holds the thread that an earlier call, dropped or late, may have left waiting.
    turn: Arc<AsyncMutex<Option<Arc<Wait>>>>,
}

/// The lock on a [`GuardFile`], and the turn. Both end on drop, the lock first.
#[derive(Debug)]
pub(super) struct Guard {
    _lock: Flock,
    _turn: OwnedMutexGuard<Option<Arc<Wait>>>,
}

impl GuardFile {
    /// Takes `file`, to be locked exclusively or shared.
    pub(super) fn new(file: OwnedFd, exclusive: bool) -> Self {
        Self { file: Arc::new(file), exclusive, turn: Arc::default() }
    }

    /// Takes the lock before `deadline`. Cancel-safe: a dropped call leaves no lock behind, and at most one thread,
    /// which the next call reuses.
    pub(super) async fn lock(&self, deadline: Moment) -> Result<Guard, Failed> {
        let turn = Arc::clone(&self.turn);
        let mut turn = match turn.try_lock_owned() {
            Ok(turn) => turn,
            Err(_) => {
                Clock::Boot.by(deadline, Arc::clone(&self.turn).lock_owned()).await.ok_or(Failed::TurnLate)?
            }
        };
        let pending = match turn.take().and_then(Pending::resume) {
            Some(pending) => pending,
            None if try_lock(&self.file, self.exclusive).map_err(Failed::Refused)? => {
                return Ok(Guard { _lock: Flock(Some(Arc::clone(&self.file))), _turn: turn });
            }
            None => Pending::start(Arc::clone(&self.file), self.exclusive).map_err(Failed::Refused)?,
        };
        *turn = Some(Arc::clone(&pending.0));
        Clock::Boot.by(deadline, pending.done()).await;
        let lock = pending.take().ok_or(Failed::Late)?.map_err(Failed::Refused)?;
        Ok(Guard { _lock: lock, _turn: turn })
    }
}

impl AsFd for GuardFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::TempDir;
    use super::*;
    use std::time::Duration;

    fn opened(temp: &TempDir) -> GuardFile {
        GuardFile::new(std::fs::File::create(temp.path().join("f")).expect("made").into(), true)
    }

    /// Begins a call and drops it, as a `select!` does when another branch completes first.
    async fn drop_a_call(file: &GuardFile) {
        tokio::select! {
            biased;
            _ = file.lock(Moment::NEVER) => unreachable!("another process has it"),
            () = std::future::ready(()) => {}
        }
    }

    /// Returns when `file` has that many references: its own, the holder's, and one for each waiting thread.
    async fn until_had_by(file: &GuardFile, count: usize) {
        while Arc::strong_count(&file.file) != count {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    #[tokio::test]
    async fn abandoned_guard_wait_does_not_unlock_a_later_holder() {
        let temp = TempDir::new();
        let (a, b, c) = (opened(&temp), opened(&temp), opened(&temp));
        let held = a.lock(Moment::NEVER).await.expect("free");
        let soon = crate::clock::now() + Duration::from_millis(10);
        assert!(matches!(b.lock(soon).await, Err(Failed::Late)));
        let release = async {
            tokio::task::yield_now().await;
            drop(held);
        };
        let (got, ()) = tokio::join!(b.lock(Moment::NEVER), release);
        let got = got.expect("released");
        until_had_by(&b, 2).await;
        assert_eq!(try_lock(&c.file, true), Ok(false), "it is locked");
        drop(got);
        assert_eq!(try_lock(&c.file, true), Ok(true), "it is free");
    }

    #[tokio::test]
    async fn dropped_calls_leave_one_thread_and_no_lock() {
        let temp = TempDir::new();
        let (a, b, c) = (opened(&temp), opened(&temp), opened(&temp));
        let held = a.lock(Moment::NEVER).await.expect("free");
        for _ in 0..20 {
            drop_a_call(&b).await;
        }
        assert_eq!(Arc::strong_count(&b.file), 2, "one thread");
        drop(held);
        until_had_by(&b, 1).await;
        assert_eq!(try_lock(&c.file, true), Ok(true), "it is free");
    }

    #[tokio::test]
    async fn two_calls_of_one_process_exclude_each_other() {
        let temp = TempDir::new();
        let b = opened(&temp);
        let held = b.lock(Moment::NEVER).await.expect("free");
        let soon = crate::clock::now() + Duration::from_millis(10);
        assert!(matches!(b.lock(soon).await, Err(Failed::TurnLate)));
        drop(held);
        drop(b.lock(Moment::NEVER).await.expect("free again"));
    }
}
