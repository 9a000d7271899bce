//! Requests to the server.

use std::sync::Arc;

use super::config::MemcachedConfig;
use super::connection::Connection;
use super::dial::Dialer;
use super::wire::Reply;
use crate::clock::Clock;
use crate::lock::Moment;
use crate::net::fault::FaultResult;
use crate::net::link::Link;
use crate::net::request::Patience;

/// One or more commands, sent together.
#[derive(Clone, Default, Debug)]
pub(super) struct Commands {
    bytes: Vec<u8>,
    count: usize,
}

/// The replies to commands that were sent together, in order.
pub(super) struct Replies {
    replies: std::vec::IntoIter<Reply>,
    /// The connection over which they came.
    pub(super) connection: u64,
}

/// The connection of one client.
#[derive(Debug)]
pub(super) struct Client(pub(super) Link<Dialer>);

impl Commands {
    /// Appends a command of one line, with `key` in it unless that is empty.
    pub(super) fn line(mut self, words: &str, key: &[u8], rest: &str) -> Self {
        self.push_line(words, key, rest);
        self
    }

    /// Appends a command with a value.
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
    /// Returns the next reply.
    pub(super) fn next(&mut self) -> FaultResult<Reply> {
        self.replies.next().ok_or_else(|| super::fault::nonsense("too few replies"))
    }
}

impl Client {
    pub(super) fn new(config: MemcachedConfig, clock: Clock) -> Self {
        Self(Link::new(Dialer { config }, clock))
    }

    /// Creates a client of the same server that shares no connection with this one.
    pub(super) fn apart(&self) -> Self {
        Self::new(self.0.dial.config.clone(), self.0.clock)
    }

    /// Completes when there is no connection.
    pub(super) async fn cut(&self) {
        if let Some(connection) = self.0.opened_for(&()) {
            connection.ended().await;
        }
    }

    /// Sends `commands` and waits for the replies until `deadline`; sends them again over another connection if the
    /// first one breaks. So commands may be executed twice, and also after an error.
    pub(super) async fn call(&self, deadline: Moment, commands: Commands) -> FaultResult<Replies> {
        self.call_over(deadline, |_| commands.clone()).await
    }

    /// Sends commands that depend on the connection; otherwise works like [`Client::call`].
    pub(super) async fn call_over(
        &self,
        deadline: Moment,
        commands: impl Fn(&Connection) -> Commands + Send + Sync,
    ) -> FaultResult<Replies> {
        let request = |connection: Arc<Connection>| {
            let Commands { bytes, count } = commands(&connection);
            async move {
                let replies = connection.exchange(bytes, count).await?.into_iter();
                Ok(Replies { replies, connection: connection.number })
            }
        };
        self.0.call(deadline, Patience::Once, || (), request).await
    }
}
