//! Locks in Redis: a string key that any client understands, and a fair queue for it.
//!
//! The lock itself is the key that redis-py, redsync and similar clients use. An exclusive hold sets it to the claim's
//! id, with the rest of the ttl as its life. Shared and slot holds together keep it set to a marker.
//!
//! In the same cluster slot, the queue is a sorted set in order of arrival, with one hash for each claim, which lives
//! as long as the claim. Every step is one script on the server's clock. Every script that may free the lock also
//! grants it to the next claim: a grant needs no request of that claim, and counts from its last renewal. The server's
//! tracking of keys wakes waiters and holders. It is only a hint: the state is always read, never inferred.

mod claim;
mod client;
mod cluster;
mod config;
mod connection;
mod dial;
mod examine;
mod fault;
mod keys;
mod observe;
mod queues;
pub mod redlock;
mod row;
mod script;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::backend::observe::QueueObserver;
use crate::backend::service::{self as descriptor, Address, ServiceOption};
use crate::backend::{Backend, Capabilities, Evict, Examination, Observer, TokenStrength};
use crate::clock::Clock;
use crate::lock::{ClaimId, Holder, LockName, LockStatus, Moment, Request, Result};
use crate::net::address::HostPort;
use crate::net::rank::Rank;
use client::Client;
pub use config::{RedisConfig, Topology};
use fault::NAME;
use keys::Naming;
use queues::Queues;
use redlock::{RedlockBackend, RedlockConfig};

/// One Redis, or with Redlock several independent ones.
pub static SERVICE: descriptor::Service = descriptor::Service {
    name: NAME,
    schemes: &["redis://", "rediss://", "unix:", "redis+sentinel://", "redis+cluster://"],
    has_login: true,
    options: &[ServiceOption {
        name: "max-ttl",
        remedy: "name three independent Redis servers or more with --endpoint",
    }],
    parse: |options| match RedlockConfig::parse(options)? {
        Some(several) => Ok(Box::new(several)),
        None => Ok(Box::new(RedisConfig::parse(options)?)),
    },
    manual: include_str!("manual.md"),
};

impl Address for RedisConfig {
    fn service(&self) -> &'static descriptor::Service {
        &SERVICE
    }

    fn open(&self) -> Arc<dyn Backend> {
        Arc::new(RedisBackend::open(self.clone()))
    }

    fn place(&self) -> String {
        self.identity()
    }

    fn each(&self) -> Vec<Box<dyn Address>> {
        let alone = |topology| Box::new(Self { topology, ..self.clone() }) as Box<dyn Address>;
        let one = |host: &HostPort| vec![host.clone()];
        match &self.topology {
            Topology::Sentinel { sentinels, master } => {
                let by = |host| Topology::Sentinel { sentinels: one(host), master: master.clone() };
                sentinels.iter().map(|host| alone(by(host))).collect()
            }
            Topology::Cluster(nodes) => {
                nodes.iter().map(|host| alone(Topology::Cluster(one(host)))).collect()
            }
            Topology::Server(_) | Topology::Socket(_) => Vec::new(),
        }
    }

    /// Without `--max-ttl`, which applies only to Redlock.
    fn options(&self) -> &'static [ServiceOption] {
        &[]
    }
}

impl Address for RedlockConfig {
    fn service(&self) -> &'static descriptor::Service {
        &SERVICE
    }

    fn open(&self) -> Arc<dyn Backend> {
        Arc::new(RedlockBackend::open(self.clone()))
    }

    fn each(&self) -> Vec<Box<dyn Address>> {
        self.nodes.iter().map(|node| Box::new(node.clone()) as Box<_>).collect()
    }

    /// A node need not have every lock.
    fn alternatives(&self) -> Vec<Box<dyn Address>> {
        Vec::new()
    }

    fn place(&self) -> String {
        self.identity()
    }
}

/// One Redis, found directly, through sentinels, or as a cluster.
#[derive(Debug)]
pub struct RedisBackend(Queues);

impl RedisBackend {
    /// Creates a client with `config`, which connects with the first call.
    pub fn open(config: RedisConfig) -> Self {
        Self::with_clock(config, Clock::Boot)
    }

    /// Creates a client with a clock that may differ from the server's; otherwise works like [`RedisBackend::open`].
    pub fn with_clock(config: RedisConfig, clock: Clock) -> Self {
        let naming = Naming { prefix: config.prefix.clone(), group: "" };
        Self(Queues { service: Arc::new(Client::new(config, clock)), naming })
    }
}

#[async_trait]
impl Backend for RedisBackend {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            backend: NAME,
            queue: true,
            shared: true,
            token: TokenStrength::Volatile,
            leased: true,
            renewals_per_ttl: 3,
            look_while_running: true,
            abandoned_bound: Duration::from_secs(1),
        }
    }

    fn identity(&self) -> String {
        self.0.service.config.identity()
    }

    fn connects_as(&self, rank: Rank) {
        self.0.service.connects_as(rank);
    }

    fn has_connected(&self) -> bool {
        self.0.service.has_connected()
    }

    async fn enter(&self, request: &Request, deadline: Moment) -> Result<Arc<dyn crate::backend::Claim>> {
        Ok(Arc::new(self.0.enter(request, deadline).await?))
    }

    async fn inspect(&self, name: &LockName, deadline: Moment) -> Result<LockStatus> {
        self.0.inspect(name, deadline).await
    }

    async fn list(&self, prefix: &str, deadline: Moment) -> Result<Vec<LockStatus>> {
        self.0.list(prefix, deadline).await
    }

    async fn observe(&self, name: &LockName) -> Result<Box<dyn Observer>> {
        let queue = observe::WatchedQueue::new(&self.0);
        Ok(Box::new(QueueObserver::new(self.0.service.clock, name.clone(), queue)))
    }

    async fn evict(
        &self,
        name: &LockName,
        id: ClaimId,
        how: Evict,
        by: &Holder,
        deadline: Moment,
    ) -> Result<bool> {
        self.0.evict(name, id, how, by, deadline).await
    }

    async fn withdraw(&self, request: &Request, deadline: Moment) -> Result<()> {
        self.0.withdraw(request, deadline).await
    }

    async fn publish(&self, name: &LockName, id: ClaimId, value: &str, deadline: Moment) -> Result<bool> {
        self.0.publish(name, id, value, deadline).await
    }

    async fn evict_foreign(&self, name: &LockName, id: ClaimId, deadline: Moment) -> Result<bool> {
        self.0.evict_foreign(name, id, deadline).await
    }

    fn is_detachable(&self) -> bool {
        true
    }

    async fn renew(&self, name: &LockName, id: ClaimId, deadline: Moment) -> Result<bool> {
        self.0.renew(name, id, deadline).await
    }

    async fn examine(&self, deadline: Moment) -> Result<Examination> {
        // Over a separate connection, because the trials would disturb listeners.
        examine::examine(&self.0.service.apart(), deadline).await
    }

    async fn everywhere(&self, name: LockName, deadline: Moment) -> Result<Vec<LockName>> {
        self.0.everywhere(name, deadline).await
    }

    async fn forget(&self, name: &LockName, deadline: Moment) -> Result<()> {
        self.0.forget(name, deadline).await
    }

    async fn last_success(&self, name: &LockName, deadline: Moment) -> Result<Option<Duration>> {
        self.0.last_success(name, deadline).await
    }
}
