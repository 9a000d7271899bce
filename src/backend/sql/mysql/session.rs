//! One session: a connection for what is asked, and one for each claim that listens.

use std::collections::HashMap;
use std::fmt;
use std::future::pending;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use futures_util::TryStreamExt as _;
use sqlx::Executor as _;
use sqlx::mysql::MySqlConnection;
use tokio::sync::{Mutex as Gate, watch};

use super::batch::{HABITS, ask, say_goodbye};
use super::dial::Dialer;
use super::listener::{Listener, ListenerState};
use super::{fault, language};
use crate::backend::fault::{Fault, FaultResult};
use crate::backend::sql::dialect::{Notified, Session, Sets, Wait};
use crate::lock::{ClaimId, Granted};

/// What the first batch of a session begins with, after its habits. A lock that is waited for has to come while the client still may
/// be there, and a holder is silent for a third of its ttl.
const PRELUDE: &str = "SET SESSION wait_timeout = 2000000, SESSION innodb_lock_wait_timeout = 5;";

/// A session. Its connections close when it is dropped; what is on its way then may still be done.
pub(super) struct MysqlSession {
    dialer: Arc<Dialer>,
    server: usize,
    peer: String,
    /// There until the session is dropped.
    connection: Gate<Option<MySqlConnection>>,
    /// Whether nothing was answered yet.
    fresh: AtomicBool,
    open: AtomicBool,
    news: Arc<ListenerState>,
    listeners: Mutex<HashMap<ClaimId, Listener>>,
}

impl fmt::Debug for MysqlSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MysqlSession({})", self.peer)
    }
}

impl Drop for MysqlSession {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.get_mut().take().filter(|_| self.is_open()) {
            say_goodbye(connection);
        }
    }
}

/// Closes the session if the work it stands for is not finished.
struct Unfinished<'a>(Option<&'a MysqlSession>);

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if let Some(session) = self.0 {
            session.close();
        }
    }
}

impl MysqlSession {
    /// Takes over an open connection to the server of that number.
    pub(super) fn over(connection: MySqlConnection, dialer: &Arc<Dialer>, server: usize) -> Self {
        let news = ListenerState {
            notified: watch::Sender::new(Notified::default()),
            pooled: AtomicBool::new(false),
        };
        Self {
            dialer: Arc::clone(dialer),
            server,
            peer: dialer.peer(server),
            connection: Gate::new(Some(connection)),
            fresh: AtomicBool::new(true),
            open: AtomicBool::new(true),
            news: Arc::new(news),
            listeners: Mutex::default(),
        }
    }

    fn close(&self) {
        self.open.store(false, Ordering::Relaxed);
        self.news.tell(None);
    }

    /// Wakes the connections that have these user-level locks. Somebody else may have done so, and they may have gone.
    async fn wake(&self, connection: &mut MySqlConnection, locks: &[String]) -> FaultResult<()> {
        let mut left = locks;
        while !left.is_empty() {
            let words: String = left.iter().map(|lock| language::end_query(lock)).collect();
            // As many were done as said so; the next one failed.
            let mut ended = 0;
            let mut replies = connection.fetch_many(sqlx::raw_sql(&words));
            let failed = loop {
                match replies.try_next().await {
                    Ok(Some(_)) => ended += 1,
                    Ok(None) => break Ok(0),
                    Err(error) if fault::number(&error).is_some() => break Ok(1),
                    Err(error) => break Err(error),
                }
            };
            let failed = failed.map_err(|error| fault::of(&error))?;
            let done = ended / language::END_QUERY_STATEMENTS + failed;
            left = &left[done.min(left.len())..];
        }
        Ok(())
    }

    async fn exchange(&self, batch: &str) -> FaultResult<Sets> {
        let mut connection = self.connection.lock().await;
        let Some(connection) = connection.as_mut().filter(|_| self.is_open()) else {
            return Err(Fault::spent("the connection was closed"));
        };
        let mut unfinished = Unfinished(Some(self));
        let (sets, wake) = match ask(connection, batch).await {
            Ok(answer) => answer,
            Err(error) => {
                let fault = fault::of(&error);
                // The batch began a transaction, and that stays until somebody ends it.
                if fault::number(&error).is_some()
                    && connection.execute(sqlx::raw_sql("ROLLBACK")).await.is_ok()
                {
                    unfinished.0 = None;
                }
                return Err(fault);
            }
        };
        self.wake(connection, &wake).await?;
        unfinished.0 = None;
        Ok(sets)
    }
}

#[async_trait]
impl Session for MysqlSession {
    async fn run(&self, batch: &str) -> FaultResult<Sets> {
        let (habits, prelude) = if self.fresh.load(Ordering::Relaxed) { (HABITS, PRELUDE) } else { ("", "") };
        // Another server may have taken over since the last batch.
        let sets = self.exchange(&[habits, prelude, language::TAKES_WRITES, batch].concat()).await?;
        // Of a batch that failed whatever stands between may have passed on nothing.
        self.fresh.store(false, Ordering::Relaxed);
        Ok(sets)
    }

    fn peer(&self) -> &str {
        &self.peer
    }

    fn is_open(&self) -> bool {
        self.open.load(Ordering::Relaxed)
    }

    fn can_notify(&self) -> bool {
        !self.news.pooled.load(Ordering::Relaxed)
    }

    fn will_notify(&self, own: ClaimId) -> bool {
        let listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        listeners.get(&own).is_some_and(Listener::is_waiting)
    }

    fn needs_relisten(&self, own: ClaimId) -> bool {
        let listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        listeners.get(&own).is_some_and(Listener::needs_relisten)
    }

    fn notified_count(&self) -> u64 {
        self.news.notified.borrow().count
    }

    fn given(&self, own: ClaimId, notified: u64) -> Option<Granted> {
        self.news.notified.borrow().given(own, notified)
    }

    async fn notified_after(&self, notified: u64, wait: Option<&Wait>) {
        let mut news = self.news.notified.subscribe();
        if let (Some(wait), true) = (wait, news.borrow().count == notified) {
            let mut listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
            let listener = listeners
                .entry(wait.own)
                .or_insert_with(|| Listener::new(&self.dialer, self.server, &self.news));
            listener.wait_for(wait);
        }
        if news.wait_for(|now| now.count != notified).await.is_err() {
            pending::<()>().await;
        }
    }
}
