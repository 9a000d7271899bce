//! Publishing the state of a claim, by the same rules for all services.
//!
//! A service reads the state of its claim and passes it to a [`Publisher`], which enforces the rules that are common to
//! all services. It decides which state may follow which, publishes nothing after leaving has begun, keeps the moment
//! from which the last confirmed ttl counts, and answers [`Claim::changed`](super::Claim::changed). A task follows each
//! claim, reads its state and reports why it cannot.

use std::future::Future;
use std::time::Duration;

use tokio::sync::watch;

use crate::clock::Clock;
use crate::lock::{ClaimState, Error, ErrorKind, Grant, Granted, LossReason, Moment, Result};
use crate::net::fault::Fault;

/// The time for which a hold is not watched for loss: most commands end before, and a loss within it is published
/// afterwards.
pub const SHORT_HOLD: Duration = Duration::from_millis(100);

/// The time between two reads of a queue without change notifications.
pub const POLL: Duration = Duration::from_millis(500);

/// The addition to a service's resolution of time.
const SLACK: Duration = Duration::from_millis(2);

/// Returns when a remaining time of `left`, reported by a service at `now`, has also passed here.
pub fn due(now: Moment, left: Option<Duration>) -> Moment {
    left.map_or(Moment::NEVER, |left| now + left + SLACK)
}

/// Returns how long a read of a claim with this ttl may take if the caller gave no deadline.
pub fn patience(ttl: Duration) -> Duration {
    (ttl / 6).min(Duration::from_secs(5))
}

/// The progress of leaving.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Leaving {
    No,
    Begun,
    Done,
}

#[derive(Debug)]
struct Published {
    state: ClaimState,
    /// Whether no caller has asked since the claim entered.
    unasked: bool,
    /// When the hold was first seen.
    held_at: Option<Moment>,
    /// The moment from which the last confirmed ttl counts.
    proof: Moment,
    leaving: Leaving,
    /// Why the last attempt to follow the claim failed.
    trouble: Option<Fault>,
}

/// Publishes the state of one claim to its callers.
#[derive(Debug)]
pub struct Publisher {
    clock: Clock,
    news: watch::Sender<Published>,
}

impl Publisher {
    /// Creates a publisher for a claim that is assumed to wait. Its ttl counts from `proof`.
    pub fn new(clock: Clock, proof: Moment) -> Self {
        let state = ClaimState::Waiting { ahead: None, holder: None };
        let (unasked, leaving) = (true, Leaving::No);
        let news = Published { state, unasked, held_at: None, proof, leaving, trouble: None };
        Self { clock, news: watch::Sender::new(news) }
    }

    /// Changes what is published without waking callers.
    fn note(&self, change: impl FnOnce(&mut Published)) {
        self.news.send_if_modified(|news| {
            change(news);
            false
        });
    }

    /// Publishes `state` if it is new and may follow the last one. The order is waiting, the hold as it is first seen,
    /// requests to leave, and the end. So an outdated answer takes nothing back, and nothing follows the end.
    ///
    /// Nothing is published once leaving has begun. A hold is never superseded: a command may run under it, so its
    /// removal is a loss. Any call shows that the claim can be followed again.
    pub fn publish(&self, state: ClaimState) {
        self.news.send_if_modified(|news| {
            news.trouble = None;
            let state = match state {
                ClaimState::Superseded { by } if news.held_at.is_some() => {
                    ClaimState::Lost(LossReason::Evicted(Some(by)))
                }
                state => state,
            };
            let (known, new) = (stage(&news.state), stage(&state));
            let goes_on = known == new && matches!(new, Stage::Waits | Stage::Asked);
            let may_follow = new > known || (goes_on && state != news.state);
            if news.leaving != Leaving::No || !may_follow {
                return false;
            }
            if new == Stage::Holds {
                news.held_at = Some(self.clock.now());
            }
            news.state = state;
            true
        });
    }

    /// Publishes a hold of `names`, which counts from the last proof.
    pub fn publish_held(&self, names: Vec<Granted>) {
        self.publish(self.held(names));
    }

