//! Follows the parts of a sequence and takes the next one when its turn has come.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::steps::{CLEANING, Steps};
use crate::backend::Claim;
use crate::clock::Clock;
use crate::lock::{ClaimState, Error, Moment, Result};

/// Between two attempts to enter or to follow.
const RETRY: Duration = Duration::from_millis(250);

/// What was heard of the part at a place.
type Heard = (usize, Result<ClaimState>);

/// Goes on until the whole is over; dropping it leaves all as it is.
pub(super) async fn follow(steps: Arc<Steps>) {
    let (tell, mut heard) = mpsc::unbounded_channel::<Heard>();
    let mut followers = JoinSet::new();
    let mut followed = 0;
    let mut advancing: Option<Pin<Box<dyn Future<Output = Result<()>> + Send>>> = None;
    let mut not_before = Moment::default();
    loop {
        for (at, claim, seen) in newly_entered(&steps, &mut followed) {
            followers.spawn(one(claim, at, seen, steps.clock, tell.clone()));
        }
        if is_over(&steps) {
            give_back_what_was_not_held(&steps);
            return;
        }
        if advancing.is_none() && steps.may_advance() {
            let (steps, patience) = (Arc::clone(&steps), patience(&steps));
            advancing = Some(Box::pin(async move {
                steps.clock.sleep_until(not_before).await;
                steps.advance(steps.clock.now() + patience).await
            }));
        }
        tokio::select! {
            Some((at, answer)) = heard.recv() => take(&steps, at, answer),
            answer = entered(&mut advancing) => {
                advancing = None;
                match answer {
                    Ok(()) => steps.tell(|news| news.trouble = None),
                    Err(error) if error.is_transient() => {
                        not_before = steps.clock.now() + RETRY;
                        steps.tell(|news| news.trouble = Some(error));
                    }
                    Err(error) => {
                        let error = Error { is_final: true, ..error };
                        steps.tell(|news| news.refused = Some(error));
                    }
                }
            }
        }
    }
}

async fn entered(advancing: &mut Option<Pin<Box<dyn Future<Output = Result<()>> + Send>>>) -> Result<()> {
    match advancing {
        Some(advancing) => advancing.await,
        None => std::future::pending().await,
    }
}

/// How long one attempt to enter a part may take.
fn patience(steps: &Steps) -> Duration {
    steps.parts.first().map_or(CLEANING, |part| (part.request.ttl / 3).max(Duration::from_secs(2)))
}

type New = (usize, Arc<dyn Claim>, Option<ClaimState>);

fn newly_entered(steps: &Steps, followed: &mut usize) -> Vec<New> {
    let progress = steps.progress();
    let new = progress.entered.iter().enumerate().skip(std::mem::replace(followed, progress.entered.len()));
    new.map(|(at, entered)| (at, Arc::clone(&entered.claim), entered.state.clone())).collect()
}

fn is_over(steps: &Steps) -> bool {
    let news = steps.news.borrow();
    news.refused.is_some() || news.state.is_final()
}

/// Whoever has never held it all has run nothing under it. Otherwise its command has to end first.
fn give_back_what_was_not_held(steps: &Arc<Steps>) {
    if steps.progress().grant.is_none() {
        let steps = Arc::clone(steps);
        // What cannot be left ends with its ttl.
        tokio::spawn(async move { drop(steps.leave(false, steps.clock.now() + CLEANING).await) });
    }
}

fn take(steps: &Steps, at: usize, answer: Result<ClaimState>) {
    match answer {
        Ok(state) => {
            steps.progress().entered[at].state = Some(state);
            steps.tell(|news| news.trouble = None);
        }
        Err(error) => steps.tell(|news| news.trouble = Some(error)),
    }
}

/// Follows one part until nothing can follow.
async fn one(
    claim: Arc<dyn Claim>,
    at: usize,
    mut seen: Option<ClaimState>,
    clock: Clock,
    tell: mpsc::UnboundedSender<Heard>,
) {
    loop {
        let answer = claim.changed(seen.as_ref()).await;
        let failed = answer.is_err();
        if let Ok(state) = &answer {
            seen = Some(state.clone());
        }
        if tell.send((at, answer)).is_err() || seen.as_ref().is_some_and(ClaimState::is_final) {
            return;
        }
        if failed {
            clock.sleep_until(clock.now() + RETRY).await;
        }
    }
}
