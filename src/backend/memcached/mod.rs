//! Locks in memcached: the queue of a lock as one item, changed by compare-and-set ([`crate::backend::document`]).
//!
//! The item has the plain key of the lock, so clients that `add` a key to lock and `delete` it to unlock are kept out while
//! somebody holds or waits, and are waited for. It is removed with the last claim.
//!
//! The protocol is spoken by hand, in its text form, which every version since 1.5 has.

mod client;
mod config;
mod connection;
mod dial;
mod examine;
mod fault;
mod keys;
mod list;
mod store;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::backend::document::Queues;
use crate::backend::fault::During;
use crate::backend::service::{self as descriptor, Address};
use crate::backend::{Backend, Capabilities, Claim, Evict, Examination, Observer, TokenStrength};
use crate::clock::Clock;
use crate::lock::{ClaimId, Holder, LockName, LockStatus, Moment, Request, Result};
use client::Client;
pub use config::MemcachedConfig;
use fault::NAME;
pub use keys::Prefix;
use store::MemcachedStore;

/// One memcached.
pub static SERVICE: descriptor::Service = descriptor::Service {
    name: NAME,
    schemes: &["memcached://", "memcacheds://"],
    has_login: true,
    options: &[],
    parse: |options| Ok(Box::new(MemcachedConfig::parse(options)?)),
    manual: include_str!("manual.md"),
};

impl Address for MemcachedConfig {
    fn service(&self) -> &'static descriptor::Service {
        &SERVICE
    }

    fn open(&self) -> Result<Arc<dyn Backend>> {
        Ok(Arc::new(MemcachedBackend::open(self.clone())))
    }

    fn place(&self) -> String {
        self.identity()
    }
}

/// One memcached.
#[derive(Debug)]
pub struct MemcachedBackend {
    client: Arc<Client>,
    queues: Queues,
}

impl MemcachedBackend {
    /// Takes `config`; nothing is connected before the first call.
    pub fn open(config: MemcachedConfig) -> Self {
        Self::with_clock(config, Clock::Boot)
    }

    /// As [`MemcachedBackend::open`], for a client whose clock may tell another time than others'.
    pub fn with_clock(config: MemcachedConfig, clock: Clock) -> Self {
        let client = Arc::new(Client::new(config, clock));
        let store = Arc::new(MemcachedStore::new(Arc::clone(&client)));
        Self { client, queues: Queues::new(store, clock) }
    }
}

#[async_trait]
impl Backend for MemcachedBackend {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            backend: NAME,
            atomic_names: false,
            ordered: true,
            token: TokenStrength::Volatile,
            leased: true,
            renewals_per_ttl: 3,
            look_while_running: true,
            abandoned_bound: Duration::from_secs(5),
        }
    }

    fn identity(&self) -> String {
        self.client.config.identity()
    }

    fn has_connected(&self) -> bool {
        self.client.has_connected()
    }

    async fn enter(&self, request: &Request, deadline: Moment) -> Result<Arc<dyn Claim>> {
        self.queues.enter(request, deadline).await
    }

    async fn inspect(&self, name: &LockName, deadline: Moment) -> Result<LockStatus> {
        self.queues.inspect(name, deadline).await
    }

    async fn list(&self, prefix: &str, deadline: Moment) -> Result<Vec<LockStatus>> {
        self.queues.list(prefix, deadline).await
    }

    async fn observe(&self, name: &LockName) -> Result<Box<dyn Observer>> {
        Ok(self.queues.observe(name))
    }

    async fn evict(
        &self,
        name: &LockName,
        id: ClaimId,
        how: Evict,
        by: &Holder,
        deadline: Moment,
    ) -> Result<bool> {
        self.queues.evict(name, id, how, by, deadline).await
    }

    async fn evict_foreign(&self, name: &LockName, id: ClaimId, deadline: Moment) -> Result<bool> {
        self.queues.evict_foreign(name, id, deadline).await
    }

    async fn publish(&self, name: &LockName, id: ClaimId, value: &str, deadline: Moment) -> Result<bool> {
        self.queues.publish(name, id, value, deadline).await
    }

    fn is_detachable(&self) -> bool {
        true
    }

    async fn renew(&self, name: &LockName, id: ClaimId, deadline: Moment) -> Result<bool> {
        self.queues.renew(name, id, deadline).await
    }

    async fn examine(&self, deadline: Moment) -> Result<Examination> {
        let found = examine::examine(&self.client, deadline).await;
        found.during(NAME, "examine the service", None)
    }

    async fn last_success(&self, name: &LockName, deadline: Moment) -> Result<Option<Duration>> {
        self.queues.last_success(name, deadline).await
    }
}
