//! One session: a connection for requests, over which a waiting claim sleeps in between.
//!
//! MySQL has no messages between clients. It has user-level locks, which end with their session, and for which a
//! statement can wait. A claim's session holds one while the claim is in the queue: its *presence lock*. A waiter waits
//! for the presence lock of a claim ahead, over its only connection, until its next renewal is due.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use sqlx::Executor as _;
use sqlx::mysql::MySqlConnection;
use tokio::sync::{Mutex as Gate, OwnedMutexGuard, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::config::Mysql;
use super::dial::{ask, say_goodbye};
use super::{TAKES_WRITES, fault, text};
use crate::backend::sql::dialect::{Session, Sets, Wait, first_count};
use crate::lock::ClaimId;
use crate::net::fault::{Fault, FaultResult};
use crate::sync::locked;

/// The first statements of a session, which set everything that the others depend on, because a server may have other
/// defaults. Without autocommit a statement outside of a step would begin a transaction, in which no step can begin.
/// Chained completion would begin another one after each step. A limit of rows would hide entries of a queue, and a
/// limit of time would end the sleep of a waiter. A statement waits for a lock only as long as its client may still be
/// present, and a holder is silent for a third of its ttl. Only MariaDB executes the first comment, only MySQL the
/// second.
const PRELUDE: &str = "SET SESSION autocommit = 1, SESSION completion_type = 0, SESSION sql_mode = 'STRICT_TRANS_TABLES', \
     SESSION sql_safe_updates = 0, SESSION sql_select_limit = 18446744073709551615, SESSION sql_big_selects = 1, \
     SESSION unique_checks = 1, SESSION wait_timeout = 2000000, SESSION lock_wait_timeout = 5, \
     SESSION innodb_lock_wait_timeout = 5, NAMES utf8mb4, @dlock_session = CONNECTION_ID()\
     /*M!, SESSION max_statement_time = 0*//*!80000, SESSION max_execution_time = 0*/;\
     SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE;";

/// The rest of a sleep that is worth waiting for; a longer sleep is ended by closing its connection.
const SOON: Duration = Duration::from_millis(250);
/// The answer to a sleep that ended because the presence lock was free; it is that of `RELEASE_LOCK`, too.
const FREE: &str = "1";
/// The answer to a sleep on another connection than the session's first.
const POOLED: &str = "2";
/// How much later than requested a sleep may end: MySQL rounds its length to seconds.
const LATE: Duration = Duration::from_secs(1);

/// A session. Dropping it closes its connection; the server may still execute requests in flight.
#[derive(Debug)]
pub(super) struct MysqlSession {
    config: Mysql,
    peer: String,
    /// Whether no batch was answered yet.
    fresh: AtomicBool,
    line: Arc<Line>,
    asleep: Mutex<Option<Sleep>>,
}

/// The state that a session and its sleep share.
#[derive(Debug)]
struct Line {
    /// Present while no request is pending.
    connection: Arc<Gate<Option<MySqlConnection>>>,
    open: AtomicBool,
    /// Whether a proxy gives statements to different connections.
    pooled: AtomicBool,
    /// The claim ahead and the number of claims ahead, of a sleep that ended because a presence lock was free. If both are
    /// unchanged, the client that had the lock has lost its connection.
    free: Mutex<Option<(ClaimId, u32)>>,
    /// The number of notifications.
    notified: watch::Sender<u64>,
}

impl Line {
    fn tell(&self) {
        self.notified.send_modify(|notified| *notified += 1);
    }

    async fn exchange(
        &self,
        mut place: OwnedMutexGuard<Option<MySqlConnection>>,
        batch: &str,
    ) -> FaultResult<Sets> {
        let Some(mut connection) = place.take().filter(|_| self.open.load(Ordering::Relaxed)) else {
            return Err(closed());
        };
        let answer = ask(&mut connection, batch).await;
        if let Err(error) = &answer {
            // The batch may have begun a transaction, which would remain open.
            let is_said = fault::number(error).is_some();
            if !is_said || connection.execute(sqlx::raw_sql("ROLLBACK")).await.is_err() {
                self.close();
                return Err(fault::of(error));
            }
        }
        *place = Some(connection);
        answer.map_err(|error| fault::of(&error))
    }

    /// Sleeps, and publishes the result. A sleep that ends on time publishes nothing, because a renewal is due then.
    async fn sleep(&self, batch: &str, wait: &Wait) {
        let mut place = self.connection.lock().await;
        let Some(mut connection) = place.take() else { return };
        let until = Instant::now() + wait.length;
        let slept = ask(&mut connection, batch).await;
        let end = match &slept {
            Ok(sets) => sets.first().and_then(|set| set.first()?.first()?.as_deref()),
            // The server took the wait for a deadlock.
            Err(error) if matches!(fault::number(error), Some(1213 | 3058)) => Some(FREE),
            Err(_) => return self.close(),
        };
        *place = Some(connection);
        drop(place);
        match end {
            Some(FREE) => *locked(&self.free) = Some((wait.ahead, wait.crowd)),
            Some(POOLED) => self.pooled.store(true, Ordering::Relaxed),
            // A renewal is due.
            _ if until <= Instant::now() + LATE => return,
            // An administrator has ended the sleep.
            _ => {}
        }
        self.tell();
    }

    fn close(&self) {
        self.open.store(false, Ordering::Relaxed);
        self.tell();
    }
}

/// A sleep in progress, or a finished one.
#[derive(Debug)]
struct Sleep {
    until: Instant,
    task: JoinHandle<()>,
}

impl Drop for MysqlSession {
    fn drop(&mut self) {
        // A sleeping connection closes without a farewell: as long as a farewell is unread, the server does not notice
        // that the client is gone.
        if let Some(sleep) = locked(&self.asleep).take() {
            sleep.task.abort();
        }
        let connection = self.line.connection.try_lock().ok().and_then(|mut connection| connection.take());
        if let Some(connection) = connection.filter(|_| self.is_open()) {
            say_goodbye(connection);
        }
    }
}

impl MysqlSession {
    /// Takes over an open connection to `peer`.
    pub(super) fn over(connection: MySqlConnection, config: &Mysql, peer: String) -> Self {
        let line = Line {
            connection: Arc::new(Gate::new(Some(connection))),
            open: AtomicBool::new(true),
            pooled: AtomicBool::new(false),
            free: Mutex::default(),
            notified: watch::Sender::new(first_count()),
        };
        Self {
            config: config.clone(),
            peer,
            fresh: AtomicBool::new(true),
            line: Arc::new(line),
            asleep: Mutex::default(),
        }
    }
}

fn closed() -> Fault {
    Fault::spent("the connection was closed")
}

#[async_trait]
impl Session for MysqlSession {
    async fn run(&self, batch: &str) -> FaultResult<Sets> {
        let prelude = if self.fresh.load(Ordering::Relaxed) || self.line.pooled.load(Ordering::Relaxed) {
            PRELUDE
        } else {
            ""
        };
        // Another server may have taken over since the last batch.
        let batch = [prelude, TAKES_WRITES, batch].concat();
        let place = Arc::clone(&self.line.connection).lock_owned().await;
        let line = Arc::clone(&self.line);
        // The answer is read to its end even if this future is dropped, because the server executes the batch to its end.
        let answered = tokio::spawn(async move { line.exchange(place, &batch).await });
        let sets = answered.await.unwrap_or_else(|_| Err(closed()))?;
        // A proxy may have forwarded nothing of a batch that failed.
        self.fresh.store(false, Ordering::Relaxed);
        Ok(sets)
    }

    fn peer(&self) -> String {
        self.peer.clone()
    }

    fn is_open(&self) -> bool {
        self.line.open.load(Ordering::Relaxed)
    }

    async fn settled(&self) -> bool {
        drop(self.line.connection.lock().await);
        self.is_open()
    }

    async fn awake(&self) -> bool {
        let left = match &*locked(&self.asleep) {
            Some(sleep) if !sleep.task.is_finished() => sleep.until.saturating_duration_since(Instant::now()),
            _ => return true,
        };
        if left <= SOON && timeout(left + LATE, self.line.connection.lock()).await.is_ok() {
            return self.is_open();
        }
        if let Some(sleep) = locked(&self.asleep).take() {
            sleep.task.abort();
        }
        self.line.close();
        false
    }

    fn can_notify(&self) -> bool {
        false
    }

    fn can_sleep(&self, ahead: ClaimId, crowd: u32) -> bool {
        // A claim that finds the lock free again polls instead.
        !self.line.pooled.load(Ordering::Relaxed) && locked(&self.line.free).take() != Some((ahead, crowd))
    }

    fn fall_asleep(&self, wait: &Wait) {
        let mut asleep = locked(&self.asleep);
        let is_asleep = asleep.as_ref().is_some_and(|sleep| !sleep.task.is_finished());
        if is_asleep || wait.length.is_zero() || !self.is_open() {
            return;
        }
        let batch = sleep(&self.config, wait);
        let (line, wait) = (Arc::clone(&self.line), *wait);
        let until = Instant::now() + wait.length;
        let task = tokio::spawn(async move { line.sleep(&batch, &wait).await });
        *asleep = Some(Sleep { until, task });
    }

    fn news(&self) -> watch::Receiver<u64> {
        self.line.notified.subscribe()
    }
}

/// Returns how many claims ahead the claim is that a waiter sleeps on. The server takes a chain of 32 waits for a
/// deadlock. So a waiter far back sleeps on a claim further ahead, and is near the front when that is gone. Chains of a
/// thousand claims then have 31 waits.
fn step(crowd: u32) -> u32 {
    match crowd {
        0..=10 => 1,
        11..=80 => 10,
        _ => 80,
    }
}

/// Returns the batch that sleeps.
fn sleep(config: &Mysql, wait: &Wait) -> String {
    let claims = &config.0.tables.claim;
    let own = text(&wait.own.to_string());
    let presence = match step(wait.crowd) {
        1 => format!("'{}'", config.presence(wait.ahead)),
        step => {
            let start = config.locks();
            format!(
                "CONCAT('{start}', (SELECT p.claim FROM {claims} m JOIN {claims} p ON p.name = m.name AND p.seq < m.seq \
                 WHERE m.claim = {own} ORDER BY p.seq DESC LIMIT 1 OFFSET {step}))"
            )
        }
    };
    format!(
        "SET @dlock_ahead = COALESCE({presence}, '');\
         SELECT IF(@dlock_session <=> CONNECTION_ID(), IF(@dlock_ahead = '', {FREE}, IF(GET_LOCK(@dlock_ahead, {length:.3}), RELEASE_LOCK(@dlock_ahead), 0)), {POOLED});",
        length = wait.length.as_secs_f64(),
    )
}
