//! Follows the parts of a sequence and takes the next one when its turn has come.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::{CLEANING, Whole};
use crate::backend::Claim;
use crate::clock::Clock;
use crate::lock::{ClaimState, Moment, Result};

/// Between two attempts to enter or to follow.
const RETRY: Duration = Duration::from_millis(250);

/// What was heard of the part at a place.
type Heard = (usize, Result<ClaimState>);

/// Goes on until the whole is over; dropping it leaves all as it is.
pub(super) async fn follow(whole: Arc<Whole>) {
    let (tell, mut heard) = mpsc::unbounded_channel::<Heard>();
    let mut followers = JoinSet::new();
    let mut followed = 0;
    let mut advancing: Option<Pin<Box<dyn Future<Output = Result<()>> + Send>>> = None;
    let mut not_before = Moment::default();
    loop {
        for (at, claim, seen) in newly_entered(&whole, &mut followed) {
            followers.spawn(one(claim, at, seen, whole.clock, tell.clone()));
        }
        if is_over(&whole) {
            give_back_what_was_not_held(&whole);
            return;
        }
        if advancing.is_none() && whole.may_advance() {
            let (whole, patience) = (Arc::clone(&whole), patience(&whole));
            advancing = Some(Box::pin(async move {
                whole.clock.sleep_until(not_before).await;
                whole.advance(whole.clock.now() + patience).await
            }));
        }
        tokio::select! {
            Some((at, answer)) = heard.recv() => take(&whole, at, answer),
            answer = entered(&mut advancing) => {
                advancing = None;
                match answer {
                    Ok(()) => whole.tell(|news| news.trouble = None),
                    Err(error) if error.is_transient() => {
                        not_before = whole.clock.now() + RETRY;
                        whole.tell(|news| news.trouble = Some(error));
                    }
                    Err(error) => whole.tell(|news| news.refused = Some(error)),
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
fn patience(whole: &Whole) -> Duration {
    whole.parts.first().map_or(CLEANING, |part| (part.request.ttl / 3).max(Duration::from_secs(2)))
}

type New = (usize, Arc<dyn Claim>, Option<ClaimState>);

fn newly_entered(whole: &Whole, followed: &mut usize) -> Vec<New> {
    let course = whole.course();
    let new = course.entered.iter().enumerate().skip(std::mem::replace(followed, course.entered.len()));
    new.map(|(at, entered)| (at, Arc::clone(&entered.claim), entered.state.clone())).collect()
}

fn is_over(whole: &Whole) -> bool {
    let news = whole.news.borrow();
    news.refused.is_some() || news.state.is_final()
}

/// Whoever has never held it all has run nothing under it. Otherwise its command has to end first.
fn give_back_what_was_not_held(whole: &Arc<Whole>) {
    if whole.course().grant.is_none() {
        let whole = Arc::clone(whole);
        // What cannot be left ends with its ttl.
        tokio::spawn(async move { drop(whole.leave(false, whole.clock.now() + CLEANING).await) });
    }
}

fn take(whole: &Whole, at: usize, answer: Result<ClaimState>) {
    match answer {
        Ok(state) => {
            whole.course().entered[at].state = Some(state);
            whole.tell(|news| news.trouble = None);
        }
        Err(error) => whole.tell(|news| news.trouble = Some(error)),
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
