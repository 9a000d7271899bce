//! Having holders make way (`--replace`).
//!
//! The newcomer asks, once its own entry stands, as `dlock break` does; the holder ends its command and leaves, and the queue
//! does the rest. Whether a holder makes way is said by its entry.

use std::pin::Pin;
use std::time::Duration;

use super::context::Context;
use super::event::Phase;
use crate::backend::{Backend, Evict};
use crate::lock::{ClaimId, Holder, LockName, Moment, Request, Result};

/// Asking holders to make way; which were asked.
type Asking = Pin<Box<dyn Future<Output = Result<Vec<ClaimId>>>>>;

/// Between two attempts to ask.
const AGAIN: Duration = Duration::from_millis(500);

/// Which holders were asked, and when others are.
pub(super) struct Replacement {
    at: Moment,
    pub(super) asking: Option<Asking>,
    asked: Vec<ClaimId>,
}

impl Replacement {
    /// That of a claim that does not wait yet.
    pub(super) fn nothing() -> Self {
        Self { at: Moment::NEVER, asking: None, asked: Vec::new() }
    }

    /// Asks when it is time, and says when that is. As long as somebody is being asked it is not: a time that has passed
    /// would wake this process again and again, and nothing else would run.
    pub(super) fn ask_when_due(&mut self, context: &Context<'_>, request: &Request) -> Moment {
        if self.asking.is_some() {
            return Moment::NEVER;
        }
        if self.at <= context.now() {
            self.ask(context, request);
        }
        self.at
    }

    /// Begins to ask; again whenever the claim waits in another way than before.
    fn ask(&mut self, context: &Context<'_>, request: &Request) {
        self.at = Moment::NEVER;
        let patience = (context.job.plan.ttl / 3).max(Duration::from_secs(1));
        let deadline = context.now() + patience;
        let (backend, request) = (context.job.backend.clone(), request.clone());
        let before = self.asked.clone();
        self.asking = Some(Box::pin(async move {
            let (names, id, by) = (&request.names, request.id, &request.holder);
            ask(&*backend, names, id, by, &before, deadline).await
        }));
    }

    /// The claim waits, or waits in another way.
    pub(super) fn ask_now_if_wanted(&mut self, context: &Context<'_>) {
        self.at = if context.job.replace { context.now() } else { Moment::NEVER };
    }

    /// Where the order of arrival settles only in time, somebody older may have come to hold and not have been seen.
    pub(super) fn look_again_who_holds(&mut self, context: &Context<'_>) {
        let settles = !context.job.backend.capabilities().ordered;
        if context.job.replace && settles && *context.machine.phase() == Phase::Waiting {
            self.at = context.now();
        }
    }

    /// Takes over who was asked. What could not be asked is asked again: the error is given back.
    pub(super) fn asked(&mut self, now: Moment, asked: Result<Vec<ClaimId>>) -> Result<()> {
        match asked {
            Ok(asked) => {
                self.asked.extend(asked);
                Ok(())
            }
            Err(error) => {
                self.at = now + AGAIN;
                Err(error)
            }
        }
    }

    /// Asks nobody any more for this claim.
    pub(super) fn forget(&mut self) {
        (self.asking, self.at) = (None, Moment::NEVER);
    }
}

/// Asks all holders to leave that make way, where `id` waits for them and has not asked `before`.
async fn ask(
    backend: &dyn Backend,
    names: &[LockName],
    id: ClaimId,
    by: &Holder,
    before: &[ClaimId],
    deadline: Moment,
) -> Result<Vec<ClaimId>> {
    let mut asked = Vec::new();
    for name in names {
        let queue = backend.inspect(name, deadline).await?;
        if !queue.waiters.iter().any(|waiter| waiter.claim == Some(id)) {
            continue;
        }
        let making_way =
            queue.holders.iter().filter(|holder| holder.replace).filter_map(|holder| holder.claim);
        for holder in making_way.filter(|holder| !before.contains(holder)) {
            backend.evict(name, holder, Evict::Ask, by, deadline).await?;
            asked.push(holder);
        }
    }
    Ok(asked)
}
