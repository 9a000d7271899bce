//! Opening connections.

use std::sync::Arc;

use super::config::MemcachedConfig;
use super::connection::{Connection, Text};
use super::wire::Reply;
use crate::lock::ErrorKind;
use crate::net::cause::{self, Manner};
use crate::net::connector;
use crate::net::fault::{Fault, FaultResult};
use crate::net::link::{Dial, Stage};

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

/// Connects to the server.
#[derive(Debug)]
pub(super) struct Dialer {
    pub(super) config: MemcachedConfig,
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
        let stream = connector::connect(at, self.config.tls.as_ref()).await?;
        if self.config.tls.is_some() {
            stage.answered();
        }
        let connection = Connection::over(Text::of, stream, at.to_string());
        if self.config.user.is_some() {
            stage.logs_in();
        }
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
        other => return Err(super::fault::nonsense(&format!("{other:?}"))),
    }
    let login = format!("{user} {}", password.reveal()?);
    let request = format!("set dlock 0 0 {}\r\n{login}\r\n", login.len());
    for reply in connection.exchange(request.into_bytes(), 1).await? {
        reply.line()?;
    }
    Ok(())
}
