//! How a claim stands: told once for all, whatever the service.
//!
//! A service that publishes finds out how its claim stands and hands that to a [`Publisher`], which keeps what may not
//! depend on the service: what may follow what, that whoever leaves tells nothing more, the moment from which the last
//! confirmed ttl counts, and the answers to [`Claim::changed`](super::Claim::changed). The service supplies how it looks
//! and what wakes it, as a [`Source`]; one that follows its claim in a task of its own needs none.

use std::future::Future;
use std::time::Duration;

use tokio::sync::watch;

use crate::clock::Clock;
use crate::lock::{ClaimState, Error, ErrorKind, Grant, Granted, Holder, LossReason, Moment, Result};
use crate::net::fault::{Fault, FaultResult};

/// A hold that ends sooner is not worth listening for its loss: most commands are done before, and what happens meanwhile
/// is told then.
pub const SHORT_HOLD: Duration = Duration::from_millis(100);

/// Between two looks at a queue of which the service reports no changes.
pub const POLL: Duration = Duration::from_millis(500);

/// Beyond a service's own resolution of time.
const SLACK: Duration = Duration::from_millis(2);

/// When what a service said at `now` to last for so long is over there, too.
pub fn due(now: Moment, left: Option<Duration>) -> Moment {
    left.map_or(Moment::NEVER, |left| now + left + SLACK)
}

/// How long a look at a claim with this ttl may take that nobody gave a deadline.
pub fn patience(ttl: Duration) -> Duration {
    (ttl / 6).min(Duration::from_secs(5))
}

/// Why a [`Source`] is to look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// Somebody asks how the claim stands now.
    Asked,
    /// The service told that something may have changed.
    Notified,
    /// Time alone may have changed something, or nobody tells.
    Due,
}

/// How a claim is found out to stand, and what makes that worth while.
pub trait Source: Sync {
    /// Whether nothing can have changed since the service last answered.
    fn is_fresh(&self) -> bool;

    /// A future that completes when the service tells of a change, if it does that; and when to look whatever it tells.
    fn wakes(&self) -> (Option<impl Future<Output = ()> + Send>, Moment);

    /// Finds out how the claim stands and publishes it. Errors: why that cannot be found out now.
    fn look(&self, cause: Cause) -> impl Future<Output = Result<()>> + Send;
}

/// A claim that is followed in the background.
struct Followed<'a>(&'a Publisher);

impl Source for Followed<'_> {
    fn is_fresh(&self) -> bool {
        true
    }

    fn wakes(&self) -> (Option<impl Future<Output = ()> + Send>, Moment) {
        (Some(self.0.troubled()), Moment::NEVER)
    }

    async fn look(&self, _: Cause) -> Result<()> {
        self.0.trouble()
    }
}

/// How far a claim has come on its way out.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Leaving {
    No,
    Begun,
    Done,
}

#[derive(Debug)]
struct Published {
    state: ClaimState,
    /// Nobody has asked since the claim entered.
    unasked: bool,
    /// When the hold was first seen.
    held_at: Option<Moment>,
    /// From when the last confirmed ttl counts.
    proof: Moment,
    leaving: Leaving,
}

/// Publishes how one claim stands, and answers who asks.
#[derive(Debug)]
pub struct Publisher {
    clock: Clock,
    news: watch::Sender<Published>,
    /// Why it could not be followed when that was tried last.
    trouble: watch::Sender<Option<Fault>>,
}

/// Why a claim is gone that went with everything else.
pub const FLUSHED: &str = "all keys are gone: was the database flushed?";

impl Publisher {
    /// For a claim that waits, as far as is known, and whose ttl counts from `proof`.
    pub fn new(clock: Clock, proof: Moment) -> Self {
        let state = ClaimState::Waiting { ahead: None, holder: None };
        let news = Published { state, unasked: true, held_at: None, proof, leaving: Leaving::No };
        Self { clock, news: watch::Sender::new(news), trouble: watch::Sender::new(None) }
    }

