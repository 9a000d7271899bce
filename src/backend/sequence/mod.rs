//! Several claims taken one after another, as one: for services that cannot take all names in one step.
//!
//! Everybody takes the parts in the same order, each only when all former ones are held, so no two wait for each
//! other: of the claims that wait, the one that has come furthest waits for nobody but holders. The known remedy
//! against deadlock by ordering resources (Havender, *Avoiding deadlock in multitasking systems*, 1968). There is
//! one deadline for all; whoever gives up leaves every part.

mod follow;
mod steps;

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::task::{JoinHandle, JoinSet};

use super::Claim;
use crate::clock::Clock;
use crate::lock::{ClaimState, Error, ErrorKind, Moment, Request, Result};

use steps::{CLEANING, Steps};
pub use steps::{Part, PartBackend};

/// `request` in parts of the names with the same key, in the order of the keys. Everybody who uses the service must
/// part it by the same keys.
pub fn parts_by<K: Ord>(request: &Request, key: impl Fn(usize) -> K) -> Vec<Part> {
    let mut places: Vec<usize> = (0..request.names.len()).collect();
    places.sort_by_key(|place| key(*place));
    let together = places.chunk_by(|one, other| key(*one) == key(*other));
    let part = |places: &[usize]| {
        let names = places.iter().map(|place| request.names[*place].clone()).collect();
        Part { request: Request { names, ..request.clone() }, places: places.to_vec() }
    };
    together.map(part).collect()
}

/// Claims on parts, as one claim. It waits while it waits for a part, holds when it holds all, and is lost when any
/// is lost. Dropping it lets go of nothing: the parts end with their ttl.
#[derive(Debug)]
pub struct Sequence {
    steps: Arc<Steps>,
    following: Mutex<Option<JoinHandle<()>>>,
}

/// Takes back what has been entered, unless it is called off.
struct Rollback(Option<Arc<Steps>>);

/// Enters the parts in order as far as they are held at once, and goes on with the rest in the background, for as
/// long as the claim exists. `parts` as from [`parts_by`], at least one.
///
/// `deadline` bounds the whole call. Errors: those of [`PartBackend::enter`]. What had been entered is left again, but after
/// a transient one: then the next attempt with the same id meets it, or whoever gives up withdraws it. Dropping the future
/// leaves it in the background, so its id is not to be used again. A part that is refused later is an error of
/// [`Claim::changed`], a final one, and stays it; [`Claim::leave`] then leaves the others.
pub async fn enter(
    backend: Arc<dyn PartBackend>,
    parts: Vec<Part>,
    clock: Clock,
    deadline: Moment,
) -> Result<Sequence> {
    let steps = Arc::new(Steps::new(backend, parts, clock));
    let mut rollback = Rollback(Some(Arc::clone(&steps)));
    while steps.may_advance() {
        if let Err(error) = steps.advance(deadline).await {
            if error.is_transient() {
                // What leaves would meet the next attempt.
                rollback.0 = None;
            }
            if let Some(undone) = rollback.begin() {
                // What it does not come to by then it does in the background.
                tokio::select! {
                    _ = undone => {}
                    () = clock.sleep_until(deadline) => {}
                }
            }
            return Err(error);
        }
    }
    steps.tell(|_| {});
    rollback.0 = None;
    let following = tokio::spawn(follow::follow(Arc::clone(&steps)));
    Ok(Sequence { steps, following: Mutex::new(Some(following)) })
}

impl Rollback {
    fn begin(&mut self) -> Option<JoinHandle<()>> {
        let steps = self.0.take()?;
        let runtime = tokio::runtime::Handle::try_current().ok()?;
        Some(runtime.spawn(async move {
            // What cannot be left ends with its ttl.
            drop(steps.leave(false, steps.clock.now() + CLEANING).await);
        }))
    }
}

impl Drop for Rollback {
    fn drop(&mut self) {
        self.begin();
    }
}

impl Sequence {
    fn gone(&self) -> Error {
        let steps = &self.steps;
        let lock = steps.parts.first().and_then(|part| part.request.names.first());
        Error::new(
            ErrorKind::Invalid,
            steps.backend.backend(),
            "follow the queue",
            lock,
            "the claim has left it",
        )
    }

    /// Goes no further, and follows nothing any more.
    async fn stop(&self) {
        let following = self.following.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(following) = following {
            following.abort();
            // It ends because it was told to.
            drop(following.await);
        }
    }
}

impl Drop for Sequence {
    fn drop(&mut self) {
        let following = self.following.lock().unwrap_or_else(PoisonError::into_inner).take();
        following.inspect(JoinHandle::abort);
    }
}

#[async_trait]
impl Claim for Sequence {
    fn ttl(&self) -> Option<Duration> {
        let progress = self.steps.progress();
        let least = progress.entered.iter().filter_map(|entered| entered.claim.ttl()).min();
        least.or_else(|| self.steps.parts.first().map(|part| part.request.ttl))
    }

    async fn changed(&self, seen: Option<&ClaimState>) -> Result<ClaimState> {
        let mut news = self.steps.news.subscribe();
        loop {
            {
                let now = news.borrow_and_update();
                if now.left {
                    return Err(self.gone());
                }
                if let Some(refused) = &now.refused {
                    return Err(refused.clone());
                }
                if seen != Some(&now.state) {
                    return Ok(now.state.clone());
                }
                if let Some(trouble) = &now.trouble {
                    return Err(trouble.clone());
                }
            }
            // The sender is part of `self`.
            let _ = news.changed().await;
        }
    }

    async fn renew(&self, deadline: Moment) -> Result<Moment> {
        let refused = self.steps.news.borrow().refused.clone();
        if let Some(refused) = refused {
            return Err(refused);
        }
        let mut renewing = JoinSet::new();
        for (at, claim) in self.steps.present() {
            renewing.spawn(async move { (at, claim.renew(deadline).await) });
        }
        let mut failed = None;
        while let Some(done) = renewing.join_next().await {
            match done {
                Ok((at, Ok(good))) => {
                    let mut progress = self.steps.progress();
                    progress.entered[at].good = progress.entered[at].good.max(good);
                }
                Ok((_, Err(error))) => failed = failed.or(Some(error)),
                Err(panic) => std::panic::resume_unwind(panic.into_panic()),
            }
        }
        let earliest = self.steps.progress().entered.iter().map(|entered| entered.good).min();
        failed.map_or(Ok(earliest.unwrap_or_default()), Err)
    }

    async fn leave(&self, succeeded: bool, deadline: Moment) -> Result<()> {
        self.stop().await;
        self.steps.leave(succeeded, deadline).await?;
        self.steps.tell(|news| news.left = true);
        Ok(())
    }

    fn anchors(&self) -> Result<Vec<OwnedFd>> {
        let mut all = Vec::new();
        for (_, claim) in self.steps.present() {
            all.extend(claim.anchors()?);
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests;
