//! What the suite must be able to do to a service, whichever it is.

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

/// Which way a client's clock is wrong.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Skew {
    /// Ten minutes behind the server's.
    Behind,
    /// Ten minutes ahead of it.
    Ahead,
}

/// A future that a table can hold.
pub(crate) type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// How another process becomes a client of the service at an address.
pub(crate) type Remote = Box<dyn Fn(&str) -> Arc<dyn Backend>>;

/// What a case needs of the service that it is given.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Opening {
    /// Only the memory fixture is given mutations.
    pub(crate) mutation: Option<Mutation>,
    /// The service is frozen or restarted: no other case may use it.
    pub(crate) alone: bool,
    /// What chance decides.
    pub(crate) seed: u64,
}

/// A service under test. Hooks that a fixture lacks are never called: [`Subject::lacks`] says why.
///
/// [`Subject::lacks`]: crate::fixtures::Subject::lacks
#[async_trait]
pub(crate) trait Fixture: Send + Sync {
    /// The clock by which deadlines are given and time is taken.
    fn clock(&self) -> Clock;

    /// A client that shares nothing with the others.
    async fn connect(&self) -> Arc<dyn Backend>;

    /// How long anything may take that waits for no ttl.
    fn patience(&self) -> Duration;

    /// How long one looks on before believing that nothing happens.
    fn blink(&self) -> Duration;

    /// Whether a claim that waits is told that it has been removed; elsewhere it learns that when it renews.
    fn tells_waiters(&self) -> bool {
        true
    }

    /// A ttl that a case can wait out, and that outlasts a machine that stands still for a second.
    fn short_ttl(&self) -> Duration;

    /// The slack beyond the ttl after which an abandoned claim is gone (C04).
    async fn bound(&self) -> Duration {
        self.connect().await.capabilities().abandoned_bound
    }

    /// A client whose clock is wrong.
    async fn connect_skewed(&self, skew: Skew) -> Arc<dyn Backend> {
        unreachable!("no client with a clock {skew:?}")
    }

    /// The service accepts and answers nothing, until [`Fixture::thaw`].
    async fn freeze(&self) {
        unreachable!("cannot freeze")
    }

    /// Ends a freeze.
    async fn thaw(&self) {
        unreachable!("cannot thaw")
    }

    /// Restarts the service, which keeps its data.
    async fn restart(&self) {
        unreachable!("cannot restart")
    }

    /// Makes what carries this claim at the service vanish.
    async fn sever(&self, claim: ClaimId, name: &LockName) {
        unreachable!("cannot sever {claim} on {name}")
    }

    /// Has a client vanish without goodbye.
    async fn abandon(&self, client: Arc<dyn Backend>, claim: Arc<dyn Claim>) {
        unreachable!("cannot abandon {claim:?} of {client:?}")
    }

    /// Where another process finds this service.
    fn address(&self) -> String {
        unreachable!("not reachable from another process")
    }
}
