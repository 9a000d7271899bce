//! The operations of a service under test.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use dlock::backend::{Backend, Claim};
use dlock::clock::Clock;
use dlock::lock::{ClaimId, LockName};

use crate::memory::Mutation;
pub(crate) use crate::servers::Need;

/// The error of a client's clock.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Skew {
    /// Ten minutes behind the server's.
    Behind,
    /// Ten minutes ahead of it.
    Ahead,
}

/// A future that a table can hold.
pub(crate) type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The demands of a case on its service.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Opening {
    /// Only the memory fixture accepts mutations.
    pub(crate) mutation: Option<Mutation>,
    /// The case freezes or restarts the service: no other case may use it.
    pub(crate) alone: bool,
    /// The case makes clients vanish.
    pub(crate) abandons: bool,
}

/// A service under test. If a fixture lacks a hook, it is never called: [`Subject::lacks`] returns the reason.
///
/// [`Subject::lacks`]: crate::fixtures::Subject::lacks
#[async_trait]
pub(crate) trait Fixture: Send + Sync {
    /// Returns the clock of deadlines and measurements.
    fn clock(&self) -> Clock;

    /// Returns a client that shares nothing with the others.
    async fn connect(&self) -> Arc<dyn Backend>;

    /// Returns the time limit for a call that waits for no TTL.
    fn patience(&self) -> Duration;

    /// Returns the time of watching after which a case concludes that nothing happens.
    fn blink(&self) -> Duration;

    /// Returns whether the service notifies a waiter that its entry was removed. If not, the waiter learns of it when
    /// it renews.
    fn tells_waiters(&self) -> bool {
        true
    }

    /// Returns a TTL that a case can wait out. A lease of this length survives a machine that stands still for a
    /// second.
    fn short_ttl(&self) -> Duration;

    /// Returns the time beyond the TTL after which an abandoned claim is gone (C04).
    async fn bound(&self) -> Duration {
        self.connect().await.client().capabilities().abandoned_bound
    }

    /// Returns a client with a wrong clock.
    async fn connect_skewed(&self, skew: Skew) -> Arc<dyn Backend> {
        unreachable!("no client with a clock {skew:?}")
    }

    /// Freezes the service until [`Fixture::thaw`]: it accepts connections and answers nothing.
    async fn freeze(&self) {
        unreachable!("cannot freeze")
    }

    async fn thaw(&self) {
        unreachable!("cannot thaw")
    }

    /// Restarts the service, which keeps its data.
    async fn restart(&self) {
        unreachable!("cannot restart")
    }

    /// Removes the object that carries this claim at the service.
    async fn sever(&self, claim: ClaimId, name: &LockName) {
        unreachable!("cannot sever {claim} on {name}")
    }

    /// Makes a client vanish without closing its session.
    async fn abandon(&self, client: Arc<dyn Backend>, claim: Arc<dyn Claim>) {
        unreachable!("cannot abandon {claim:?} of {client:?}")
    }
}
