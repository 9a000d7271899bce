//! The connection to the server, and requests over it.

use std::sync::Arc;

use super::config::MemcachedConfig;
use super::fault::nonsense;
use super::wire::{Connection, Reply, Text, refusal};
use crate::clock::Clock;
use crate::lock::{ErrorKind, Moment};
use crate::net::cause::{self, Manner};
use crate::net::fault::{Fault, FaultResult};
use crate::net::link::{Dial, Link, Stage};
use crate::net::request::Patience;
use crate::net::tls;

/// How to recognise memcached.
const MANNER: Manner = Manner {
    service: "memcached",
    encryption: "does it want memcacheds://?",
    hello: b"version\r\n",
    is_own: |answer| {
        let own: [&[u8]; 4] = [b"VERSION ", b"ERROR", b"CLIENT_ERROR ", b"SERVER_ERROR "];
        own.iter().any(|words| answer.starts_with(words))
    },
};

/// One or more commands, sent together.
#[derive(Clone, Default, Debug)]
pub(super) struct Commands(Vec<u8>);

impl Commands {
    /// Appends a command of one line, with `key` in it unless that is empty.
    pub(super) fn line(mut self, words: &str, key: &[u8], rest: &str) -> Self {
        let parts = [words.as_bytes(), key, rest.as_bytes()];
        let parts: Vec<&[u8]> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        self.0.extend(parts.join(&b' '));
        self.0.extend(b"\r\n");
        self
    }

    /// Appends the data of the last command.
    pub(super) fn data(mut self, data: &[u8]) -> Self {
        self.0.extend(data);
        self.0.extend(b"\r\n");
        self
    }
}

/// The connection of one client.
#[derive(Debug)]
pub(super) struct Client(pub(super) Link<Dialer>);

impl Client {
    pub(super) fn new(config: MemcachedConfig, clock: Clock) -> Self {
        Self(Link::new(Dialer { config }, clock))
    }

    pub(super) fn config(&self) -> &MemcachedConfig {
        &self.0.dial.config
    }

    /// Creates a client of the same server that shares no connection with this one.
    pub(super) fn apart(&self) -> Self {
        Self::new(self.config().clone(), self.0.clock)
    }

    /// Sends `N` commands and waits for their replies until `deadline`; sends them again over another connection if the
    /// first one breaks. So commands may be executed twice, and also after an error.
    pub(super) async fn call<const N: usize>(
        &self,
        deadline: Moment,
        commands: Commands,
    ) -> FaultResult<[Reply; N]> {
        let replies = self.send(None, N, deadline, commands).await?;
        replies.try_into().map_err(|_| nonsense("too few replies"))
    }

    /// Sends commands with so many replies. Returns none of them if the connection has another number than `over`: the
    /// commands were not sent.
    pub(super) async fn send(
        &self,
        over: Option<u64>,
        replies: usize,
        deadline: Moment,
        Commands(bytes): Commands,
    ) -> FaultResult<Vec<Reply>> {
        let request = |connection: Arc<Connection>| {
            let bytes = bytes.clone();
            async move {
                if over.is_some_and(|number| number != connection.number) {
                    return Ok(Vec::new());
                }
                let replies = connection.exchange(bytes, replies).await?;
                replies.iter().find_map(refusal).map_or(Ok(replies), Err)
            }
        };
        self.0.call(deadline, Patience::Present, || (), request).await
    }
}

/// Connects to the server.
#[derive(Debug)]
pub(super) struct Dialer {
    config: MemcachedConfig,
}

impl Dial for Dialer {
    type Connection = Connection;
    type Node = ();

    fn servers(&self, (): &()) -> usize {
        1
    }

    fn place(&self, (): &(), _: usize) -> String {
        self.config.at.to_string()
    }

    async fn dial(&self, (): &(), _: usize, stage: &Stage) -> FaultResult<Arc<Connection>> {
        let at = &self.config.at;
        let stream = tls::connect(at, self.config.tls.as_ref()).await?;
        if self.config.tls.is_some() {
            stage.answered();
        }
        let connection = Connection::over(Text::of, stream, at.to_string());
        log_in(&self.config, &connection, stage).await.map_err(|fault| fault.at(at))?;
        Ok(Arc::new(connection))
    }

    async fn is_usable(&self, connection: &Connection) -> bool {
        connection.is_open()
    }

    fn peer(&self, connection: &Connection) -> String {
        connection.peer.clone()
    }

    async fn look(&self) -> Option<Fault> {
        cause::of_all(&[self.config.at.to_string()], &MANNER, self.config.tls.is_some()).await
    }
}

/// Logs in to a memcached with `-Y`: by an item with the user and the password as its value. A server that demands no
/// password would store that item, readable by all clients, so the server is asked first.
async fn log_in(config: &MemcachedConfig, connection: &Connection, stage: &Stage) -> FaultResult<()> {
    let (Some(user), Some(password)) = (&config.user, &config.password) else { return Ok(()) };
    let said = connection.exchange(b"version\r\n".to_vec(), 1).await?;
    match said.first() {
        Some(Reply::Line(line)) if line.contains("unauthenticated") => stage.answered(),
        Some(Reply::Line(line)) if line.starts_with("VERSION ") => {
            return Err(Fault::new(ErrorKind::Denied, cause::needless_password()));
        }
        other => return Err(nonsense(&format!("{other:?}"))),
    }
    let login = format!("{user} {}", password.reveal()?);
    let set = Commands::default().line("set", b"dlock", &format!("0 0 {}", login.len()));
    let Commands(request) = set.data(login.as_bytes());
    for reply in connection.exchange(request, 1).await? {
        reply.line()?;
    }
    Ok(())
}