    /// Returns a hold of `names`, which counts from the last proof.
    pub fn held(&self, names: Vec<Granted>) -> ClaimState {
        ClaimState::Held(Grant { names, counts_from: self.proof() })
    }

    /// Returns how a claim of this ttl ended, for which the service gives no reason.
    pub fn ended(&self, ttl: Duration) -> ClaimState {
        let is_expired = self.clock.now() >= self.proof() + ttl;
        ClaimState::Lost(if is_expired { LossReason::Expired } else { LossReason::Evicted(None) })
    }

    /// Returns the last published state.
    pub fn state(&self) -> ClaimState {
        self.news.borrow().state.clone()
    }

    /// Reports that the task that follows the claim fails at the moment. It is an error for callers that wait for a
    /// change.
    pub fn cannot_follow(&self, why: Fault) {
        self.news.send_modify(|news| news.trouble = Some(why));
    }

    /// Returns whether the claim holds and was not asked to leave.
    pub fn holds(&self) -> bool {
        matches!(self.news.borrow().state, ClaimState::Held(_))
    }

    /// Returns when the claim was first seen to hold.
    pub fn held_at(&self) -> Option<Moment> {
        self.news.borrow().held_at
    }

    /// Returns whether the claim has ended other than by leaving.
    pub fn has_ended(&self) -> bool {
        self.news.borrow().state.is_final()
    }

    /// Returns whether the claim has begun to leave.
    pub fn is_leaving(&self) -> bool {
        self.news.borrow().leaving != Leaving::No
    }

    /// Returns whether nothing more is published.
    pub fn is_over(&self) -> bool {
        let news = self.news.borrow();
        news.leaving != Leaving::No || news.state.is_final()
    }

    /// Records the confirmation of a renewal that was sent at `sent`.
    pub fn prove(&self, sent: Moment) {
        self.note(|news| news.proof = news.proof.max(sent));
    }

    /// Returns the moment from which the last confirmed ttl counts.
    pub fn proof(&self) -> Moment {
        self.news.borrow().proof
    }

    /// Stops publishing: the end of the entry is not a loss from here on.
    pub fn begin_leaving(&self) {
        self.note(|news| news.leaving = news.leaving.max(Leaving::Begun));
    }

    /// Records that the claim has left. All callers, including those that wait now, receive an error.
    pub fn leave(&self) {
        self.news.send_modify(|news| news.leaving = Leaving::Done);
    }

    /// Implements [`Claim::changed`](super::Claim::changed). A caller without `seen` gets the published state, if
    /// that is an end or was not asked for before, or if there is no `read`. Otherwise `read` first reads and publishes
    /// the present one.
    pub async fn changed(
        &self,
        seen: Option<&ClaimState>,
        read: Option<impl Future<Output = Result<()>>>,
    ) -> Result<ClaimState> {
        let mut news = self.news.subscribe();
        let mut read = read.filter(|_| seen.is_none());
        let mut waited = false;
        loop {
            let (state, unasked, leaving, trouble) = {
                let news = news.borrow_and_update();
                (news.state.clone(), news.unasked, news.leaving, news.trouble.clone())
            };
            if leaving == Leaving::Done {
                return Err(Error::new(ErrorKind::Invalid, "the claim has left it"));
            }
            if seen != Some(&state) {
                let Some(read) = read.take().filter(|_| !state.is_final() && !unasked) else {
                    self.note(|news| news.unasked = false);
                    return Ok(state);
                };
                read.await?;
                continue;
            }
            // An earlier one may be overcome.
            if let Some(why) = trouble.filter(|_| waited && !state.is_final()) {
                return Err(why);
            }
            // The sender lives as long as `self`.
            let _ = news.changed().await;
            waited = true;
        }
    }
}

/// The progress of a claim.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Stage {
    Waits,
    Holds,
    Asked,
    Over,
}

fn stage(state: &ClaimState) -> Stage {
    match state {
        ClaimState::Waiting { .. } => Stage::Waits,
        ClaimState::Held(_) => Stage::Holds,
        ClaimState::AskedToLeave { .. } => Stage::Asked,
        ClaimState::Superseded { .. } | ClaimState::Lost(_) => Stage::Over,
    }
}

#[cfg(test)]
mod tests;
