//! A client that repeats a call after a transient error, as the contract allows its callers to.

use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use dlock::backend::{Backend, Capabilities, Claim, Evict, Examination, Observer};
use dlock::clock::Clock;
use dlock::lock::{ClaimId, ClaimState, Holder, LockName, LockStatus, Moment, Request, Result};

/// The pause between a transient error and the next attempt.
const PAUSE: Duration = Duration::from_millis(5);

/// A call under way.
type Call<'a, R> = Pin<Box<dyn Future<Output = Result<R>> + Send + 'a>>;

/// A client, or a claim of one.
#[derive(Debug)]
pub(crate) struct Persistent<T: ?Sized> {
    pub(crate) inner: Arc<T>,
    pub(crate) clock: Clock,
}

impl<T: ?Sized> Persistent<T> {
    /// Returns the final outcome of `call`.
    async fn call<'a, R>(&self, deadline: Moment, call: impl Fn() -> Call<'a, R> + Send) -> Result<R> {
        loop {
            let outcome = call().await;
            let passes = outcome.as_ref().is_err_and(dlock::lock::Error::is_transient);
            let next = self.clock.now() + PAUSE;
            if !passes || next >= deadline {
                return outcome;
            }
            self.clock.sleep_until(next).await;
        }
    }
}

impl Persistent<dyn Backend> {
    /// Returns whether the entry exists. A request whose answer was lost may have removed it.
    async fn is_there(&self, name: &LockName, id: ClaimId, deadline: Moment) -> Result<bool> {
        let line = self.inspect(name, deadline).await?;
        Ok(line.holders.iter().chain(&line.waiters).any(|entry| entry.claim == Some(id)))
    }
}

#[async_trait]
impl Backend for Persistent<dyn Backend> {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn identity(&self) -> String {
        self.inner.identity()
    }

    async fn enter(&self, request: &Request, deadline: Moment) -> Result<Arc<dyn Claim>> {
        let entered = self.call(deadline, || self.inner.enter(request, deadline)).await;
        entered.map(|claim| Arc::new(Persistent { inner: claim, clock: self.clock }) as Arc<dyn Claim>)
    }

    async fn inspect(&self, name: &LockName, deadline: Moment) -> Result<LockStatus> {
        self.call(deadline, || self.inner.inspect(name, deadline)).await
    }

    async fn list(&self, prefix: &str, deadline: Moment) -> Result<Vec<LockStatus>> {
        self.call(deadline, || self.inner.list(prefix, deadline)).await
    }

    async fn observe(&self, name: &LockName) -> Result<Box<dyn Observer>> {
        let observer = self.call(Moment::NEVER, || self.inner.observe(name)).await?;
        Ok(Box::new(PersistentObserver { inner: observer, clock: self.clock }))
    }

    async fn evict(
        &self,
        name: &LockName,
        id: ClaimId,
        how: Evict,
        by: &Holder,
        deadline: Moment,
    ) -> Result<bool> {
        let was_there = self.is_there(name, id, deadline).await?;
        let found = self.call(deadline, || self.inner.evict(name, id, how, by, deadline)).await?;
        Ok(found || (was_there && !self.is_there(name, id, deadline).await?))
    }

    async fn evict_foreign(&self, name: &LockName, id: ClaimId, deadline: Moment) -> Result<bool> {
        let was_there = self.is_there(name, id, deadline).await?;
        let found = self.call(deadline, || self.inner.evict_foreign(name, id, deadline)).await?;
        Ok(found || (was_there && !self.is_there(name, id, deadline).await?))
    }

    async fn publish(&self, name: &LockName, id: ClaimId, value: &str, deadline: Moment) -> Result<bool> {
        self.call(deadline, || self.inner.publish(name, id, value, deadline)).await
    }

    fn is_detachable(&self) -> bool {
        self.inner.is_detachable()
    }

    async fn renew(&self, name: &LockName, id: ClaimId, deadline: Moment) -> Result<bool> {
        self.call(deadline, || self.inner.renew(name, id, deadline)).await
    }

    async fn examine(&self, deadline: Moment) -> Result<Examination> {
        self.call(deadline, || self.inner.examine(deadline)).await
    }

    async fn last_success(&self, name: &LockName, deadline: Moment) -> Result<Option<Duration>> {
        self.call(deadline, || self.inner.last_success(name, deadline)).await
    }
}

#[async_trait]
impl Claim for Persistent<dyn Claim> {
    fn ttl(&self) -> Option<Duration> {
        self.inner.ttl()
    }

    async fn changed(&self, seen: Option<&ClaimState>) -> Result<ClaimState> {
        self.call(Moment::NEVER, || self.inner.changed(seen)).await
    }

    async fn renew(&self, deadline: Moment) -> Result<Moment> {
        self.call(deadline, || self.inner.renew(deadline)).await
    }

    async fn leave(&self, succeeded: bool, deadline: Moment) -> Result<()> {
        self.call(deadline, || self.inner.leave(succeeded, deadline)).await
    }

    fn anchors(&self) -> Result<Vec<OwnedFd>> {
        self.inner.anchors()
    }
}

#[derive(Debug)]
struct PersistentObserver {
    inner: Box<dyn Observer>,
    clock: Clock,
}

#[async_trait]
impl Observer for PersistentObserver {
    async fn next(&mut self) -> Result<LockStatus> {
        loop {
            match self.inner.next().await {
                Err(error) if error.is_transient() => {
                    self.clock.sleep_until(self.clock.now() + PAUSE).await;
                }
                outcome => return outcome,
            }
        }
    }
}
