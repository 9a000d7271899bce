//! The queue of a lock as one document, for stores with only compare-and-set: read, create if absent, replace if
//! unchanged, remove if unchanged.
//!
//! Each claim is an entry of the document ([`queue::Document`]), in order of arrival, with a counter that its owner
//! increments to renew it. A change is one replacement of the document that was read, so a late request is refused
//! because the document has changed since. An entry is only ever added to an existing document: an empty one is created
//! first. So a request that creates an item cannot revive a claim that has ended.
//!
//! Server clocks decide no lease: every client takes an entry for dead once its counter has not changed for its ttl and
//! [`watch::MARGIN`] on the client's clock, as the leader election of Kubernetes' client-go does. The store cannot wake
//! a waiter, so claims poll (`pace`).

mod arrive;
mod change;
mod claim;
mod client;
mod evict;
mod observe;
mod pace;
pub mod queue;
mod renew;
mod show;
mod store;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod view;
pub mod watch;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::backend::observe::QueueObserver;
use crate::backend::{Backend, Capabilities, Claim, Evict, Examination, Observer};
use crate::lock::{ClaimId, Holder, LockName, LockStatus, Moment, Request, Result};
use crate::net::rank::Rank;
use claim::DocumentClaim;
pub use client::Queues;
pub use store::{Arrival, Item, Replaced, Store, Version};

#[async_trait]
impl Backend for Queues {
    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }

    fn identity(&self) -> String {
        self.store.identity()
    }

    fn connects_as(&self, rank: Rank) {
        self.store.connects_as(rank);
    }

    fn has_connected(&self) -> bool {
        self.store.has_connected()
    }

    async fn enter(&self, request: &Request, deadline: Moment) -> Result<Arc<dyn Claim>> {
        Ok(DocumentClaim::enter(self, request, deadline).await?)
    }

    async fn inspect(&self, name: &LockName, deadline: Moment) -> Result<LockStatus> {
        show::inspect(&*self.store, name, deadline).await
    }

    async fn list(&self, prefix: &str, deadline: Moment) -> Result<Vec<LockStatus>> {
        show::list(&*self.store, prefix, deadline).await
    }

    async fn observe(&self, name: &LockName) -> Result<Box<dyn Observer>> {
        let queue = observe::WatchedQueue::new(self.clone(), name);
        Ok(Box::new(QueueObserver::new(self.clock, name.clone(), queue)))
    }

    async fn evict(
        &self,
        name: &LockName,
        id: ClaimId,
        how: Evict,
        by: &Holder,
        deadline: Moment,
    ) -> Result<bool> {
        evict::evict(self, name, id, how, by, deadline).await
    }

    async fn evict_foreign(&self, name: &LockName, id: ClaimId, deadline: Moment) -> Result<bool> {
        evict::evict_foreign(&*self.store, name, id, deadline).await
    }

    async fn publish(&self, name: &LockName, id: ClaimId, value: &str, deadline: Moment) -> Result<bool> {
        evict::publish(self, name, id, value, deadline).await
    }

    fn is_detachable(&self) -> bool {
        true
    }

    async fn renew(&self, name: &LockName, id: ClaimId, deadline: Moment) -> Result<bool> {
        renew::renew(self, name, id, deadline).await
    }

    async fn examine(&self, deadline: Moment) -> Result<Examination> {
        self.store.examine(deadline).await
    }

    async fn forget(&self, name: &LockName, deadline: Moment) -> Result<()> {
        self.store.forget(name, deadline).await
    }

    async fn last_success(&self, name: &LockName, deadline: Moment) -> Result<Option<Duration>> {
        self.store.age_of_success(name, deadline).await
    }
}
