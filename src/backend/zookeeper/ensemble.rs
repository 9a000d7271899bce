//! An ensemble, and sessions with any of its servers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use zookeeper_client::{Acls, Client, CreateMode, CreateOptions};

use super::config::ZkConfig;
use super::dial::{Dialer, Session};
use super::paths::Paths;
use crate::clock::Clock;
use crate::lock::{ErrorKind, LockName, Moment, Reason};
use crate::net::cause;
use crate::net::fault::{Fault, FaultResult};
use crate::net::link::Link;
use crate::net::rank::Rank;
use crate::net::request::Patience;
use crate::sync::locked;

/// A client of one ensemble.
#[derive(Debug)]
pub(super) struct Ensemble {
    pub(super) config: ZkConfig,
    pub(super) paths: Paths,
    pub(super) clock: Clock,
    /// Whether a session was started, so that its requests may have been executed.
    connected: AtomicBool,
    /// Why there is no session, as found by the last probe.
    cause: Arc<Mutex<Option<Reason>>>,
    /// Whether requests continue until the deadline even if no server is present.
    persists: AtomicBool,
    /// The purpose of the claims' connections.
    rank: Mutex<Rank>,
}

impl Ensemble {
    pub(super) fn new(config: ZkConfig, clock: Clock) -> Self {
        let paths = Paths::new(&config.chroot, config.prefix.as_deref());
        let (connected, persists) = (AtomicBool::new(false), AtomicBool::new(false));
        let (cause, rank) = (Arc::default(), Mutex::default());
        Self { config, paths, clock, connected, cause, persists, rank }
    }

    /// Implements [`crate::backend::Backend::has_connected`].
    pub(super) fn has_connected(&self) -> bool {
        self.connected.load(Ordering::Relaxed)
    }

    /// Makes requests continue until the deadline from now on, for removals.
    pub(super) fn persist(&self) {
        self.persists.store(true, Ordering::Relaxed);
    }

    /// Implements [`crate::backend::Backend::connects_as`].
    pub(super) fn connects_as(&self, rank: Rank) {
        *locked(&self.rank) = rank;
    }

    pub(super) fn rank(&self) -> Rank {
        *locked(&self.rank)
    }

    /// Returns the path of the queue of `name`.
    pub(super) fn queue(&self, name: &LockName) -> FaultResult<String> {
        self.paths.queue(name).map_err(|why| Fault::new(ErrorKind::Invalid, why))
    }

    /// Returns the access rights of created nodes: with a user, this user only.
    pub(super) fn acls(&self) -> Acls<'static> {
        if self.config.user.is_some() { Acls::creator_all() } else { Acls::anyone_all() }
    }

    pub(super) fn ephemeral(&self) -> CreateOptions<'static> {
        CreateMode::EphemeralSequential.with_acls(self.acls())
    }

    /// Returns the options of a node for a slot.
    pub(super) fn slot(&self) -> CreateOptions<'static> {
        CreateMode::Ephemeral.with_acls(self.acls())
    }

    /// Starts a session of about `ttl`. It retries until a server answers, so the caller sets a deadline. If no server
    /// is present at all, it fails at once, unless [`Ensemble::persist`] was called. Dropping the future leaves at most
    /// a session without nodes.
    pub(super) async fn connect(&self, ttl: Duration) -> FaultResult<Client> {
        Ok(self.session(&self.link(ttl)).await?.client)
    }

    /// Returns a link that starts and resumes a session of about `ttl`.
    pub(super) fn link(&self, ttl: Duration) -> Link<Dialer> {
        Link::new(Dialer::new(&self.config, ttl, &self.cause), self.clock)
    }

    /// Connects the session of `link`, with the retries of [`Ensemble::connect`].
    pub(super) async fn session(&self, link: &Link<Dialer>) -> FaultResult<Session> {
        let persists = self.persists.load(Ordering::Relaxed);
        let patience = if persists { Patience::Deadline } else { Patience::Present };
        let session = link.call(Moment::NEVER, patience, || (), |session| async { Ok(session) }).await?;
        link.close(&session);
        *locked(&self.cause) = None;
        self.connected.store(true, Ordering::Relaxed);
        Ok(Session::clone(&session))
    }

    /// Returns the fault of a request without an answer by its deadline.
    pub(super) fn late(&self) -> Fault {
        let cause = locked(&self.cause).clone();
        // An earlier session refutes what a look guessed.
        let cause = cause.filter(|cause| !self.has_connected() || !cause::is_guess(cause));
        let silent = || cause::silent(&self.config.address());
        Fault::spent(cause.unwrap_or_else(silent))
    }

    /// Returns `fault`, with the ensemble if the fault comes from it.
    pub(super) fn explain(&self, fault: Fault) -> Fault {
        if fault.code == 0 { fault } else { fault.at(&self.config.address()) }
    }
}
