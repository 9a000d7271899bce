//! Adds the operation to the errors of every backend, its claims and its observers, in one place (C12).

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::{Backend, Claim, Evict, Examination, Observer, ServiceClient};
use crate::lock::{ClaimId, ClaimState, Error, Holder, LockName, LockStatus, Moment, Request, Result};

/// Returns the backend with errors that name the operation, the backend and the lock.
pub fn with_context(backend: Arc<dyn Backend>) -> Arc<dyn Backend> {
    Arc::new(InContext(backend))
}

#[derive(Debug)]
struct InContext(Arc<dyn Backend>);

#[derive(Debug)]
struct ClaimInContext {
    claim: Arc<dyn Claim>,
    context: Context,
}

#[derive(Debug)]
struct ObserverInContext {
    observer: Box<dyn Observer>,
    context: Context,
}

/// The backend and the lock of an operation.
#[derive(Debug)]
struct Context {
    backend: &'static str,
    lock: Option<LockName>,
}

impl Context {
    fn during(&self, verb: &'static str) -> impl FnOnce(Error) -> Error {
        move |error| error.during(self.backend, verb, self.lock.as_ref())
    }
}

impl InContext {
    fn context(&self, lock: Option<&LockName>) -> Context {
        Context { backend: self.0.client().capabilities().backend, lock: lock.cloned() }
    }

    fn during(&self, verb: &'static str, lock: Option<&LockName>) -> impl FnOnce(Error) -> Error {
        move |error| self.context(lock).during(verb)(error)
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl Backend for InContext {
    fn client(&self) -> &dyn ServiceClient {
        self.0.client()
    }

    async fn enter(&self, request: &Request, deadline: Moment) -> Result<Arc<dyn Claim>> {
        let lock = request.names.first();
        // Without a queue there is nothing to join.
        let verb = if self.0.client().capabilities().queue { "join the queue" } else { "acquire the lock" };
        let claim = self.0.enter(request, deadline).await.map_err(self.during(verb, lock))?;
        Ok(Arc::new(ClaimInContext { claim, context: self.context(lock) }))
    }

    async fn inspect(&self, name: &LockName, deadline: Moment) -> Result<LockStatus> {
        self.0.inspect(name, deadline).await.map_err(self.during("read the state", Some(name)))
    }

    async fn list(&self, prefix: &str, deadline: Moment) -> Result<Vec<LockStatus>> {
        self.0.list(prefix, deadline).await.map_err(self.during("list the locks", None))
    }

    async fn observe(&self, name: &LockName) -> Result<Box<dyn Observer>> {
        let observer = self.0.observe(name).await.map_err(self.during("read the state", Some(name)))?;
        Ok(Box::new(ObserverInContext { observer, context: self.context(Some(name)) }))
    }

    async fn evict(
        &self,
        name: &LockName,
        id: ClaimId,
        how: Evict,
        by: &Holder,
        deadline: Moment,
    ) -> Result<bool> {
        let done = self.0.evict(name, id, how, by, deadline).await;
        done.map_err(self.during("end the claim", Some(name)))
    }

    async fn withdraw(&self, request: &Request, deadline: Moment) -> Result<()> {
        let gone = self.0.withdraw(request, deadline).await;
        gone.map_err(self.during("withdraw the claim", request.names.first()))
    }

    async fn evict_foreign(&self, name: &LockName, id: ClaimId, deadline: Moment) -> Result<bool> {
        let done = self.0.evict_foreign(name, id, deadline).await;
        done.map_err(self.during("end the claim", Some(name)))
    }

    async fn publish(&self, name: &LockName, id: ClaimId, value: &str, deadline: Moment) -> Result<bool> {
        let published = self.0.publish(name, id, value, deadline).await;
        published.map_err(self.during("publish the value", Some(name)))
    }

    async fn renew(&self, name: &LockName, id: ClaimId, deadline: Moment) -> Result<bool> {
        self.0.renew(name, id, deadline).await.map_err(self.during("renew the claim", Some(name)))
    }

    async fn examine(&self, deadline: Moment) -> Result<Examination> {
        self.0.examine(deadline).await.map_err(self.during("examine the service", None))
    }

    async fn everywhere(&self, name: LockName, deadline: Moment) -> Result<Vec<LockName>> {
        self.0.everywhere(name, deadline).await.map_err(self.during("find the servers", None))
    }

    async fn forget(&self, name: &LockName, deadline: Moment) -> Result<()> {
        self.0.forget(name, deadline).await.map_err(self.during("forget the lock", Some(name)))
    }

    async fn last_success(&self, name: &LockName, deadline: Moment) -> Result<Option<Duration>> {
        let age = self.0.last_success(name, deadline).await;
        age.map_err(self.during("read the last success", Some(name)))
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl Claim for ClaimInContext {
    fn ttl(&self) -> Option<Duration> {
        self.claim.ttl()
    }

    async fn changed(&self, seen: Option<&ClaimState>) -> Result<ClaimState> {
        self.claim.changed(seen).await.map_err(self.context.during("follow the queue"))
    }

    async fn renew(&self, deadline: Moment) -> Result<Moment> {
        self.claim.renew(deadline).await.map_err(self.context.during("renew the claim"))
    }

    async fn leave(&self, succeeded: bool, deadline: Moment) -> Result<()> {
        self.claim.leave(succeeded, deadline).await.map_err(self.context.during("leave the queue"))
    }

    fn anchors(&self) -> Result<Vec<OwnedFd>> {
        self.claim.anchors().map_err(self.context.during("anchor the lock"))
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl Observer for ObserverInContext {
    async fn next(&mut self) -> Result<LockStatus> {
        self.observer.next().await.map_err(self.context.during("observe the queue"))
    }
}
