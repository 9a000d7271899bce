//! The reference implementation: a service inside one process, with switches that break it (mutations).
//!
//! It states the contract in the fewest words. The contract suite is tested on it: with one [`Mutation`] seeded the
//! suite must fail. It uses only the parts of the library that every backend can use.

mod claim;
mod mutation;
mod observe;
mod queues;
mod server;
mod steps;
mod view;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use dlock::backend::observe::QueueObserver;
use dlock::backend::{Backend, Capabilities, Claim, Evict, Examination, Observer, TokenStrength};
use dlock::clock::Clock;
use dlock::lock::{ClaimId, ErrorKind, Holder, LockName, LockStatus, Moment, Request, Result};

use claim::MemoryClaim;
pub(crate) use mutation::Mutation;
use queues::Refusal;
pub(crate) use server::MemoryServer;
use server::{Call, NAME};

/// One client of a [`MemoryServer`].
#[derive(Debug)]
pub(crate) struct MemoryBackend {
    server: Arc<MemoryServer>,
    clock: Clock,
}

impl MemoryBackend {
    /// Returns a client whose clock is the server's.
    pub(crate) fn connect(server: &Arc<MemoryServer>) -> Self {
        Self::connect_with(server, server.clock())
    }

    /// Returns a client with a clock of its own, which may differ from the server's.
    pub(crate) fn connect_with(server: &Arc<MemoryServer>, clock: Clock) -> Self {
        Self { server: Arc::clone(server), clock }
    }

    fn call(&self, deadline: Moment) -> Call<'_> {
        Call { server: &self.server, clock: self.clock, deadline }
    }
}

#[async_trait]
impl Backend for MemoryBackend {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            backend: NAME,
            queue: true,
            shared: true,
            token: TokenStrength::Durable,
            leased: true,
            renewals_per_ttl: 3,
            look_while_running: false,
            abandoned_bound: Duration::from_millis(2),
        }
    }

    fn identity(&self) -> String {
        self.server.identity()
    }

    async fn enter(&self, request: &Request, deadline: Moment) -> Result<Arc<dyn Claim>> {
        let counts_from = self.clock.now();
        let call = self.call(deadline);
        let news = call
            .run(|queues, now| match request.names.first() {
                None => Err(Refusal::new(ErrorKind::Invalid, "a claim needs a name")),
                Some(_) => queues.enter(request, counts_from, now),
            })
            .await?;
        Ok(Arc::new(MemoryClaim::new(Arc::clone(&self.server), self.clock, request, news, counts_from)))
    }

    async fn inspect(&self, name: &LockName, deadline: Moment) -> Result<LockStatus> {
        let call = self.call(deadline);
        call.run(|queues, now| Ok(queues.inspect(name, now))).await
    }

    async fn list(&self, prefix: &str, deadline: Moment) -> Result<Vec<LockStatus>> {
        self.call(deadline).run(|queues, now| Ok(queues.list(prefix, now))).await
    }

    async fn observe(&self, name: &LockName) -> Result<Box<dyn Observer>> {
        let queue = observe::WatchedQueue::new(&self.server);
        Ok(Box::new(QueueObserver::new(self.server.clock(), name.clone(), queue)))
    }

    async fn evict(
        &self,
        name: &LockName,
        id: ClaimId,
        how: Evict,
        by: &Holder,
        deadline: Moment,
    ) -> Result<bool> {
        let call = self.call(deadline);
        call.run(|queues, _| Ok(queues.evict(name, id, how, by))).await
    }

    async fn publish(&self, name: &LockName, id: ClaimId, value: &str, deadline: Moment) -> Result<bool> {
        let call = self.call(deadline);
        call.run(|queues, _| Ok(queues.publish(name, id, value))).await
    }

    async fn evict_foreign(&self, _: &LockName, _: ClaimId, _: Moment) -> Result<bool> {
        Ok(false)
    }

    async fn examine(&self, deadline: Moment) -> Result<Examination> {
        let begun = self.clock.now();
        self.call(deadline).run(|_, _| Ok(())).await?;
        Ok(Examination {
            server: "memory".to_owned(),
            reached: self.server.identity(),
            round_trip: self.clock.now().since(begun),
            risks: Vec::new(),
        })
    }

    async fn last_success(&self, name: &LockName, deadline: Moment) -> Result<Option<Duration>> {
        let call = self.call(deadline);
        call.run(|queues, now| Ok(queues.last_success(name, now))).await
    }
}
