//! Locks in `ZooKeeper`: ephemeral sequential nodes, in the format of Curator and kazoo.
//!
//! Each claim is a separate session with the ttl as its timeout; the end of the session ends the claim. A claim's nodes
//! on all its names are created in one step. A waiter watches the one node that must go first.

mod claim;
mod config;
mod dial;
mod ensemble;
mod enter;
mod evict;
mod examine;
mod fault;
mod follow;
mod handshake;
mod list;
mod node;
mod note;
mod observe;
mod paths;
mod position;
mod proofs;
mod queue;
mod renew;
mod shared;
mod slots;
mod snapshot;
mod success;
mod wire;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use async_trait::async_trait;
use zookeeper_client::{Client, SessionState, StateWatcher};

use super::observe::QueueObserver;
use super::service::{Address, NAME_THE_SERVICE, Service, ServiceOption};
use super::{Backend, Capabilities, Claim, Evict, Examination, Observer, TokenStrength};
use crate::clock::Clock;
use crate::lock::validity::LeaseTimes;
use crate::lock::{ClaimId, ErrorKind, Holder, LockName, LockStatus, Moment, Request, Result};
use crate::net::fault::{Fault, FaultResult};
use claim::ZkClaim;
pub use config::ZkConfig;
use ensemble::Ensemble;
use fault::NAME;
use wire::ended;

/// The length of the session that reads and evicts. It has no nodes, so nothing depends on it.
const LOOKING: Duration = Duration::from_secs(10);

/// An ensemble of ZooKeeper.
pub static SERVICE: Service = Service {
    name: NAME,
    schemes: &["zk://"],
    has_login: true,
    options: &[ServiceOption { name: "zk-layout", remedy: NAME_THE_SERVICE }],
    parse: |options| Ok(Box::new(ZkConfig::parse(options)?)),
    manual: include_str!("manual.md"),
};

impl Address for ZkConfig {
    fn service(&self) -> &'static Service {
        &SERVICE
    }

    fn open(&self) -> Arc<dyn Backend> {
        Arc::new(ZkBackend::open(self))
    }

    fn place(&self) -> String {
        self.identity()
    }

    fn each(&self) -> Vec<Box<dyn Address>> {
        let alone =
            |server: &String| Box::new(Self { servers: vec![server.clone()], ..self.clone() }) as Box<_>;
        self.servers.iter().map(alone).collect()
    }
}

/// One ensemble.
#[derive(Debug)]
pub struct ZkBackend {
    ensemble: Arc<Ensemble>,
    looking: tokio::sync::Mutex<Option<Client>>,
    claims: Mutex<HashMap<ClaimId, Entered>>,
}

/// The state of a claim that was entered through this backend.
#[derive(Debug)]
enum Entered {
    Claim(Weak<ZkClaim>),
    /// The attempt was abandoned; its session is being closed.
    Leaving(StateWatcher),
}

/// The session of an attempt to enter, closed if the attempt is abandoned.
struct Attempt<'a> {
    backend: &'a ZkBackend,
    id: ClaimId,
    client: Option<Client>,
}

impl Attempt<'_> {
    fn give_up(&mut self) -> Option<StateWatcher> {
        let client = self.client.take()?;
        let watcher = client.state_watcher();
        self.backend.remember(self.id, Entered::Leaving(watcher.clone()));
        Some(watcher)
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        drop(self.give_up());
    }
}

impl ZkBackend {
    /// Creates a client of the ensemble in `config`, which connects on first use.
    pub fn open(config: &ZkConfig) -> Self {
        Self::open_with(config, Clock::Boot)
    }

    /// Creates a client with another clock.
    #[doc(hidden)]
    pub fn open_with(config: &ZkConfig, clock: Clock) -> Self {
        Self {
            ensemble: Arc::new(Ensemble::new(config.clone(), clock)),
            looking: tokio::sync::Mutex::new(None),
            claims: Mutex::default(),
        }
    }

    fn remember(&self, id: ClaimId, entered: Entered) {
        let mut claims = self.claims.lock().unwrap_or_else(PoisonError::into_inner);
        claims.retain(|_, entered| match entered {
            Entered::Claim(claim) => claim.strong_count() > 0,
            Entered::Leaving(watcher) => !watcher.peek_state().is_terminated(),
        });
        claims.insert(id, entered);
    }

    /// Returns the live claim of this id in this process.
    fn known(&self, id: ClaimId) -> Option<Arc<ZkClaim>> {
        let claims = self.claims.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(Entered::Claim(claim)) = claims.get(&id) else { return None };
        claim.upgrade().filter(|claim| !claim.0.publisher.is_over())
    }

    /// Waits until an abandoned attempt with this id has left nothing behind.
    async fn left_behind(&self, id: ClaimId) {
        let watcher = {
            let claims = self.claims.lock().unwrap_or_else(PoisonError::into_inner);
            match claims.get(&id) {
                Some(Entered::Leaving(watcher)) => watcher.clone(),
                _ => return,
            }
        };
        // A service that was silent then may still be so. Entries left behind are then found and removed by the caller.
        let _ = tokio::time::timeout(Duration::from_secs(1), ended(watcher)).await;
    }

    /// Returns the session that reads. A session without a connection is replaced, because a server that has lost its
    /// data never accepts it again.
    async fn looking(&self) -> FaultResult<Client> {
        let mut looking = self.looking.lock().await;
        match &*looking {
            Some(client) if client.state() == SessionState::SyncConnected => Ok(client.clone()),
            _ => Ok(looking.insert(self.ensemble.connect(LOOKING).await?).clone()),
        }
    }

