//! Adds the operation to the errors of every backend, its claims and its observers, in one place (C12).

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::{Backend, Claim, Evict, Examination, Observer, ServiceClient};
use crate::lock::{ClaimId, ClaimState, Error, Holder, LockName, LockStatus, Moment, Request, Result};

/// Returns the backend with errors that name the operation, the backend and the lock.
pub fn with_context(inner: Arc<dyn Backend>) -> Arc<dyn Backend> {
    let backend = inner.client().capabilities().backend;
    Arc::new(InContext { inner, backend, lock: None })
}

/// A backend, a claim or an observer, with the backend's name and the lock that it concerns.
#[derive(Debug)]
struct InContext<T> {
    inner: T,
    backend: &'static str,
    lock: Option<LockName>,
}

impl<T> InContext<T> {
    fn during(&self, verb: &'static str) -> impl FnOnce(Error) -> Error {
        self.with(verb, self.lock.as_ref())
    }

    fn with(&self, verb: &'static str, lock: Option<&LockName>) -> impl FnOnce(Error) -> Error {
        move |error| error.during(self.backend, verb, lock)
    }

    fn about<U>(&self, inner: U, lock: Option<&LockName>) -> InContext<U> {
        InContext { inner, backend: self.backend, lock: lock.cloned() }
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl Backend for InContext<Arc<dyn Backend>> {
    fn client(&self) -> &dyn ServiceClient {
        self.inner.client()
    }

    async fn enter(&self, request: &Request, deadline: Moment) -> Result<Arc<dyn Claim>> {
        let lock = request.names.first();
        // Without a queue there is nothing to join.
        let verb = if self.client().capabilities().queue { "join the queue" } else { "acquire the lock" };
        let claim = self.inner.enter(request, deadline).await.map_err(self.with(verb, lock))?;
        Ok(Arc::new(self.about(claim, lock)))
    }

    async fn inspect(&self, name: &LockName, deadline: Moment) -> Result<LockStatus> {
        self.inner.inspect(name, deadline).await.map_err(self.with("read the state", Some(name)))
    }

    async fn list(&self, prefix: &str, deadline: Moment) -> Result<Vec<LockStatus>> {
        self.inner.list(prefix, deadline).await.map_err(self.with("list the locks", None))
    }

    async fn observe(&self, name: &LockName) -> Result<Box<dyn Observer>> {
        let observer = self.inner.observe(name).await.map_err(self.with("read the state", Some(name)))?;
        Ok(Box::new(self.about(observer, Some(name))))
    }

    async fn evict(
        &self,
        name: &LockName,
        id: ClaimId,
        how: Evict,
        by: &Holder,
        deadline: Moment,
    ) -> Result<bool> {
        let done = self.inner.evict(name, id, how, by, deadline).await;
        done.map_err(self.with("end the claim", Some(name)))
    }

    async fn withdraw(&self, request: &Request, deadline: Moment) -> Result<()> {
        let gone = self.inner.withdraw(request, deadline).await;
        gone.map_err(self.with("withdraw the claim", request.names.first()))
    }

    async fn evict_foreign(&self, name: &LockName, id: ClaimId, deadline: Moment) -> Result<bool> {
        let done = self.inner.evict_foreign(name, id, deadline).await;
        done.map_err(self.with("end the claim", Some(name)))
    }

    async fn publish(&self, name: &LockName, id: ClaimId, value: &str, deadline: Moment) -> Result<bool> {
        let published = self.inner.publish(name, id, value, deadline).await;
        published.map_err(self.with("publish the value", Some(name)))
    }

    async fn renew(&self, name: &LockName, id: ClaimId, deadline: Moment) -> Result<bool> {
        self.inner.renew(name, id, deadline).await.map_err(self.with("renew the claim", Some(name)))
    }

    async fn examine(&self, deadline: Moment) -> Result<Examination> {
        self.inner.examine(deadline).await.map_err(self.with("examine the service", None))
    }

    async fn everywhere(&self, name: LockName, deadline: Moment) -> Result<Vec<LockName>> {
        self.inner.everywhere(name, deadline).await.map_err(self.with("find the servers", None))
    }

    async fn forget(&self, name: &LockName, deadline: Moment) -> Result<()> {
        self.inner.forget(name, deadline).await.map_err(self.with("forget the lock", Some(name)))
    }

    async fn last_success(&self, name: &LockName, deadline: Moment) -> Result<Option<Duration>> {
        let age = self.inner.last_success(name, deadline).await;
        age.map_err(self.with("read the last success", Some(name)))
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl Claim for InContext<Arc<dyn Claim>> {
    fn ttl(&self) -> Option<Duration> {
        self.inner.ttl()
    }

    async fn changed(&self, seen: Option<&ClaimState>) -> Result<ClaimState> {
        self.inner.changed(seen).await.map_err(self.during("follow the queue"))
    }

    async fn renew(&self, deadline: Moment) -> Result<Moment> {
        self.inner.renew(deadline).await.map_err(self.during("renew the claim"))
    }

    async fn leave(&self, succeeded: bool, deadline: Moment) -> Result<()> {
        self.inner.leave(succeeded, deadline).await.map_err(self.during("leave the queue"))
    }

    fn anchors(&self) -> Result<Vec<OwnedFd>> {
        self.inner.anchors().map_err(self.during("anchor the lock"))
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl Observer for InContext<Box<dyn Observer>> {
    async fn next(&mut self) -> Result<LockStatus> {
        self.inner.next().await.map_err(self.during("observe the queue"))
    }
}
