//! Several claims taken one after another, as one: for services that cannot take all names in one step.
//!
//! Everybody takes the parts in the same order, each only when all former ones are held, so no two wait for each
//! other: of the claims that wait, the one that has come furthest waits for nobody but holders. The known remedy
//! against deadlock by ordering resources (Havender, *Avoiding deadlock in multitasking systems*, 1968). There is
//! one deadline for all; whoever gives up leaves every part.

mod follow;

use std::fmt::Debug;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use super::Claim;
use crate::clock::Clock;
use crate::lock::{ClaimState, Error, ErrorKind, Grant, Granted, Moment, Request, Result};

/// How long leaving may take that nobody waits for.
const CLEANING: Duration = Duration::from_secs(5);

/// What takes one part.
#[async_trait]
pub trait Entrance: Debug + Send + Sync {
    /// The backend's name.
    fn backend(&self) -> &'static str;

    /// Joins the lines of one part; as [`super::Backend::enter`], and as idempotent.
    async fn enter(&self, part: &Request, deadline: Moment) -> Result<Arc<dyn Claim>>;

    /// Removes, by `deadline`, what an attempt to enter this part that failed or was dropped may have left, and
    /// keeps out what of it is still under way. Errors: `Unavailable`; it then ends with its ttl.
    async fn withdraw(&self, part: &Request, deadline: Moment) -> Result<()>;
}

/// One step of a sequence: a request for some of the names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Part {
    /// What is asked for.
    pub request: Request,
    /// Which of the whole's names these are, by their place in it.
    pub places: Vec<usize>,
}

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

/// One part that has been entered.
#[derive(Debug)]
struct Entered {
    claim: Arc<dyn Claim>,
    /// `None` until the service has said it.
    state: Option<ClaimState>,
    /// From when its last confirmed ttl counts.
    good: Moment,
    left: bool,
}

/// How far it has come.
#[derive(Debug, Default)]
struct Course {
    entered: Vec<Entered>,
    /// The next part has been asked for.
    entering: bool,
    /// The hold as it was first seen.
    grant: Option<Grant>,
}

/// What there is to say of the whole.
#[derive(Clone, Debug)]
struct News {
    state: ClaimState,
    /// Why a part cannot be followed or entered at the moment.
    trouble: Option<Error>,
    /// Why it will never be held.
    refused: Option<Error>,
    left: bool,
}

#[derive(Debug)]
struct Whole {
    entrance: Arc<dyn Entrance>,
    parts: Vec<Part>,
    clock: Clock,
    course: Mutex<Course>,
    news: watch::Sender<News>,
}

/// Claims on parts, as one claim. It waits while it waits for a part, holds when it holds all, and is lost when any
/// is lost. Dropping it lets go of nothing: the parts end with their ttl.
#[derive(Debug)]
pub struct Sequence {
    whole: Arc<Whole>,
    following: Mutex<Option<JoinHandle<()>>>,
}

/// Takes back what has been entered, unless it is called off.
struct Undo(Option<Arc<Whole>>);

/// Enters the parts in order as far as they are held at once, and goes on with the rest in the background, for as
/// long as the claim exists. `parts` as from [`parts_by`], at least one.
///
/// `deadline` bounds the whole call. Errors: those of [`Entrance::enter`]; what had been entered is left again.
/// Dropping the future leaves it in the background. A part that is refused later is an error of
/// [`Claim::changed`], and stays one; [`Claim::leave`] then leaves the others.
pub async fn enter(
    entrance: Arc<dyn Entrance>,
    parts: Vec<Part>,
    clock: Clock,
    deadline: Moment,
) -> Result<Sequence> {
    let waiting = ClaimState::Waiting { ahead: None, holder: None };
    let news = News { state: waiting, trouble: None, refused: None, left: false };
    let course = Mutex::default();
    let whole = Arc::new(Whole { entrance, parts, clock, course, news: watch::Sender::new(news) });
    let mut undo = Undo(Some(Arc::clone(&whole)));
    while whole.may_advance() {
        if let Err(error) = whole.advance(deadline).await {
            if let Some(undone) = undo.begin() {
                // What it does not come to by then it does in the background.
                tokio::select! {
                    _ = undone => {}
                    () = clock.sleep_until(deadline) => {}
                }
            }
            return Err(error);
        }
    }
    whole.tell(|_| {});
    undo.0 = None;
    let following = tokio::spawn(follow::follow(Arc::clone(&whole)));
    Ok(Sequence { whole, following: Mutex::new(Some(following)) })
}

impl Undo {
    fn begin(&mut self) -> Option<JoinHandle<()>> {
        let whole = self.0.take()?;
        let runtime = tokio::runtime::Handle::try_current().ok()?;
        Some(runtime.spawn(async move {
            // What cannot be left ends with its ttl.
            drop(whole.leave(false, whole.clock.now() + CLEANING).await);
        }))
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        self.begin();
    }
}

impl Course {
    fn grants(&self) -> Option<Vec<&Grant>> {
        let held = |entered: &Entered| matches!(entered.state, Some(ClaimState::Held(_)));
        self.entered.iter().all(held).then(|| {
            let grants = self.entered.iter().filter_map(|entered| match &entered.state {
                Some(ClaimState::Held(grant)) => Some(grant),
                _ => None,
            });
            grants.collect()
        })
    }
}

impl Whole {
    fn course(&self) -> MutexGuard<'_, Course> {
        self.course.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the next part is due: there is one, and all former ones are held.
    fn may_advance(&self) -> bool {
        let course = self.course();
        course.entered.len() < self.parts.len() && course.grants().is_some()
    }

