//! Requests to the database, whichever of its servers takes writes at the moment.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Mutex as Gate;

use super::dialect::{Dialect, Session, Sets};
use crate::clock::Clock;
use crate::lock::{ErrorKind, Moment};
use crate::net::cause;
use crate::net::fault::{Fault, FaultResult, Retry};

/// Between two attempts to reach a database that is down.
const PAUSE: Duration = Duration::from_millis(50);
/// Between two attempts at a transaction that was undone for another's sake.
const STEP_BACK: Duration = Duration::from_millis(3);
/// How long one server of several may take to connect.
const ONE_OF_SEVERAL: Duration = Duration::from_secs(1);

/// How long a request tries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Patience {
    /// A database that cannot be reached is an answer; a session that breaks is made again once.
    Once,
    /// As `Once`, and nothing is made or done again for another's sake.
    Reading,
    /// Until the deadline.
    Deadline,
}

/// The sessions of one client.
#[derive(Debug)]
pub(super) struct Service {
    pub(super) dialect: Arc<dyn Dialect>,
    pub(super) clock: Clock,
    open: Mutex<Option<Arc<dyn Session>>>,
    /// Held while one is opened.
    gate: Gate<()>,
    /// Which server is tried first.
    server: AtomicUsize,
    opened: AtomicU64,
    /// How many claims there are.
    pub(super) claims: AtomicUsize,
}

/// What came back, and over which session.
pub(super) struct Answer {
    pub(super) sets: Sets,
    pub(super) session: Arc<dyn Session>,
    /// How often the session had told before the batch was sent.
    pub(super) notified: u64,
    /// When this batch was sent, after whatever came to nothing before.
    pub(super) sent: Moment,
}

impl Service {
    pub(super) fn new(dialect: Arc<dyn Dialect>, clock: Clock) -> Self {
        Self {
            dialect,
            clock,
            open: Mutex::default(),
            gate: Gate::default(),
            server: AtomicUsize::new(0),
            opened: AtomicU64::new(0),
            claims: AtomicUsize::new(0),
        }
    }

    /// Whether something that was sent over an earlier session may still be on its way to the database.
    pub(super) fn may_be_overtaken(&self) -> bool {
        self.opened.load(Ordering::Relaxed) > 1
    }

    /// As [`crate::backend::Backend::has_connected`].
    pub(super) fn has_connected(&self) -> bool {
        self.opened.load(Ordering::Relaxed) > 0
    }

