//! Requests to the server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Mutex as Gate;

use super::config::MemcachedConfig;
use super::connection::Connection;
use super::dial;
use super::wire::Reply;
use crate::clock::Clock;
use crate::lock::{ErrorKind, Moment};
use crate::net::cause;
use crate::net::fault::{Fault, FaultResult};

/// One or more commands, sent together.
#[derive(Clone, Default, Debug)]
pub(super) struct Commands {
    bytes: Vec<u8>,
    count: usize,
}

/// The replies to commands that were sent together, in their order.
pub(super) struct Replies {
    replies: std::vec::IntoIter<Reply>,
    /// Over which connection they came.
    pub(super) connection: u64,
}

/// The connection of one client.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) config: MemcachedConfig,
    pub(super) clock: Clock,
    /// The gate is held while one is opened.
    open: Gate<Option<Arc<Connection>>>,
    /// A connection was opened: what was sent over it may have been done.
    connected: AtomicBool,
    /// It has answered a request.
    answered: AtomicBool,
}

impl Commands {
    /// Adds a command of one line, which ends in `key` if there is one.
    pub(super) fn line(mut self, words: &str, key: &[u8], rest: &str) -> Self {
        self.push_line(words, key, rest);
        self
    }

    /// Adds a command with a value.
    pub(super) fn value(mut self, verb: &str, key: &[u8], rest: &str, value: &[u8]) -> Self {
        self.push_line(verb, key, rest);
        self.bytes.extend_from_slice(value);
        self.bytes.extend_from_slice(b"\r\n");
        self
    }

    fn push_line(&mut self, words: &str, key: &[u8], rest: &str) {
        self.bytes.extend_from_slice(words.as_bytes());
        for part in [key, rest.as_bytes()] {
            if !part.is_empty() {
                self.bytes.push(b' ');
                self.bytes.extend_from_slice(part);
            }
        }
        self.bytes.extend_from_slice(b"\r\n");
        self.count += 1;
    }
}

impl Replies {
    /// The next one.
    pub(super) fn next(&mut self) -> FaultResult<Reply> {
        self.replies.next().ok_or_else(|| super::fault::nonsense("too few replies"))
    }
}

impl Client {
    pub(super) fn new(config: MemcachedConfig, clock: Clock) -> Self {
        Self {
            config,
            clock,
            open: Gate::default(),
            connected: AtomicBool::new(false),
            answered: AtomicBool::new(false),
        }
    }

    /// One to the same server that shares no connection with this one.
    pub(super) fn apart(&self) -> Self {
        Self::new(self.config.clone(), self.clock)
    }

    /// As [`crate::backend::Backend::has_connected`].
    pub(super) fn has_connected(&self) -> bool {
        self.connected.load(Ordering::Relaxed)
    }

    async fn connection(&self) -> FaultResult<Arc<Connection>> {
        let mut open = self.open.lock().await;
        if let Some(connection) = open.as_ref().filter(|connection| connection.is_open()) {
            return Ok(Arc::clone(connection));
        }
        let connection = dial::dial(&self.config).await?;
        self.connected.store(true, Ordering::Relaxed);
        *open = Some(Arc::clone(&connection));
        Ok(connection)
    }

    /// Makes the next request open another connection.
    async fn give_up(&self, connection: &Arc<Connection>) {
        self.open.lock().await.take_if(|open| Arc::ptr_eq(open, connection));
    }

    /// Has `commands` done by `deadline`, again over another connection if the first one breaks: so what was sent may be done
    /// twice, and also after an error.
    pub(super) async fn call(&self, deadline: Moment, commands: Commands) -> FaultResult<Replies> {
        self.call_over(deadline, |_| commands.clone()).await
    }

    /// The same with commands that depend on the connection.
    pub(super) async fn call_over(
        &self,
        deadline: Moment,
        commands: impl Fn(&Connection) -> Commands,
    ) -> FaultResult<Replies> {
        let mut current = None;
        let work = self.attempts(commands, &mut current);
        let found = match cause::by(self.clock, deadline, true, work, || self.why_silent()).await {
            Ok(Ok(replies)) => {
                self.answered.store(true, Ordering::Relaxed);
                return Ok(replies);
            }
            Ok(Err(fault)) if matches!(fault.kind, ErrorKind::Unavailable | ErrorKind::Corrupt) => {
                return Err(cause::behind(fault, self.clock, deadline, self.why_silent()).await);
            }
            Ok(Err(fault)) => return Err(fault),
            Err(found) => found.unwrap_or_else(|| Fault::spent(cause::silent(&self.config.at))),
        };
        if let Some(connection) = current {
            // Whatever holds it up, another connection need not wait for it.
            self.give_up(&connection).await;
        }
        Err(found)
    }

    /// Why a server that never answered does not; `None` of one that has.
    async fn why_silent(&self) -> Option<Fault> {
        if self.answered.load(Ordering::Relaxed) { None } else { dial::why_silent(&self.config).await }
    }

    async fn attempts(
        &self,
        commands: impl Fn(&Connection) -> Commands,
        current: &mut Option<Arc<Connection>>,
    ) -> FaultResult<Replies> {
        let mut is_second = false;
        loop {
            *current = None;
            let connection = self.connection().await?;
            *current = Some(Arc::clone(&connection));
            let Commands { bytes, count } = commands(&connection);
            match connection.exchange(bytes, count).await {
                Ok(replies) => {
                    return Ok(Replies { replies: replies.into_iter(), connection: connection.number });
                }
                Err(fault) if is_second || !fault.kind.is_transient() => {
                    return Err(fault.at(&connection.peer));
                }
                Err(_) => is_second = true,
            }
            self.give_up(&connection).await;
        }
    }
}