    /// Publishes `state` if it is new and may follow what was published last: first waits, then the hold as it is first seen,
    /// then requests to leave, then the end. So an answer that was overtaken takes nothing back, and nothing follows the end.
    /// Nothing at all is published once leaving has begun. A hold is never superseded: something may run under it, so whatever
    /// took it away is a loss. What is known of the claim shows that it can be followed again.
    pub fn publish(&self, state: ClaimState) {
        self.trouble.send_if_modified(|trouble| {
            *trouble = None;
            false
        });
        self.news.send_if_modified(|news| {
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

    /// The same for a hold of `names`, which counts from the last proof.
    pub fn publish_held(&self, names: Vec<Granted>) {
        self.publish(self.held(names));
    }

    /// A hold of `names`, which counts from the last proof.
    pub fn held(&self, names: Vec<Granted>) -> ClaimState {
        ClaimState::Held(Grant { names, counts_from: self.proof() })
    }

    /// How a claim ended of which the service noted `why` (`superseded`, `evicted`), and `by` whom.
    pub fn ended(&self, why: Option<&str>, by: Option<&Holder>, ttl: Duration) -> ClaimState {
        ClaimState::Lost(match (why, by) {
            (Some("superseded"), Some(by)) => return ClaimState::Superseded { by: by.clone() },
            (Some("evicted"), by) => LossReason::Evicted(by.cloned()),
            (Some(FLUSHED), _) => LossReason::Replaced(FLUSHED.to_owned()),
            _ if self.clock.now() >= self.proof() + ttl => LossReason::Expired,
            _ => LossReason::Evicted(None),
        })
    }

    /// How the claim stands, as was published last.
    pub fn state(&self) -> ClaimState {
        self.news.borrow().state.clone()
    }

    /// Whoever follows the claim cannot do so at the moment, and says so each time: it is an error for those who wait for a change.
    pub fn cannot_follow(&self, why: Fault) {
        self.trouble.send_replace(Some(why));
    }

    /// Completes when whoever follows the claim says that it cannot.
    pub async fn troubled(&self) {
        let mut trouble = self.trouble.subscribe();
        // The sender is part of `self`.
        let _ = trouble.changed().await;
    }

    /// Errors: why the claim cannot be followed at the moment, if it cannot.
    pub fn trouble(&self) -> FaultResult<()> {
        self.trouble.borrow().clone().map_or(Ok(()), Err)
    }

    /// Whether it waits.
    pub fn waits(&self) -> bool {
        matches!(self.news.borrow().state, ClaimState::Waiting { .. })
    }

    /// Whether it holds, and nobody has asked it to leave.
    pub fn holds(&self) -> bool {
        matches!(self.news.borrow().state, ClaimState::Held(_))
    }

    /// When it was first seen to hold.
    pub fn held_at(&self) -> Option<Moment> {
        self.news.borrow().held_at
    }

    /// Whether it has ended, and not by its own doing.
    pub fn has_ended(&self) -> bool {
        self.news.borrow().state.is_final()
    }

    /// Whether it has begun to leave.
    pub fn is_leaving(&self) -> bool {
        self.news.borrow().leaving != Leaving::No
    }

    /// Whether nothing more is published.
    pub fn is_over(&self) -> bool {
        let news = self.news.borrow();
        news.leaving != Leaving::No || news.state.is_final()
    }

    /// A renewal that was sent at `sent` was confirmed.
    pub fn prove(&self, sent: Moment) {
        self.news.send_if_modified(|news| {
            news.proof = news.proof.max(sent);
            false
        });
    }

    /// From when the last confirmed ttl counts.
    pub fn proof(&self) -> Moment {
        self.news.borrow().proof
    }

    /// Nothing is published from here on: what becomes of the entry is no loss.
    pub fn begin_leaving(&self) {
        self.news.send_if_modified(|news| {
            news.leaving = news.leaving.max(Leaving::Begun);
            false
        });
    }

    /// It has left: whoever asks is told so, those who wait for an answer at once.
    pub fn leave(&self) {
        self.news.send_modify(|news| news.leaving = Leaving::Done);
    }

    /// Has those who wait for a change look what wakes them anew.
    pub fn stir(&self) {
        self.news.send_modify(|_| {});
    }

    /// What is known is to be found out anew for the next who asks.
    pub fn distrust(&self) {
        self.news.send_if_modified(|news| {
            news.unasked = false;
            false
        });
    }

    /// As [`Claim::changed`](super::Claim::changed), of a claim that is followed in the background.
    pub async fn changed(&self, seen: Option<&ClaimState>) -> Result<ClaimState> {
        self.follow(seen, &Followed(self)).await
    }

    /// As [`Claim::changed`](super::Claim::changed), of a claim that `source` looks at.
    pub async fn follow(&self, seen: Option<&ClaimState>, source: &impl Source) -> Result<ClaimState> {
        let mut news = self.news.subscribe();
        let mut anew = seen.is_none();
        loop {
            let (state, unasked, leaving) = {
                let news = news.borrow_and_update();
                (news.state.clone(), news.unasked, news.leaving)
            };
            if leaving == Leaving::Done {
                return Err(Error::new(ErrorKind::Invalid, "the claim has left it"));
            }
            if seen != Some(&state) && (!anew || state.is_final() || unasked || source.is_fresh()) {
                self.distrust();
                return Ok(state);
            }
            let mut cause = Cause::Asked;
            if !anew {
                tokio::select! {
                    // The sender is part of `self`.
                    _ = news.changed() => continue,
                    woken = self.woken(&state, source), if !state.is_final() => cause = woken,
                }
            }
            source.look(cause).await?;
            anew = false;
        }
    }

    /// Completes when `state` may have changed.
    async fn woken(&self, state: &ClaimState, source: &impl Source) -> Cause {
        match source.wakes() {
            (Some(told), due) => tokio::select! {
                () = told => Cause::Notified,
                () = self.clock.sleep_until(due) => Cause::Due,
            },
            (None, _) if matches!(state, ClaimState::Waiting { .. }) => Cause::Due,
            (None, due) => {
                let soon = self.held_at().map_or(Moment::NEVER, |at| at + SHORT_HOLD);
                self.clock.sleep_until(due.min(soon)).await;
                Cause::Due
            }
        }
    }
}

/// How far a claim has come.
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
