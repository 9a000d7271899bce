//! An ensemble, sessions with any of its servers, and the deadlines of requests.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use zookeeper_client::{Acls, Client};

use super::config::ZkConfig;
use super::dial::{Dialer, Session};
use crate::clock::Clock;
use crate::lock::{Moment, Reason};
use crate::net::cause;
use crate::net::fault::{Fault, FaultResult};
use crate::net::link::Link;
use crate::net::rank::Rank;
use crate::net::request::Patience;
use crate::sync::locked;

/// The length of a session that reads or writes for no claim. It has no nodes, so nothing depends on it.
pub(super) const LOOKING: Duration = Duration::from_secs(10);

/// A client of one ensemble.
#[derive(Debug)]
pub(super) struct Ensemble {
    pub(super) config: ZkConfig,
    pub(super) clock: Clock,
    /// Whether a session was started, so that its requests may have been executed.
    pub(super) connected: AtomicBool,
    /// Why there is no session, as found by the last probe.
    cause: Arc<Mutex<Option<Reason>>>,
    /// The purpose of the claims' connections.
    pub(super) rank: Mutex<Rank>,
}

impl Ensemble {
    pub(super) fn new(config: ZkConfig, clock: Clock) -> Self {
        Self {
            config,
            clock,
            connected: AtomicBool::new(false),
            cause: Arc::default(),
            rank: Mutex::default(),
        }
    }

    /// Returns the access rights of created nodes: with a user, this user only.
    pub(super) fn acls(&self) -> Acls<'static> {
        if self.config.user.is_some() { Acls::creator_all() } else { Acls::anyone_all() }
    }

    /// Starts a session of about `ttl`. It retries until a server answers, so the caller sets a deadline. If no server
    /// is present at all, it fails at once. Dropping the future leaves at most a session without nodes.
    pub(super) async fn connect(&self, ttl: Duration) -> FaultResult<Client> {
        Ok(self.session(&self.link(ttl)).await?.client)
    }

    /// Returns a link that starts and resumes a session of about `ttl`.
    pub(super) fn link(&self, ttl: Duration) -> Link<Dialer> {
        Link::new(Dialer::new(&self.config, ttl, &self.cause), self.clock)
    }

    /// Connects the session of `link`, with the retries of [`Ensemble::connect`].
    pub(super) async fn session(&self, link: &Link<Dialer>) -> FaultResult<Session> {
        let opened = |session| async { Ok(session) };
        let session = link.call(Moment::NEVER, Patience::Present, || (), opened).await?;
        link.close(&session);
        *locked(&self.cause) = None;
        self.connected.store(true, Ordering::Relaxed);
        Ok(Session::clone(&session))
    }

    /// Runs `work` until the deadline.
    pub(super) async fn by<T>(
        &self,
        deadline: Moment,
        work: impl Future<Output = FaultResult<T>>,
    ) -> FaultResult<T> {
        tokio::select! {
            biased;
            result = work => result.map_err(|fault| self.explain(fault)),
            () = self.clock.sleep_until(deadline) => Err(self.late()),
        }
    }

    /// Returns `fault`, with the ensemble if the fault comes from it.
    pub(super) fn explain(&self, fault: Fault) -> Fault {
        if fault.code == 0 { fault } else { fault.at(&self.config.address()) }
    }

    /// Returns the fault of a request without an answer by its deadline.
    fn late(&self) -> Fault {
        let cause = locked(&self.cause).clone();
        // An earlier session refutes what a look guessed.
        let cause = cause.filter(|cause| !self.connected.load(Ordering::Relaxed) || !cause::is_guess(cause));
        let silent = || cause::silent(&self.config.address());
        Fault::spent(cause.unwrap_or_else(silent))
    }
}
