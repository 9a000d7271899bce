//! One connection: reaching the server, executing batches, and cancelling them.

use std::future::poll_fn;
use std::io;
use std::sync::atomic::{AtomicU8, Ordering};

use async_trait::async_trait;
use futures_util::FutureExt as _;
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_postgres::tls::NoTlsStream;
use tokio_postgres::{AsyncMessage, Client, Connection, NoTls, SimpleQueryMessage};

use super::fault;
use super::tls::encrypted;
use crate::backend::sql::database::{Database, Place};
use crate::backend::sql::dialect::{Row, Session, Sets, first_count};
use crate::lock::ErrorKind;
use crate::net::fault::{Fault, FaultResult};
use crate::net::link::Stage;
use crate::net::tls::Stream;
use crate::net::{cause, socket};

/// The setting, from the startup message, that identifies the server process of this connection.
pub(super) const MARK: &str = "dlock.session";

/// All settings that the statements depend on. The session sets them, because a server, a database or a role may have
/// other defaults. A statement waits for a lock only as long as its client may still be present.
const SETTINGS: [(&str, &str, u32); 8] = [
    ("statement_timeout", "0", 0),
    ("lock_timeout", "5000", 0),
    ("idle_in_transaction_session_timeout", "0", 0),
    ("default_transaction_read_only", "off", 0),
    ("default_transaction_isolation", "read committed", 0),
    ("exit_on_error", "off", 0),
    // The first version that has it.
    ("idle_session_timeout", "0", 14),
    ("transaction_timeout", "0", 17),
];

/// Returns the statements that set them for the rest of a transaction on a server of `version`.
fn local_settings(version: &str) -> String {
    let major =
        version.split(|c: char| !c.is_ascii_digit()).next().and_then(|major| major.parse::<u32>().ok());
    let known = SETTINGS.iter().filter(|(.., since)| *since <= major.unwrap_or(0));
    known.map(|(name, value, _)| format!("SET LOCAL {name} = '{value}';")).collect::<Vec<_>>().concat()
}

/// Returns the statement that checks whether the server process is the one with `mark`, and then sets them for the
/// whole session, which no other client gets.
fn session_settings(mark: &str) -> String {
    let settings = SETTINGS.map(|(name, value, _)| format!("('{name}', '{value}')")).join(", ");
    format!(
        "SELECT count(set_config(name, value, false)) > 0 FROM (VALUES {settings}) settings (name, value) \
         WHERE current_setting(name, true) IS NOT NULL AND current_setting('{MARK}', true) = '{mark}';"
    )
}

const UNKNOWN: u8 = 0;
const DIRECT: u8 = 1;
const POOLED: u8 = 2;

/// A connection. Dropping it closes it; the server may still execute requests in flight.
#[derive(Debug)]
pub(super) struct PgSession {
    client: Client,
    database: Database,
    place: Place,
    /// The number of notifications. Their sender and contents prove nothing.
    notified: watch::Sender<u64>,
    end: watch::Receiver<Option<Fault>>,
    /// The value of [`MARK`], unless the server refused it.
    mark: Option<String>,
    /// Whether one server process executes all requests of this connection.
    direct: AtomicU8,
    /// The beginning of batches while that is unknown.
    local: String,
    task: JoinHandle<()>,
}

impl Drop for PgSession {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl PgSession {
    /// Takes over an open connection.
    pub(super) fn over(
        client: Client,
        mut connection: Connection<Box<dyn Stream>, NoTlsStream>,
        database: &Database,
        place: &Place,
        mark: Option<String>,
    ) -> Self {
        let (notified, (ended, end)) = (watch::Sender::new(first_count()), watch::channel(None));
        let local = local_settings(connection.parameter("server_version").unwrap_or_default());
        let tell = notified.clone();
        let task = tokio::spawn(async move {
            let why = loop {
                match poll_fn(|context| connection.poll_message(context)).await {
                    Some(Ok(AsyncMessage::Notification(_))) => tell.send_modify(|notified| *notified += 1),
                    Some(Ok(_)) => {}
                    Some(Err(error)) => break fault::of(&error),
                    None => break Fault::spent("the connection was closed"),
                }
            };
            ended.send_replace(Some(why));
            tell.send_modify(|notified| *notified += 1);
        });
        let direct = AtomicU8::new(if mark.is_some() { UNKNOWN } else { POOLED });
        let (database, place) = (database.clone(), place.clone());
        Self { client, database, place, notified, end, mark, direct, local, task }
    }

