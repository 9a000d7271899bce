//! The service, its switches, and the path of a call.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

use dlock::clock::Clock;
use dlock::lock::{ClaimId, ClaimState, Error, ErrorKind, LossReason, Moment, Result};

use super::Mutation;
use super::queues::{Queues, Refusal};

/// The backend's name.
pub(super) const NAME: &str = "memory";

/// A lock service in this process.
#[derive(Debug)]
pub(crate) struct MemoryServer {
    number: u64,
    clock: Clock,
    mutation: Option<Mutation>,
    queues: Mutex<Queues>,
    frozen: watch::Sender<bool>,
    starts: watch::Sender<u64>,
    changes: watch::Sender<u64>,
}

impl MemoryServer {
    /// Creates a faultless service that measures TTLs by `clock`.
    pub(crate) fn new(clock: Clock) -> Arc<Self> {
        Self::start(clock, None)
    }

    /// Creates a service with one defect.
    pub(crate) fn with_mutation(clock: Clock, mutation: Mutation) -> Arc<Self> {
        Self::start(clock, Some(mutation))
    }

    fn start(clock: Clock, mutation: Option<Mutation>) -> Arc<Self> {
        static SERVERS: AtomicU64 = AtomicU64::new(1);
        Arc::new(Self {
            number: SERVERS.fetch_add(1, Ordering::Relaxed),
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
                queues.end(at, ClaimState::Lost(LossReason::SessionEnded));
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

    pub(super) fn identity(&self) -> String {
        format!("{NAME}:{}", self.number)
    }

    /// Executes one step of the service now, whatever the switches are.
    pub(super) fn step<T>(&self, f: impl FnOnce(&mut Queues, Moment) -> T) -> T {
        let (result, version) = {
            let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
            let now = self.clock.now();
            queues.settle(now);
            let result = f(&mut queues, now);
            queues.settle(now);
            (result, queues.version)
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
}

/// One request on its way.
pub(super) struct Call<'a> {
    pub(super) server: &'a MemoryServer,
    pub(super) clock: Clock,
    pub(super) deadline: Moment,
}

impl Call<'_> {
    /// Sends the request, executes `f` as one step, and returns the answer, all by the deadline.
    ///
    /// It can be dropped before the step, and between the step and the answer.
    pub(super) async fn run<T>(
        self,
        f: impl FnOnce(&mut Queues, Moment) -> std::result::Result<T, Refusal>,
    ) -> Result<T> {
        let mut starts = self.server.starts();
        let work = async {
            tokio::task::yield_now().await;
            self.server.thawed().await;
            let result = self.server.step(f);
            tokio::task::yield_now().await;
            self.server.thawed().await;
            result
        };
        let deadline = async {
            let never = self.server.has(Mutation::IgnoresDeadlines);
            self.clock.sleep_until(if never { Moment::NEVER } else { self.deadline }).await;
        };
        let refusal = tokio::select! {
            biased;
            result = work => match result {
                Ok(value) => return Ok(value),
                Err(refusal) => refusal,
            },
            _ = starts.changed() => Refusal::new(ErrorKind::Unavailable, "the service restarted"),
            () = deadline => Refusal::new(ErrorKind::Unavailable, "no answer by the deadline"),
        };
        let error = Error::new(refusal.kind, refusal.reason);
        let without_lock = self.server.has(Mutation::ErrorWithoutLock);
        Err(if without_lock { error.during(NAME, "ask", None) } else { error })
    }
}
