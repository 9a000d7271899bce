//! Redlock: locks on several independent Redis servers, of which a majority decides.
//!
//! A claim enters the queues of all nodes at once and holds when more than half of them have given it the lock, for as
//! long as the shortest-lived of these lasts, counted from when each was asked. Each node keeps its queue as one server
//! does, but in an order that all nodes come to: by the time of arrival by which a majority knew of it. Whoever holds at a
//! minority gives that back as soon as somebody waits there who comes first, so that of claims that came at the same
//! moment exactly one gets the lock. A node's word counts only if it has run for longer than any ttl: a restarted one
//! may have forgotten what it gave. Tokens are the highest of a majority, written back to a majority before the hold
//! counts; that takes no request where the nodes could all give the one that was proposed. With slots a node lets in one
//! claim at a time of which it does not know that a majority gave it the name, and then the next one.

mod claim;
mod client;
mod config;
mod core;
mod deadlock;
mod enter;
mod evict;
mod examine;
mod exchange;
mod fan_out;
mod former;
mod inspect;
mod majority;
#[cfg(test)]
mod model;
#[cfg(test)]
mod model_claim;
#[cfg(test)]
mod model_node;
#[cfg(test)]
mod model_node_tests;
#[cfg(test)]
mod model_tests;
mod node_claim;
mod observe;
mod reconcile;
mod renew;
mod reply;
mod row;
mod script;
mod want;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::backend::fault::During;
use crate::backend::observe::QueueObserver;
use crate::backend::redis::fault::NAME;
use crate::backend::{Backend, Capabilities, Evict, Examination, Observer, TokenStrength};
use crate::lock::{ClaimId, Holder, LockName, LockStatus, Moment, Request, Result};
pub use client::RedlockBackend;
use client::nodes;
pub use config::RedlockConfig;

#[async_trait]
impl Backend for RedlockBackend {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            backend: NAME,
            atomic_names: false,
            ordered: false,
            token: TokenStrength::BestEffort,
            leased: true,
            renewals_per_ttl: 3,
            look_while_running: true,
            abandoned_bound: Duration::from_secs(1),
        }
    }

    fn identity(&self) -> String {
        self.config.identity()
    }

    fn has_connected(&self) -> bool {
        self.nodes.services.iter().any(|node| node.has_connected())
    }

    async fn enter(&self, request: &Request, deadline: Moment) -> Result<Arc<dyn crate::backend::Claim>> {
        let claim = enter::enter(self, request, deadline).await;
        let claim = claim.during(NAME, "join the queue", request.names.first())?;
        Ok(Arc::new(claim))
    }

    async fn inspect(&self, name: &LockName, deadline: Moment) -> Result<LockStatus> {
        let queue = inspect::queue(&self.nodes, &self.naming, name, deadline).await;
        Ok(queue.during(NAME, "inspect the queue", Some(name))?.status(name))
    }

    async fn list(&self, prefix: &str, deadline: Moment) -> Result<Vec<LockStatus>> {
        let queues = inspect::queues(self, prefix, deadline).await;
        queues.during(NAME, "list the queues", None)
    }

    async fn observe(&self, name: &LockName) -> Result<Box<dyn Observer>> {
        // Tracking everything that is read is a matter of whole connections.
        let own = nodes(&self.config, self.clock);
        let queue = observe::WatchedQueue::new(own, self.naming.clone());
        Ok(Box::new(QueueObserver::new(NAME, self.clock, name.clone(), queue)))
    }

    async fn evict(
        &self,
        name: &LockName,
        id: ClaimId,
        how: Evict,
        by: &Holder,
        deadline: Moment,
    ) -> Result<bool> {
        let evicted = evict::evict(self, std::slice::from_ref(name), id, how, by, deadline).await;
        evicted.during(NAME, "evict from the queue", Some(name))
    }

    async fn withdraw(&self, request: &Request, deadline: Moment) -> Result<()> {
        let Request { names, id, holder, .. } = request;
        let gone = evict::evict(self, names, *id, Evict::Force, holder, deadline).await;
        gone.map(drop).during(NAME, "leave the queue", names.first())
    }

    fn is_detachable(&self) -> bool {
        true
    }

    async fn renew(&self, name: &LockName, id: ClaimId, deadline: Moment) -> Result<bool> {
        let lives = renew::renew(self, name, id, deadline).await;
        lives.during(NAME, "renew the claim", Some(name))
    }

    async fn publish(&self, name: &LockName, id: ClaimId, value: &str, deadline: Moment) -> Result<bool> {
        let published = evict::publish(self, name, id, value, deadline).await;
        published.during(NAME, "publish a value in the queue", Some(name))
    }

    async fn evict_foreign(&self, name: &LockName, id: ClaimId, deadline: Moment) -> Result<bool> {
        let evicted = evict::evict_foreign(self, name, id, deadline).await;
        evicted.during(NAME, "evict from the queue", Some(name))
    }

    async fn examine(&self, deadline: Moment) -> Result<Examination> {
        examine::examine(self, deadline).await.during(NAME, "examine the service", None)
    }

    async fn last_success(&self, name: &LockName, deadline: Moment) -> Result<Option<Duration>> {
        let age = evict::last_success(self, name, deadline).await;
        age.during(NAME, "read the last success", Some(name))
    }
}
