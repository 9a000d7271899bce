//! Requests to the database, at the server that accepts writes at the moment.

use std::sync::Arc;

use super::database::{Place, Server};
use super::dialect::{Dialect, Session, Sets};
use super::examine::examine;
use crate::backend::Examination;
use crate::clock::Clock;
use crate::lock::Moment;
use crate::net::cause;
use crate::net::fault::{Fault, FaultResult, Retry};
use crate::net::link::{Dial, Link, Stage};
use crate::net::request::Patience;

/// The sessions of one client.
#[derive(Debug)]
pub(super) struct Sessions {
    pub(super) dialect: Arc<dyn Dialect>,
    pub(super) clock: Clock,
    pub(super) link: Link<Servers>,
}

/// The results, and the session that they came from.
pub(super) struct Reply {
    pub(super) sets: Sets,
    pub(super) session: Arc<dyn Session>,
    /// The session's number of notifications before the batch was sent.
    pub(super) notified: u64,
    /// When this batch was sent, after any failed attempts.
    pub(super) sent: Moment,
}

/// The servers of a database, of which one accepts writes.
#[derive(Debug)]
pub(super) struct Servers(Arc<dyn Dialect>);

impl Dial for Servers {
    type Connection = dyn Session;
    type Node = ();

    fn servers(&self, (): &()) -> usize {
        self.0.database().servers.len()
    }

    fn place(&self, (): &(), server: usize) -> String {
        self.0.database().servers[server].place.to_string()
    }

    async fn dial(&self, (): &(), server: usize, stage: &Stage) -> FaultResult<Arc<dyn Session>> {
        let server = &self.0.database().servers[server];
        self.0.dial(server, stage).await.map_err(|fault| fault.at(&server.place))
    }

    async fn settled(&self, session: &(dyn Session + 'static)) -> bool {
        session.settled().await
    }

    async fn is_usable(&self, session: &(dyn Session + 'static)) -> bool {
        session.is_open() && session.awake().await
    }

    fn peer(&self, session: &(dyn Session + 'static)) -> String {
        session.peer()
    }

    async fn look(&self) -> Option<Fault> {
        let address = |server: &Server| match &server.place {
            Place::Tcp(at) => Some(at.to_string()),
            Place::Socket(_) => None,
        };
        let addresses: Option<Vec<String>> = self.0.database().servers.iter().map(address).collect();
        // Encryption is requested within the database's own protocol.
        cause::of_all(&addresses?, &self.0.kind().manner, false).await
    }
}

impl Sessions {
    pub(super) fn new(dialect: Arc<dyn Dialect>, clock: Clock) -> Self {
        let link = Link::new(Servers(Arc::clone(&dialect)), clock);
        Self { dialect, clock, link }
    }

    /// Returns a client of the same database with a session of its own.
    pub(super) fn another(&self) -> Self {
        Self::new(Arc::clone(&self.dialect), self.clock)
    }

    /// Returns whether a request over an earlier session may still be in flight.
    pub(super) fn may_be_overtaken(&self) -> bool {
        self.link.opened() > 1
    }

    /// Executes `batch`, until `deadline`. It may still be executed after an error, so it must be idempotent. Missing
    /// tables are created.
    pub(super) async fn call(
        &self,
        deadline: Moment,
        patience: Patience,
        batch: impl Fn(&Arc<dyn Session>) -> String + Send + Sync,
    ) -> FaultResult<Reply> {
        let request = |session: Arc<dyn Session>| {
            let batch = batch(&session);
            async move {
                match self.run(&session, &batch).await {
                    Err(fault) if fault.retry == Retry::Making => {
                        session.run(&self.dialect.create()).await?;
                        self.run(&session, &batch).await
                    }
                    answer => answer,
                }
            }
        };
        self.link.call(deadline, patience, || (), request).await
    }

    /// Reads, until `deadline`; nothing if there are no tables yet. Changes nothing.
    pub(super) async fn read(&self, deadline: Moment, batch: &str) -> FaultResult<Reply> {
        let request = |session: Arc<dyn Session>| async move {
            match self.run(&session, batch).await {
                Err(fault) if fault.retry == Retry::Making => self.run(&session, "").await,
                answer => answer,
            }
        };
        self.link.call(deadline, Patience::Once, || (), request).await
    }

    async fn run(&self, session: &Arc<dyn Session>, batch: &str) -> FaultResult<Reply> {
        let (notified, sent) = (session.notified_count(), self.clock.now());
        let sets = session.run(batch).await?;
        Ok(Reply { sets, session: Arc::clone(session), notified, sent })
    }

    /// Examines the database, until `deadline`.
    pub(super) async fn examine(&self, deadline: Moment) -> FaultResult<Examination> {
        // The first exchange includes connecting.
        self.read(deadline, "SELECT 1;").await?;
        let begun = self.clock.now();
        let answer = self.read(deadline, "SELECT 1;").await?;
        let round_trip = self.clock.now().since(begun);
        let session = answer.session;
        let found = async {
            let (server, risks) = examine(&*self.dialect, &*session).await?;
            let name = Some(self.dialect.database().name.as_str()).filter(|name| !name.is_empty());
            let reached = format!("{} (database {})", session.peer(), name.unwrap_or("named by the prefix"));
            Ok(Examination { server, reached, round_trip, risks })
        };
        let late = || Err(Fault::spent(format!("{} did not answer by the deadline", session.peer())));
        self.clock.by(deadline, found).await.unwrap_or_else(late)
    }
}