    async fn exchange(&self, batch: &str) -> FaultResult<Sets> {
        match self.client.simple_query(batch).await {
            Ok(messages) => Ok(sets(messages)),
            Err(error) if error.as_db_error().is_some() => {
                // The batch may have begun a transaction, which would remain open.
                let ended = self.client.batch_execute("ROLLBACK").await;
                ended.map_err(|error| fault::of(&error))?;
                Err(fault::of(&error))
            }
            // The task that serves the connection knows what broke it.
            Err(error) => Err(self.end.borrow().clone().unwrap_or_else(|| fault::of(&error))),
        }
    }

    /// Makes the server end the statement that it executes. A commit that waits for a standby is complete without it.
    async fn cancel(&self) {
        if let Ok(stream) = reach(&self.database, &self.place, &Stage::default()).await {
            let token = self.client.cancel_token();
            // Without it, the statement takes as long as the server takes.
            let _ = token.cancel_query_raw(stream, NoTls).boxed().await;
        }
    }
}

/// Connects to the server at `place`, and encrypts the connection as the mode of `database` requires.
pub(super) async fn reach(database: &Database, place: &Place, stage: &Stage) -> FaultResult<Box<dyn Stream>> {
    match place {
        Place::Socket(path) => {
            let stream = UnixStream::connect(path).await.map_err(|error| unreached(&error))?;
            stage.connected();
            Ok(Box::new(stream))
        }
        Place::Tcp(at) => {
            let stream = socket::connect(&at.host, at.port).await.map_err(|error| unreached(&error))?;
            stage.connected();
            encrypted(Box::new(stream), database, &at.host).boxed().await
        }
    }
}

fn unreached(error: &io::Error) -> Fault {
    if error.kind() == io::ErrorKind::PermissionDenied {
        return Fault::new(ErrorKind::Denied, cause::said(error));
    }
    // The caller adds the server.
    socket::unmade(cause::explained(error), error)
}

fn sets(messages: Vec<SimpleQueryMessage>) -> Sets {
    let mut sets = Sets::new();
    for message in messages {
        match message {
            SimpleQueryMessage::RowDescription(_) => sets.push(Vec::new()),
            SimpleQueryMessage::Row(row) => {
                let columns: Row = (0..row.len()).map(|n| row.get(n).map(str::to_owned)).collect();
                if let Some(set) = sets.last_mut() {
                    set.push(columns);
                }
            }
            _ => {}
        }
    }
    sets
}

#[async_trait]
impl Session for PgSession {
    async fn run(&self, batch: &str) -> FaultResult<Sets> {
        let known = self.direct.load(Ordering::Relaxed);
        let local = if known == DIRECT { "" } else { &self.local };
        let ask = known == UNKNOWN || batch.contains("LISTEN ");
        let Some(mark) = self.mark.as_ref().filter(|_| ask) else {
            return self.exchange(&[local, batch].concat()).await;
        };
        // Within the transaction, if there is one, because another one would cost its own commit.
        let (work, end) = batch.strip_suffix("COMMIT;").map_or((batch, ""), |work| (work, "COMMIT;"));
        let batch = [local, work, &session_settings(mark), end].concat();
        let mut sets = self.exchange(&batch).await?;
        let found = sets.pop().and_then(|set| set.into_iter().next()?.into_iter().next()?);
        let direct = if found.as_deref() == Some("t") { DIRECT } else { POOLED };
        self.direct.store(direct, Ordering::Relaxed);
        Ok(sets)
    }

    async fn settled(&self) -> bool {
        let mut end = self.end.clone();
        let settled = async {
            self.cancel().await;
            // It is answered after all other requests. One that was cancelled leaves its transaction open.
            self.client.simple_query("ROLLBACK").await.is_ok()
        };
        tokio::select! {
            _ = end.wait_for(Option::is_some) => false,
            settled = settled => settled,
        }
    }

    fn peer(&self) -> String {
        self.place.to_string()
    }

    fn is_open(&self) -> bool {
        self.end.borrow().is_none() && !self.client.is_closed()
    }

    fn can_notify(&self) -> bool {
        self.direct.load(Ordering::Relaxed) == DIRECT
    }

    fn news(&self) -> watch::Receiver<u64> {
        self.notified.subscribe()
    }
}
