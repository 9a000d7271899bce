//! Queues in etcd.
//!
//! Entries are under `NAME/`, in the layout of Go's `concurrency.Mutex`. So `etcdctl lock`, `etcdctl elect` and
//! programs with that library share the queue; dlock's additional keys are next to it. An entry depends on a lease with
//! an id that is derived from the claim's id. Entries are ordered by their create revisions.
//!
//! Modelled on Go's client (<https://github.com/etcd-io/etcd>, client/v3/concurrency), with three additions. The
//! claim's own entry is watched as well as the one ahead. A hold is proved by a transaction that checks the own entry.
//! A renewal is a keep-alive *and* a subsequent linearizable read.

mod claim;
mod config;
mod core;
mod dial;
mod enter;
mod evict;
mod examine;
mod fault;
mod follow;
mod keep_alive;
mod keys;
mod look;
mod observe;
mod publish;
mod queue;
mod renew;
mod stored;
mod wire;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use async_trait::async_trait;
use etcd_client::GetOptions;

use self::core::lock;
use claim::EtcdClaim;
pub use config::EtcdConfig;
use keys::Layout;
pub use keys::Prefix;
use wire::Wire;

use super::observe::QueueObserver;
use super::service::{Address, Service};
use super::{Backend, Capabilities, Claim, Evict, Examination, Observer, TokenStrength, success};
use crate::clock::Clock;
use crate::lock::{ClaimId, Holder, LockName, LockStatus, Moment, Request, Result};
use crate::net::fault::FaultResult;
use crate::net::rank::Rank;
use fault::NAME;

/// A cluster of etcd.
pub static SERVICE: Service = Service {
    name: NAME,
    schemes: &["http://", "https://", "etcd://"],
    has_login: true,
    options: &[],
    parse: |options| Ok(Box::new(EtcdConfig::parse(options)?)),
    manual: include_str!("manual.md"),
};

impl Address for EtcdConfig {
    fn service(&self) -> &'static Service {
        &SERVICE
    }

    fn open(&self) -> Arc<dyn Backend> {
        Arc::new(EtcdBackend::open(self))
    }

    fn place(&self) -> String {
        self.servers()
    }

    fn each(&self) -> Vec<Box<dyn Address>> {
        let alone = |url: &String| Box::new(Self { endpoints: vec![url.clone()], ..self.clone() }) as Box<_>;
        self.endpoints.iter().map(alone).collect()
    }
}

/// A client of one etcd cluster. It connects with the first request, and needs the tokio runtime of that request for
/// its whole life.
#[derive(Debug)]
pub struct EtcdBackend {
    wire: Arc<Wire>,
    layout: Layout,
    identity: String,
    /// The claims of this client: entering one again returns the same.
    claims: Mutex<HashMap<ClaimId, Weak<EtcdClaim>>>,
}

impl EtcdBackend {
    /// Creates a client that has not connected yet.
    pub fn open(config: &EtcdConfig) -> Self {
        Self {
            wire: Arc::new(Wire::new(config)),
            layout: config.layout(),
            identity: config.identity(),
            claims: Mutex::default(),
        }
    }

    fn known(&self, id: ClaimId) -> Option<Arc<EtcdClaim>> {
        let mut claims = lock(&self.claims);
        claims.retain(|_, claim| claim.strong_count() > 0);
        claims.get(&id).and_then(Weak::upgrade).filter(|claim| claim.is_live())
    }

    async fn last_success(&self, name: &LockName, deadline: Moment) -> FaultResult<Option<Duration>> {
        let key = self.layout.queue(name).done();
        let answer = self.wire.get(key, GetOptions::new(), deadline).await?;
        let acquired: Option<u64> =
            answer.kvs().first().and_then(|kv| kv.value_str().ok()).and_then(|text| text.parse().ok());
        let now = Duration::from_millis(stored::wall_clock());
        Ok(acquired.and_then(|at| success::age(now, Duration::from_millis(at))))
    }
}

#[async_trait]
impl Backend for EtcdBackend {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            backend: NAME,
            queue: true,
            shared: true,
            token: TokenStrength::Durable,
            leased: true,
            renewals_per_ttl: 3,
            look_while_running: false,
            abandoned_bound: Duration::from_secs(2),
        }
    }

    fn identity(&self) -> String {
        self.identity.clone()
    }

    fn place(&self) -> String {
        self.wire.place()
    }

    fn connects_as(&self, rank: Rank) {
        self.wire.connects_as(rank);
    }

    fn has_connected(&self) -> bool {
        self.wire.has_connected()
    }

    async fn enter(&self, request: &Request, deadline: Moment) -> Result<Arc<dyn Claim>> {
        if let Some(claim) = self.known(request.id) {
            return Ok(claim);
        }
        let joined = enter::enter(&self.wire, &self.layout, request, deadline).await?;
        let claim = Arc::new(EtcdClaim::new(joined));
        lock(&self.claims).insert(request.id, Arc::downgrade(&claim));
        Ok(claim)
    }

    async fn inspect(&self, name: &LockName, deadline: Moment) -> Result<LockStatus> {
        queue::inspect(&self.wire, &self.layout.queue(name), deadline).await
    }

    async fn list(&self, prefix: &str, deadline: Moment) -> Result<Vec<LockStatus>> {
        queue::list(&self.wire, &self.layout, prefix, deadline).await
    }

    async fn observe(&self, name: &LockName) -> Result<Box<dyn Observer>> {
        let queue = observe::WatchedQueue::new(Arc::clone(&self.wire), self.layout.queue(name));
        Ok(Box::new(QueueObserver::new(Clock::Boot, name.clone(), queue)))
    }

    async fn evict(
        &self,
        name: &LockName,
        id: ClaimId,
        how: Evict,
        by: &Holder,
        deadline: Moment,
    ) -> Result<bool> {
        let queue = self.layout.queue(name);
        evict::evict(&self.wire, &self.layout, &queue, id, how, by, deadline).await
    }

    async fn withdraw(&self, request: &Request, deadline: Moment) -> Result<()> {
        evict::withdraw(&self.wire, &self.layout, request, deadline).await
    }

    async fn publish(&self, name: &LockName, id: ClaimId, value: &str, deadline: Moment) -> Result<bool> {
        publish::publish(&self.wire, &self.layout.queue(name), id, value, deadline).await
    }

    async fn evict_foreign(&self, name: &LockName, id: ClaimId, deadline: Moment) -> Result<bool> {
        evict::evict_foreign(&self.wire, &self.layout.queue(name), id, deadline).await
    }

    fn is_detachable(&self) -> bool {
        true
    }

    async fn renew(&self, name: &LockName, id: ClaimId, deadline: Moment) -> Result<bool> {
        let queue = self.layout.queue(name);
        renew::renew_alone(&self.wire, &self.layout, &queue, id, deadline).await
    }

    async fn examine(&self, deadline: Moment) -> Result<Examination> {
        examine::examine(&self.wire, &self.layout, deadline).await
    }

    async fn last_success(&self, name: &LockName, deadline: Moment) -> Result<Option<Duration>> {
        self.last_success(name, deadline).await
    }
}
