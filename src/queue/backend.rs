//! The queues of a store as a backend.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use async_trait::async_trait;

use super::claim::QueueClaim;
use super::decide;
use super::enter::removal;
use super::observe::WatchedQueue;
use super::store::{Change, Extent, Item, Key, Note, Own, Queue, Step, Store};
use crate::backend::observe::QueueObserver;
use crate::backend::{Backend, Claim, Evict, Examination, Observer, ServiceClient};
use crate::clock::Clock;
use crate::lock::{ClaimId, ErrorKind, Holder, LockName, LockStatus, Mode, Moment, Request, Result};
use crate::net::fault::{Fault, FaultResult};
use crate::sync::locked;

/// A backend that keeps its queues in a store.
#[derive(Debug)]
pub struct Queues {
    store: Arc<dyn Store>,
    clock: Clock,
    /// The claims of this client: entering one again returns the same.
    claims: Mutex<HashMap<ClaimId, Weak<QueueClaim>>>,
}

impl Queues {
    /// Creates the backend of `store`, whose deadlines are of `clock`.
    pub fn new(store: Arc<dyn Store>, clock: Clock) -> Self {
        Self { store, clock, claims: Mutex::default() }
    }

    fn known(&self, id: ClaimId) -> Option<Arc<QueueClaim>> {
        let mut claims = locked(&self.claims);
        claims.retain(|_, claim| claim.strong_count() > 0);
        claims.get(&id).and_then(Weak::upgrade).filter(|claim| claim.is_live())
    }

    async fn whole(&self, name: &LockName, deadline: Moment) -> FaultResult<Queue> {
        let queues = self.store.read(std::slice::from_ref(name), Extent::Whole, deadline).await?.queues;
        Ok(queues.into_iter().next().unwrap_or_else(|| Queue { name: name.clone(), items: Vec::new() }))
    }

    /// Returns the entries of the claim of `item`, in the order of its names: `item`, found in `queue`, and the others.
    async fn all_of(
        &self,
        queue: &Queue,
        item: &Item,
        deadline: Moment,
    ) -> FaultResult<(Vec<LockName>, Vec<Item>)> {
        let names = item.about.as_ref().map(|about| about.names.clone()).unwrap_or_default();
        if names.len() < 2 {
            return Ok((vec![queue.name.clone()], vec![item.clone()]));
        }
        let queues = self.store.read(&names, Extent::Whole, deadline).await?.queues;
        let items = queues.iter().filter_map(|queue| decide::of_claim(queue, item.id)).cloned().collect();
        Ok((names, items))
    }

    /// Makes `step` for an entry that `select` finds in the queue of `name`, provided that it is still there. Returns
    /// whether there was such an entry.
    async fn act(
        &self,
        name: &LockName,
        select: impl Fn(&Queue) -> Option<&Item> + Send + Sync,
        step: impl Fn(&Item) -> Step + Send + Sync,
        deadline: Moment,
    ) -> FaultResult<bool> {
        while self.clock.now() < deadline {
            let queue = self.whole(name, deadline).await?;
            let Some(item) = select(&queue) else { return Ok(false) };
            let when: [(LockName, Key); 1] = [(name.clone(), item.key.clone())];
            if self.store.commit(None, &when, &[step(item)], deadline).await?.0 {
                return Ok(true);
            }
        }
        Err(Fault::unavailable("the entry changed again and again until the deadline"))
    }

    async fn remove(&self, name: &LockName, id: ClaimId, by: &Holder, deadline: Moment) -> FaultResult<bool> {
        let mut was_there = false;
        while self.clock.now() < deadline {
            let queue = self.whole(name, deadline).await?;
            let item = decide::of_claim(&queue, id);
            let (names, found) = match item {
                Some(item) => self.all_of(&queue, item, deadline).await?,
                None => (vec![name.clone()], Vec::new()),
            };
            let when: Vec<_> = item.map(|item| (name.clone(), item.key.clone())).into_iter().collect();
            let note = Some(Note::Evicted(Some(by.clone())));
            // Made even if the claim is absent: its requests in flight are then refused.
            let step = Step::Remove { id, names, found, note };
            let done = self.store.commit(None, &when, &[step], deadline).await?.0;
            // If it was there and is absent now, an earlier attempt with a lost answer has removed it.
            was_there |= item.is_some();
            if done {
                return Ok(was_there);
            }
        }
        Err(Fault::unavailable("the entry changed again and again until the deadline"))
    }
}