    fn open(&self) -> MutexGuard<'_, Option<Arc<dyn Session>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn current(&self) -> Option<Arc<dyn Session>> {
        self.open().as_ref().filter(|session| session.is_open()).cloned()
    }

    async fn session(&self) -> FaultResult<Arc<dyn Session>> {
        if let Some(session) = self.current()
            && session.awake().await
        {
            return Ok(session);
        }
        let _gate = self.gate.lock().await;
        // Whoever was before may have opened one.
        if let Some(session) = self.current() {
            return Ok(session);
        }
        let session = self.dial().await?;
        self.opened.fetch_add(1, Ordering::Relaxed);
        *self.open() = Some(Arc::clone(&session));
        Ok(session)
    }

    /// The first server that can be reached and takes writes. What one says of who this is, is said only if no other
    /// lets it in.
    async fn dial(&self) -> FaultResult<Arc<dyn Session>> {
        let (count, first) = (self.dialect.servers(), self.server.load(Ordering::Relaxed));
        let mut worst: Option<Fault> = None;
        for n in 0..count {
            let server = (first + n) % count;
            let attempt = self.dialect.dial(server);
            let attempt = if count == 1 {
                attempt.await
            } else {
                let late = self.clock.sleep_until(self.clock.now() + ONE_OF_SEVERAL);
                tokio::select! {
                    answer = attempt => answer,
                    () = late => Err(Fault::spent("a server did not answer within a second")),
                }
            };
            match attempt {
                Ok(session) => {
                    self.server.store(server, Ordering::Relaxed);
                    return Ok(session);
                }
                Err(fault) => {
                    let keep = worst.as_ref().is_some_and(|worst| worst.kind != ErrorKind::Unavailable);
                    if !keep {
                        worst = Some(fault);
                    }
                }
            }
        }
        Err(worst.unwrap_or_else(|| Fault::spent("there is no address")))
    }

    /// Makes the next request open another session.
    fn give_up(&self, session: &Arc<dyn Session>) {
        let mut open = self.open();
        if open.as_ref().is_some_and(|open| Arc::ptr_eq(open, session)) {
            *open = None;
        }
    }

    /// Has `batch` done by `deadline`. What was sent may still be done after an error, so it must bear repetition.
    /// Tables that are missing are made.
    pub(super) async fn call(
        &self,
        deadline: Moment,
        patience: Patience,
        batch: impl Fn(&Arc<dyn Session>) -> String + Send + Sync,
    ) -> FaultResult<Answer> {
        let (mut current, mut last) = (None, None);
        let work = self.attempts(patience, batch, &mut current, &mut last);
        let gives_up = patience != Patience::Deadline;
        let found = match cause::by(self.clock, deadline, gives_up, work, || self.why_silent()).await {
            Ok(Err(fault)) if fault.is_spent() => {
                return Err(cause::behind(fault, self.clock, deadline, self.why_silent()).await);
            }
            Ok(answer) => return answer,
            Err(found) => found.or(last),
        };
        let Some(session) = current else {
            return Err(found.unwrap_or_else(|| Fault::spent(cause::silent(&self.dialect.identity()))));
        };
        // Whatever holds it up, another session need not wait for it.
        self.give_up(&session);
        Err(found.unwrap_or_else(|| Fault::spent(cause::silent(&session.peer()))))
    }

    /// Why a database with which there never was a session does not answer.
    async fn why_silent(&self) -> Option<Fault> {
        if self.opened.load(Ordering::Relaxed) > 0 {
            return None;
        }
        let addresses: Option<Vec<String>> =
            (0..self.dialect.servers()).map(|server| self.dialect.address(server)).collect();
        // Encryption is asked for in the database's own words.
        cause::of_all(&addresses?, self.dialect.manner(), false).await
    }

    async fn attempts(
        &self,
        patience: Patience,
        batch: impl Fn(&Arc<dyn Session>) -> String + Send + Sync,
        current: &mut Option<Arc<dyn Session>>,
        last: &mut Option<Fault>,
    ) -> FaultResult<Answer> {
        let (mut broken, mut made) = (0, false);
        loop {
            *current = None;
            let session = match self.session().await {
                Ok(session) => session,
                Err(fault) if patience != Patience::Deadline || !fault.kind.is_transient() => {
                    return Err(fault);
                }
                Err(fault) => {
                    *last = Some(fault);
                    self.pause(PAUSE).await;
                    continue;
                }
            };
            *current = Some(Arc::clone(&session));
            let (notified, sent) = (session.notified_count(), self.clock.now());
            let fault = match session.run(&batch(&session)).await {
                Ok(sets) => return Ok(Answer { sets, session, notified, sent }),
                Err(fault) => fault,
            };
            match fault.retry {
                Retry::Again | Retry::Making if patience == Patience::Reading => {
                    return Err(fault.at(&session.peer()));
                }
                Retry::Again => self.pause(STEP_BACK).await,
                Retry::Making if !made => {
                    made = true;
                    self.make_tables(&session).await?;
                    continue;
                }
                Retry::OtherConnection | Retry::OtherServer => {
                    self.give_up(&session);
                    self.server.fetch_add(1, Ordering::Relaxed);
                    broken += 1;
                    if !fault.kind.is_transient() || (patience != Patience::Deadline && broken > 1) {
                        return Err(fault.at(&session.peer()));
                    }
                    if broken > 1 {
                        self.pause(PAUSE).await;
                    }
                }
                Retry::Nothing if fault.kind.is_transient() && patience == Patience::Deadline => {
                    self.pause(PAUSE).await;
                }
                Retry::Nothing | Retry::Making | Retry::OtherNode => return Err(fault.at(&session.peer())),
            }
            *last = Some(fault.at(&session.peer()));
        }
    }

    async fn pause(&self, length: Duration) {
        self.clock.sleep_until(self.clock.now() + length).await;
    }

    async fn make_tables(&self, session: &Arc<dyn Session>) -> FaultResult<()> {
        loop {
            match session.run(&self.dialect.create()).await {
                Ok(_) => return Ok(()),
                Err(fault) if fault.retry == Retry::Again => self.pause(STEP_BACK).await,
                Err(fault) => return Err(fault.at(&session.peer())),
            }
        }
    }

    /// Reads by `deadline`; `None` if there are no tables yet. Changes nothing.
    pub(super) async fn read(&self, deadline: Moment, batch: &str) -> FaultResult<Option<Answer>> {
        match self.call(deadline, Patience::Reading, |_| batch.to_owned()).await {
            Err(fault) if fault.retry == Retry::Making => Ok(None),
            answer => answer.map(Some),
        }
    }
}
