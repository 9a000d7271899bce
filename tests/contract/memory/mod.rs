//! The reference implementation: a store inside one process, with switches that break it (mutations).
//!
//! It states the contract of a store in the fewest words, and the engine decides over it. So the contract suite tests
//! the engine here without a service, and is itself tested: with one [`Mutation`] seeded the suite must fail.

mod mutation;
mod queues;
mod server;
mod view;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use dlock::backend::{Backend, Capabilities, Examination, ServiceClient};
use dlock::clock::Clock;
use dlock::lock::{Error, ErrorKind, LockName, Moment, Request, Result};
use dlock::queue::Queues as Engine;
use dlock::queue::store::{Answer, Extent, Key, Note, Own, Queue, Seen, Step, Store, Watched};

pub(crate) use mutation::Mutation;
use queues::Queues;
pub(crate) use server::MemoryServer;
use server::NAME;

/// One client of a [`MemoryServer`].
#[derive(Debug)]
struct MemoryStore {
    server: Arc<MemoryServer>,
    clock: Clock,
}

/// Returns a client of `server` with a clock of its own, which may differ from the server's.
pub(crate) fn connect(server: &Arc<MemoryServer>, clock: Clock) -> Arc<dyn Backend> {
    Arc::new(Engine::new(Arc::new(MemoryStore { server: Arc::clone(server), clock }), clock))
}

impl MemoryStore {
    /// Executes one step of the service, on behalf of this client.
    async fn call<T>(&self, deadline: Moment, f: impl FnOnce(&mut Queues, Moment) -> Result<T>) -> Result<T> {
        self.server.call(self.clock, deadline, f).await
    }

    fn has(&self, mutation: Mutation) -> bool {
        self.server.has(mutation)
    }
}

impl ServiceClient for MemoryStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            backend: NAME,
            queue: true,
            leased: true,
            renewals_per_ttl: 3,
            look_while_running: false,
            abandoned_bound: Duration::from_millis(2),
        }
    }

    fn identity(&self) -> String {
        NAME.to_owned()
    }

    fn has_connected(&self) -> bool {
        true
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn append(&self, request: &Request, deadline: Moment) -> Result<(Own, Answer)> {
        let sent = self.clock.now();
        let entered = self.call(deadline, |queues, now| {
            let own = queues.append(request, sent, now);
            let answer = queues.answer(Some(&own), &own.names, sent, now);
            Ok((own, answer))
        });
        entered.await
    }

    async fn read(&self, names: &[LockName], extent: Extent<'_>, deadline: Moment) -> Result<Answer> {
        let (sent, own) = (self.clock.now(), if let Extent::Needed(own) = extent { Some(own) } else { None });
        self.call(deadline, |queues, now| Ok(queues.answer(own, names, sent, now))).await
    }

    async fn commit(
        &self,
        own: Option<&Own>,
        when: &[(LockName, Key)],
        steps: &[Step],
        deadline: Moment,
    ) -> Result<(bool, Answer)> {
        let sent = self.clock.now();
        let names = own.map(|own| own.names.clone()).unwrap_or_default();
        let commit = self.call(deadline, |queues, now| {
            let done = queues.commit(own, when, steps, now);
            let names = if queues.waits_or_holds(own) { &names[..] } else { &[] };
            Ok((done, queues.answer(own, names, sent, now)))
        });
        commit.await
    }

    async fn renew(&self, own: &Own, _: bool, deadline: Moment) -> Result<Option<(Moment, Answer)>> {
        let begun = self.clock.now();
        let renewal = self.call(deadline, |queues, now| {
            let renewed = queues.renew(own.id, begun, now);
            Ok(renewed.then(|| queues.answer(Some(own), &own.names, begun, now)))
        });
        let answer = renewal.await?;
        let from = if self.has(Mutation::RenewCountsFromEnd) { self.clock.now() } else { begun };
        Ok(answer.map(|answer| (from, answer)))
    }

    async fn changed(&self, watched: Watched<'_>, seen: Seen, until: Moment) -> Result<()> {
        let is_deaf = match watched {
            Watched::Claim { .. } => self.has(Mutation::LosesWakeUps),
            Watched::Queue(_) => self.has(Mutation::ObserverSleeps),
        };
        let mut changes = self.server.changes();
        let (mut starts, clock) = (self.server.starts(), self.server.clock());
        loop {
            self.server.thawed().await;
            let (version, next) = self.server.step(|queues, now| (queues.version, queues.next_expiry(now)));
            if version != seen && !is_deaf {
                return Ok(());
            }
            tokio::select! {
                Ok(()) = changes.changed() => {}
                () = clock.sleep_until(next) => {}
                () = self.clock.sleep_until(until) => return Ok(()),
                _ = starts.changed() => {
                    return Err(Error::new(ErrorKind::Unavailable, "the service restarted"));
                }
            }
        }
    }

    async fn why_gone(&self, own: &Own, _: bool, deadline: Moment) -> Result<Option<Note>> {
        self.call(deadline, |queues, _| Ok(queues.note(own.id))).await
    }

    async fn list(&self, prefix: &str, deadline: Moment) -> Result<Vec<Queue>> {
        self.call(deadline, |queues, now| Ok(queues.list(prefix, now))).await
    }

    async fn last_success(&self, name: &LockName, deadline: Moment) -> Result<Option<Duration>> {
        self.call(deadline, |queues, now| Ok(queues.last_success(name, now))).await
    }

    async fn examine(&self, deadline: Moment) -> Result<Examination> {
        let begun = self.clock.now();
        self.call(deadline, |_, _| Ok(())).await?;
        Ok(Examination {
            server: NAME.to_owned(),
            reached: NAME.to_owned(),
            round_trip: self.clock.now().since(begun),
            risks: Vec::new(),
        })
    }
}