    fn queue(&self, name: &LockName) -> FaultResult<String> {
        self.ensemble.paths.queue(name).map_err(|why| Fault::new(ErrorKind::Invalid, why))
    }

    async fn try_enter(&self, request: &Request) -> FaultResult<Arc<ZkClaim>> {
        if request.names.is_empty() {
            return Err(Fault::new(ErrorKind::Invalid, "a claim needs a name"));
        }
        for name in &request.names {
            self.queue(name)?;
        }
        self.left_behind(request.id).await;
        let begun = self.ensemble.clock.now();
        let link = self.ensemble.link(request.ttl);
        let session = self.ensemble.session(&link).await?;
        let client = session.client.clone();
        let granted = client.session_timeout();
        let mut attempt = Attempt { backend: self, id: request.id, client: Some(client.clone()) };
        let entered = if granted < LeaseTimes::LEAST_TTL {
            let reason = format!(
                "{} grants sessions of {granted:?} at most; raise its maxSessionTimeout to 1s or more",
                self.ensemble.config.address(),
            );
            Err(Fault::new(ErrorKind::Invalid, reason))
        } else {
            enter::enter(&self.ensemble, request, link, session, begun).await
        };
        drop(client);
        match entered {
            Ok(shared) => {
                attempt.client = None;
                let claim = Arc::new(ZkClaim(shared));
                self.remember(request.id, Entered::Claim(Arc::downgrade(&claim)));
                Ok(claim)
            }
            Err(fault) => {
                // After a refusal the caller may rely on the claim having no entry.
                if let Some(watcher) = attempt.give_up() {
                    ended(watcher).await;
                }
                Err(fault)
            }
        }
    }
}

#[async_trait]
impl Backend for ZkBackend {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            backend: NAME,
            queue: true,
            shared: true,
            token: TokenStrength::Durable,
            leased: true,
            renewals_per_ttl: follow::RENEWALS,
            look_while_running: false,
            // Two ticks of a server with the usual configuration.
            abandoned_bound: Duration::from_secs(4),
        }
    }

    fn identity(&self) -> String {
        self.ensemble.config.identity()
    }

    fn has_connected(&self) -> bool {
        self.ensemble.has_connected()
    }

    async fn enter(&self, request: &Request, deadline: Moment) -> Result<Arc<dyn Claim>> {
        if let Some(claim) = self.known(request.id) {
            return Ok(claim);
        }
        let claim = self.ensemble.by(deadline, self.try_enter(request)).await?;
        Ok(claim)
    }

    async fn inspect(&self, name: &LockName, deadline: Moment) -> Result<LockStatus> {
        self.ensemble
            .by(deadline, async {
                let queue = self.queue(name)?;
                let client = self.looking().await?;
                let read = snapshot::read(&client, &queue, true).await?;
                Ok(snapshot::status(name, &snapshot::entries(&client, &queue, read).await?))
            })
            .await
    }

    async fn list(&self, prefix: &str, deadline: Moment) -> Result<Vec<LockStatus>> {
        self.ensemble
            .by(deadline, async {
                let client = self.looking().await?;
                let found = list::queues(&self.ensemble, &client, prefix).await?;
                Ok(found.iter().map(|queue| snapshot::status(&queue.name, &queue.entries)).collect())
            })
            .await
    }

    async fn observe(&self, name: &LockName) -> Result<Box<dyn Observer>> {
        let queue = observe::WatchedQueue::new(Arc::clone(&self.ensemble), self.queue(name)?);
        Ok(Box::new(QueueObserver::new(self.ensemble.clock, name.clone(), queue)))
    }

    async fn evict(
        &self,
        name: &LockName,
        id: ClaimId,
        how: Evict,
        by: &Holder,
        deadline: Moment,
    ) -> Result<bool> {
        if how != Evict::Ask {
            self.ensemble.persist();
        }
        self.ensemble
            .by(deadline, async {
                self.left_behind(id).await;
                let client = self.looking().await?;
                evict::evict(&self.ensemble, &client, name, id, how, by).await
            })
            .await
    }

    async fn publish(&self, name: &LockName, id: ClaimId, value: &str, deadline: Moment) -> Result<bool> {
        self.ensemble
            .by(deadline, async {
                let client = self.looking().await?;
                evict::publish(&self.ensemble, &client, name, id, value).await
            })
            .await
    }

    async fn evict_foreign(&self, name: &LockName, id: ClaimId, deadline: Moment) -> Result<bool> {
        self.ensemble
            .by(deadline, async {
                let queue = self.queue(name)?;
                let client = self.looking().await?;
                evict::evict_foreign(&client, &queue, id).await
            })
            .await
    }

    async fn examine(&self, deadline: Moment) -> Result<Examination> {
        self.ensemble
            .by(deadline, async {
                let client = self.looking().await?;
                examine::examine(&self.ensemble, &client).await
            })
            .await
    }

    async fn last_success(&self, name: &LockName, deadline: Moment) -> Result<Option<Duration>> {
        self.ensemble
            .by(deadline, async {
                let queue = self.queue(name)?;
                let client = self.looking().await?;
                success::last(&self.ensemble, &client, &queue).await
            })
            .await
    }
}
