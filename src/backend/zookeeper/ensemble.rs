//! An ensemble, and sessions with whichever of its servers answers.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use zookeeper_client::{Acls, Client, CreateMode, CreateOptions};

use super::config::ZkConfig;
use super::dial::{Dialer, Session};
use super::paths::Paths;
use crate::clock::Clock;
use crate::lock::{Moment, Reason};
use crate::net::fault::{Fault, FaultResult};
use crate::net::link::Link;
use crate::net::request::Patience;

/// How one ensemble is reached.
pub(super) struct Ensemble {
    pub(super) config: ZkConfig,
    pub(super) paths: Paths,
    pub(super) clock: Clock,
    /// A session was begun: what was asked for in it may have been done.
    connected: AtomicBool,
    /// Why there is no session, as the last look at the servers found.
    cause: Arc<Mutex<Option<Reason>>>,
    /// Whoever asks goes on until the deadline, also if no server is there.
    persists: AtomicBool,
}

impl fmt::Debug for Ensemble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ensemble({})", self.config.address())
    }
}

impl Ensemble {
    pub(super) fn new(config: ZkConfig, clock: Clock) -> Self {
        let paths = Paths::new(&config.chroot, config.prefix.as_deref());
        let (connected, persists) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { config, paths, clock, connected, cause: Arc::default(), persists }
    }

    /// As [`crate::backend::Backend::has_connected`].
    pub(super) fn has_connected(&self) -> bool {
        self.connected.load(Ordering::Relaxed)
    }

    /// Goes on asking until the deadline from now on, as whoever has to remove something does.
    pub(super) fn persist(&self) {
        self.persists.store(true, Ordering::Relaxed);
    }

    /// Who may touch the nodes that are made: with a user this user alone.
    pub(super) fn acls(&self) -> Acls<'static> {
        if self.config.user.is_some() { Acls::creator_all() } else { Acls::anyone_all() }
    }

    pub(super) fn ephemeral(&self) -> CreateOptions<'static> {
        CreateMode::EphemeralSequential.with_acls(self.acls())
    }

    /// A new session of about `ttl`; asks again and again until a server answers, so the caller sets an end. Where no server is
    /// there at all that is an answer, unless somebody persists.
    /// Dropping the future leaves no more than a session without nodes.
    pub(super) async fn connect(&self, ttl: Duration) -> FaultResult<Client> {
        Ok(self.session(&self.link(ttl)).await?.client)
    }

    /// How a session of about `ttl` is connected.
    pub(super) fn link(&self, ttl: Duration) -> Link<Dialer> {
        Link::new(Dialer::new(&self.config, ttl, &self.cause), self.clock)
    }

    /// As [`Ensemble::connect`], a connection for the session of `link`.
    pub(super) async fn session(&self, link: &Link<Dialer>) -> FaultResult<Session> {
        let persists = self.persists.load(Ordering::Relaxed);
        let patience = if persists { Patience::Deadline } else { Patience::Present };
        let session = link.call(Moment::NEVER, patience, || (), |session| async { Ok(session) }).await?;
        link.close(&session);
        *self.cause.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.connected.store(true, Ordering::Relaxed);
        Ok(Session::clone(&session))
    }

    /// Nobody has answered for so long as somebody would wait.
    pub(super) fn late(&self) -> Fault {
        let cause = self.cause.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let silent = || format!("no answer from {} in time", self.config.address()).into();
        Fault::spent(cause.unwrap_or_else(silent))
    }

    /// `fault`, with the ensemble if it is one of its words.
    pub(super) fn explain(&self, fault: Fault) -> Fault {
        if fault.code == 0 { fault } else { fault.at(&self.config.address()) }
    }
}