#[async_trait]
impl Backend for Queues {
    fn client(&self) -> &dyn ServiceClient {
        &*self.store
    }

    async fn enter(&self, request: &Request, deadline: Moment) -> Result<Arc<dyn Claim>> {
        if let Some(claim) = self.known(request.id) {
            return Ok(claim);
        }
        let claim = Arc::new(QueueClaim::enter(&self.store, self.clock, request, deadline).await?);
        let mut claims = locked(&self.claims);
        claims.insert(request.id, Arc::downgrade(&claim));
        Ok(claim)
    }

    async fn inspect(&self, name: &LockName, deadline: Moment) -> Result<LockStatus> {
        let queues = self.store.read(std::slice::from_ref(name), Extent::Shown, deadline).await?.queues;
        Ok(queues.first().map_or_else(|| LockStatus::empty(name), decide::status))
    }

    async fn list(&self, prefix: &str, deadline: Moment) -> Result<Vec<LockStatus>> {
        let queues = self.store.list(prefix, deadline).await?;
        Ok(queues.iter().map(decide::status).filter(|status| !status.is_empty()).collect())
    }

    async fn observe(&self, name: &LockName) -> Result<Box<dyn Observer>> {
        let queue = WatchedQueue { store: Arc::clone(&self.store), clock: self.clock, seen: 0 };
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
        let asked = |item: &Item| Step::Change(name.clone(), item.clone(), Change::Asked(by.clone()));
        match how {
            Evict::Ask => self.act(name, |queue| decide::of_claim(queue, id), asked, deadline).await,
            Evict::Force => self.remove(name, id, by, deadline).await,
        }
    }

    async fn withdraw(&self, request: &Request, deadline: Moment) -> Result<()> {
        self.store.commit(None, &[], &[removal(request)], deadline).await?;
        Ok(())
    }

    async fn evict_foreign(&self, name: &LockName, id: ClaimId, deadline: Moment) -> Result<bool> {
        let remove = |item: &Item| Step::RemoveForeign(name.clone(), item.key.clone());
        self.act(
            name,
            |queue| queue.items.iter().find(|item| item.foreign && item.id == id),
            remove,
            deadline,
        )
        .await
    }

    async fn publish(&self, name: &LockName, id: ClaimId, value: &str, deadline: Moment) -> Result<bool> {
        let label = |item: &Item| Step::Change(name.clone(), item.clone(), Change::Label(value.to_owned()));
        self.act(name, |queue| decide::holder(queue, id), label, deadline).await
    }

    async fn renew(&self, name: &LockName, id: ClaimId, deadline: Moment) -> Result<bool> {
        if !self.store.is_detachable() {
            return Err(Fault::new(ErrorKind::Unsupported, "it keeps no lease without a process"));
        }
        let queue = self.whole(name, deadline).await?;
        let Some(item) = decide::holder(&queue, id) else { return Ok(false) };
        let Some(about) = &item.about else { return Ok(false) };
        let (names, items) = self.all_of(&queue, item, deadline).await?;
        let keys: Vec<_> = items.into_iter().map(|item| item.key).collect();
        if keys.len() < names.len() {
            return Ok(false);
        }
        let mode = item.mode.unwrap_or(Mode::Exclusive);
        let own = Own { id, names, mode, ttl: about.ttl, keys };
        Ok(self.store.renew(&own, false, deadline).await?.is_some())
    }

    async fn examine(&self, deadline: Moment) -> Result<Examination> {
        self.store.examine(deadline).await
    }

    async fn everywhere(&self, name: LockName, deadline: Moment) -> Result<Vec<LockName>> {
        self.store.everywhere(name, deadline).await
    }

    async fn forget(&self, name: &LockName, deadline: Moment) -> Result<()> {
        self.store.forget(name, deadline).await
    }

    async fn last_success(&self, name: &LockName, deadline: Moment) -> Result<Option<Duration>> {
        self.store.last_success(name, deadline).await
    }
}
