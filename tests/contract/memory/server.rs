//! The service, its switches, and the path of a call.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

use dlock::clock::Clock;
use dlock::lock::{ClaimId, Error, ErrorKind, Moment, Result};

use super::Mutation;
use super::queues::Queues;

/// The backend's name.
pub(super) const NAME: &str = "memory";

/// A lock service in this process.
#[derive(Debug)]
pub(crate) struct MemoryServer {
    clock: Clock,
    mutation: Option<Mutation>,
    queues: Mutex<Queues>,
    frozen: watch::Sender<bool>,
    starts: watch::Sender<u64>,
    changes: watch::Sender<u64>,
}

impl MemoryServer {
    /// Creates a service that measures TTLs by `clock`, without a defect or with one.
    pub(crate) fn new(clock: Clock, mutation: Option<Mutation>) -> Arc<Self> {
        Arc::new(Self {
            clock,
            mutation,
            queues: Mutex::new(Queues::new(mutation)),
            frozen: watch::Sender::new(false),
            starts: watch::Sender::new(0),
            changes: watch::Sender::new(0),
        })
    }

    /// Accepts requests and answers none, until [`MemoryServer::thaw`].
    pub(crate) fn freeze(&self) {
        self.frozen.send_replace(true);
    }

    pub(crate) fn thaw(&self) {
        self.frozen.send_replace(false);
    }

    /// Restarts with all data kept; calls under way fail.
    pub(crate) fn restart(&self) {
        self.step(|queues, _| queues.restart());
        self.starts.send_modify(|n| *n += 1);
    }

    /// Ends the session of one claim. Returns whether there was such a claim.
    pub(crate) fn sever(&self, id: ClaimId) -> bool {
        self.step(|queues, _| {
            let found = queues.position(id);
            if let Some(at) = found {
                queues.end(at, None);
            }
            found.is_some()
        })
    }

    pub(super) fn clock(&self) -> Clock {
        self.clock
    }

    pub(super) fn has(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    /// Executes one step of the service now, whatever the switches are.
    pub(super) fn step<T>(&self, f: impl FnOnce(&mut Queues, Moment) -> T) -> T {
        let (result, version) = {
            let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
            let now = self.clock.now();
            queues.settle(now);
            (f(&mut queues, now), queues.version)
        };
        self.changes.send_if_modified(|seen| std::mem::replace(seen, version) != version);
        result
    }

    /// Completes when the service answers requests.
    pub(super) async fn thawed(&self) {
        // The sender is `self`, so this ends only with the wanted value.
        let _ = self.frozen.subscribe().wait_for(|frozen| !frozen).await;
    }

    pub(super) fn starts(&self) -> watch::Receiver<u64> {
        self.starts.subscribe()
    }

    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Sends a request, executes `f` as one step, and returns the answer, all by the deadline, which is of `clock`.
    ///
    /// It can be dropped before the step, and between the step and the answer.
    pub(super) async fn call<T>(
        &self,
        clock: Clock,
        deadline: Moment,
        f: impl FnOnce(&mut Queues, Moment) -> Result<T>,
    ) -> Result<T> {
        let mut starts = self.starts();
        let work = async {
            tokio::task::yield_now().await;
            self.thawed().await;
            let result = self.step(f);
            tokio::task::yield_now().await;
            self.thawed().await;
            result
        };
        let deadline = if self.has(Mutation::IgnoresDeadlines) { Moment::NEVER } else { deadline };
        let unavailable = |why| Err(Error::new(ErrorKind::Unavailable, why));
        let answer = tokio::select! {
            biased;
            result = work => result,
            _ = starts.changed() => unavailable("the service restarted"),
            () = clock.sleep_until(deadline) => unavailable("no answer by the deadline"),
        };
        let without_lock = self.has(Mutation::ErrorWithoutLock);
        answer.map_err(|error| if without_lock { error.during(NAME, "ask", None) } else { error })
    }
}
