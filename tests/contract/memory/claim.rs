//! A claim, as its client sees it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;

use dlock::backend::Claim;
use dlock::clock::Clock;
use dlock::lock::{ClaimId, ClaimState, Error, ErrorKind, Moment, Request, Result};

use super::server::Call;
use super::{MemoryServer, Mutation};

#[derive(Debug)]
pub(super) struct MemoryClaim {
    server: Arc<MemoryServer>,
    clock: Clock,
    id: ClaimId,
    ttl: Duration,
    news: watch::Receiver<ClaimState>,
    last_good: Mutex<Moment>,
    left: AtomicBool,
    /// The last state that `changed` returned. One mutation compares with this instead of with `seen`.
    told: Mutex<Option<ClaimState>>,
}

impl MemoryClaim {
    pub(super) fn new(
        server: Arc<MemoryServer>,
        clock: Clock,
        request: &Request,
        news: watch::Receiver<ClaimState>,
        counts_from: Moment,
    ) -> Self {
        server.step(|queues, _| queues.answer(request.id));
        Self {
            server,
            clock,
            id: request.id,
            ttl: request.ttl,
            news,
            last_good: Mutex::new(counts_from),
            left: AtomicBool::new(false),
            told: Mutex::new(None),
        }
    }

    fn call(&self, deadline: Moment) -> Call<'_> {
        Call { server: &self.server, clock: self.clock, deadline }
    }

    /// Returns whether `state` is news after `seen`.
    fn is_news(&self, state: &ClaimState, seen: Option<&ClaimState>) -> bool {
        if self.server.has(Mutation::LosesWakeUps) {
            let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
            let last = told.replace(state.clone());
            return seen.is_none() || last.as_ref() != Some(state);
        }
        seen != Some(state)
    }
}

#[async_trait]
impl Claim for MemoryClaim {
    fn ttl(&self) -> Option<Duration> {
        Some(self.ttl)
    }

    async fn changed(&self, seen: Option<&ClaimState>) -> Result<ClaimState> {
        let mut news = self.news.clone();
        let mut starts = self.server.starts();
        let first = news.borrow().clone();
        let seen = if self.server.has(Mutation::FirstAnswerLate) { seen.or(Some(&first)) } else { seen };
        loop {
            self.server.thawed().await;
            if self.left.load(Ordering::Relaxed) {
                return Err(Error::new(ErrorKind::Invalid, "the claim has left it"));
            }
            let next = self.server.step(|queues, now| queues.next_expiry(self.id, now));
            let state = news.borrow_and_update().clone();
            if self.is_news(&state, seen) {
                // The answer is on its way: dropping the future here loses nothing.
                tokio::task::yield_now().await;
                return Ok(state);
            }
            tokio::select! {
                Ok(()) = news.changed() => {}
                () = self.server.clock().sleep_until(next) => {}
                _ = starts.changed() => {
                    return Err(Error::new(ErrorKind::Unavailable, "the service restarted"));
                }
            }
        }
    }

    async fn renew(&self, deadline: Moment) -> Result<Moment> {
        let begin = self.clock.now();
        let renewed = self.call(deadline).run(|queues, now| Ok(queues.renew(self.id, begin, now))).await?;
        let end = self.clock.now();
        let mut last_good = self.last_good.lock().unwrap_or_else(PoisonError::into_inner);
        if renewed {
            let from = if self.server.has(Mutation::RenewCountsFromEnd) { end } else { begin };
            *last_good = (*last_good).max(from);
        }
        Ok(*last_good)
    }

    async fn leave(&self, succeeded: bool, deadline: Moment) -> Result<()> {
        let call = self.call(deadline);
        call.run(|queues, _| {
            queues.leave(self.id, succeeded)?;
            // In the same step, so that a call of `changed` does not take the departure for a loss.
            self.left.store(true, Ordering::Relaxed);
            Ok(())
        })
        .await
    }
}