    /// Enters the next part.
    async fn advance(&self, deadline: Moment) -> Result<()> {
        let at = {
            let mut course = self.course();
            course.entering = true;
            course.entered.len()
        };
        let good = self.clock.now();
        let claim = self.entrance.enter(&self.parts[at].request, deadline).await?;
        let entered = Entered { claim: Arc::clone(&claim), state: None, good, left: false };
        {
            let mut course = self.course();
            course.entering = false;
            course.entered.push(entered);
        }
        // What is not learnt in time is learnt by whoever follows.
        let state = tokio::select! {
            state = claim.changed(None) => state.ok(),
            () = self.clock.sleep_until(deadline) => None,
        };
        if let Some(entered) = self.course().entered.get_mut(at) {
            entered.state = state;
        }
        Ok(())
    }

    /// How the whole stands.
    fn state(&self) -> ClaimState {
        let mut course = self.course();
        let states = || course.entered.iter().filter_map(|entered| entered.state.as_ref());
        let asked = |state: &&ClaimState| matches!(state, ClaimState::AskedToLeave { .. });
        if let Some(state) = states().find(|state| state.is_final()).or_else(|| states().find(asked)) {
            return state.clone();
        }
        if course.entered.len() == self.parts.len()
            && let Some(grants) = course.grants()
        {
            let grant = self.whole_of(&grants, &course.entered);
            return ClaimState::Held(course.grant.get_or_insert(grant).clone());
        }
        let waiting = states().find(|state| matches!(state, ClaimState::Waiting { .. }));
        waiting.cloned().unwrap_or(ClaimState::Waiting { ahead: None, holder: None })
    }

    /// The grants of all parts as one, which counts from the earliest of what is known to be good.
    fn whole_of(&self, grants: &[&Grant], entered: &[Entered]) -> Grant {
        let mut names: Vec<(usize, Granted)> = Vec::new();
        for (part, grant) in self.parts.iter().zip(grants) {
            names.extend(part.places.iter().copied().zip(grant.names.iter().copied()));
        }
        names.sort_by_key(|(place, _)| *place);
        let good = entered.iter().zip(grants).map(|(entered, grant)| entered.good.max(grant.counts_from));
        Grant {
            names: names.into_iter().map(|(_, granted)| granted).collect(),
            counts_from: good.min().unwrap_or_default(),
        }
    }

    /// Tells how the whole stands, and what else there is to say.
    fn tell(&self, more: impl FnOnce(&mut News)) {
        let state = self.state();
        self.news.send_modify(|news| {
            if !news.state.is_final() {
                news.state = state;
            }
            more(news);
        });
    }

    /// The claims of parts that have not been left, by their place.
    fn present(&self) -> Vec<(usize, Arc<dyn Claim>)> {
        let course = self.course();
        let present = course.entered.iter().enumerate().filter(|(_, entered)| !entered.left);
        present.map(|(at, entered)| (at, Arc::clone(&entered.claim))).collect()
    }

    /// Leaves all parts, at the same time. The first error, after all have been tried.
    async fn leave(self: &Arc<Self>, succeeded: bool, deadline: Moment) -> Result<()> {
        let mut leaving = JoinSet::new();
        for (at, claim) in self.present() {
            leaving.spawn(async move { (Some(at), claim.leave(succeeded, deadline).await) });
        }
        let asked_for = {
            let course = self.course();
            course.entering.then_some(course.entered.len())
        };
        if let Some(at) = asked_for {
            let whole = Arc::clone(self);
            let withdraw = async move { whole.entrance.withdraw(&whole.parts[at].request, deadline).await };
            leaving.spawn(async move { (None, withdraw.await) });
        }
        let mut first = Ok(());
        while let Some(done) = leaving.join_next().await {
            // One that panicked has left nothing behind but its ttl; the panic has been told.
            let Ok((at, answer)) = done else { continue };
            match (answer, at) {
                (Err(error), _) => first = first.and(Err(error)),
                (Ok(()), Some(at)) => self.course().entered[at].left = true,
                (Ok(()), None) => self.course().entering = false,
            }
        }
        first
    }
}

impl Sequence {
    fn gone(&self) -> Error {
        let backend = self.whole.entrance.backend();
        Error::new(ErrorKind::Invalid, backend, "follow the queue", "the claim has left it")
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
        let course = self.whole.course();
        let least = course.entered.iter().filter_map(|entered| entered.claim.ttl()).min();
        least.or_else(|| self.whole.parts.first().map(|part| part.request.ttl))
    }

    async fn changed(&self, seen: Option<&ClaimState>) -> Result<ClaimState> {
        let mut news = self.whole.news.subscribe();
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
        let mut renewing = JoinSet::new();
        for (at, claim) in self.whole.present() {
            renewing.spawn(async move { (at, claim.renew(deadline).await) });
        }
        let mut failed = None;
        while let Some(done) = renewing.join_next().await {
            match done {
                Ok((at, Ok(good))) => {
                    let mut course = self.whole.course();
                    course.entered[at].good = course.entered[at].good.max(good);
                }
                Ok((_, Err(error))) => failed = failed.or(Some(error)),
                Err(panic) => std::panic::resume_unwind(panic.into_panic()),
            }
        }
        let earliest = self.whole.course().entered.iter().map(|entered| entered.good).min();
        failed.map_or(Ok(earliest.unwrap_or_default()), Err)
    }

    async fn leave(&self, succeeded: bool, deadline: Moment) -> Result<()> {
        self.stop().await;
        self.whole.leave(succeeded, deadline).await?;
        self.whole.tell(|news| news.left = true);
        Ok(())
    }

    fn anchors(&self) -> Result<Vec<OwnedFd>> {
        let mut all = Vec::new();
        for (_, claim) in self.whole.present() {
            all.extend(claim.anchors()?);
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests;
