//! Having holders make way (`--replace`).
//!
//! The newcomer asks, once its own entry stands, as `dlock break` does; the holder ends its command and leaves, and the queue
//! does the rest. Whether a holder makes way is said by its entry.

use std::pin::Pin;
use std::time::Duration;

use super::driver::Driver;
use super::event::Phase;
use crate::backend::{Backend, Evict};
use crate::lock::{ClaimId, Holder, LockName, Moment, Result};

/// Asking holders to make way; which were asked.
pub(super) type Replacing = Pin<Box<dyn Future<Output = Result<Vec<ClaimId>>>>>;

/// Between two attempts to ask.
const AGAIN: Duration = Duration::from_millis(500);

impl Driver<'_> {
    /// Asks when it is time, and says when that is. As long as somebody is being asked it is not: a time that has passed
    /// would wake this process again and again, and nothing else would run.
    pub(super) fn ask_to_make_way_when_due(&mut self) -> Moment {
        if self.replacing.is_some() {
            return Moment::NEVER;
        }
        if self.replace_at <= self.clock.now() {
            self.ask_to_make_way();
        }
        self.replace_at
    }

    /// Begins to ask; again whenever the claim waits in another way than before.
    fn ask_to_make_way(&mut self) {
        self.replace_at = Moment::NEVER;
        let patience = (self.job.plan.ttl / 3).max(Duration::from_secs(1));
        let deadline = self.clock.now() + patience;
        let (backend, request) = (self.job.backend.clone(), self.request.clone());
        let before = self.replaced.clone();
        self.replacing = Some(Box::pin(async move {
            let (names, id, by) = (&request.names, request.id, &request.holder);
            ask(&*backend, names, id, by, &before, deadline).await
        }));
    }

    /// Where the order of arrival settles only in time, somebody older may have come to hold and not have been seen.
    pub(super) fn look_again_who_holds(&mut self) {
        let settles = !self.job.backend.capabilities().ordered;
        if self.job.replace && settles && *self.machine.phase() == Phase::Waiting {
            self.replace_at = self.clock.now();
        }
    }

    /// What could not be asked is asked again.
    pub(super) fn asked_to_make_way(&mut self, asked: Result<Vec<ClaimId>>) {
        match asked {
            Ok(asked) => self.replaced.extend(asked),
            Err(error) => {
                self.tell_doubt(&error);
                self.replace_at = self.clock.now() + AGAIN;
            }
        }
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
        let line = backend.inspect(name, deadline).await?;
        if !line.waiters.iter().any(|waiter| waiter.claim == Some(id)) {
            continue;
        }
        let making_way =
            line.holders.iter().filter(|holder| holder.replace).filter_map(|holder| holder.claim);
        for holder in making_way.filter(|holder| !before.contains(holder)) {
            backend.evict(name, holder, Evict::Ask, by, deadline).await?;
            asked.push(holder);
        }
    }
    Ok(asked)
}
