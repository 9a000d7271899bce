//! The parts of a sequence: which have been entered, how each stands, and what that comes to.

use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::backend::Claim;
use crate::clock::Clock;
use crate::lock::{ClaimState, Error, Grant, Granted, Moment, Request, Result};

/// How long leaving may take that nobody waits for.
pub(super) const CLEANING: Duration = Duration::from_secs(5);

/// What takes one part.
#[async_trait]
pub trait PartBackend: Debug + Send + Sync {
    /// The backend's name.
    fn backend(&self) -> &'static str;

    /// Joins the queues of one part; as [`crate::backend::Backend::enter`], and as idempotent.
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

/// One part that has been entered.
#[derive(Debug)]
pub(super) struct Entered {
    pub(super) claim: Arc<dyn Claim>,
    /// `None` until the service has said it.
    pub(super) state: Option<ClaimState>,
    /// From when its last confirmed ttl counts.
    pub(super) good: Moment,
    pub(super) left: bool,
}

/// How far it has come.
#[derive(Debug, Default)]
pub(super) struct Progress {
    pub(super) entered: Vec<Entered>,
    /// The next part has been asked for.
    entering: bool,
    /// The hold as it was first seen.
    pub(super) grant: Option<Grant>,
}

/// What there is to say of the whole.
#[derive(Clone, Debug)]
pub(super) struct SequenceState {
    pub(super) state: ClaimState,
    /// Why a part cannot be followed or entered at the moment.
    pub(super) trouble: Option<Error>,
    /// Why it will never be held.
    pub(super) refused: Option<Error>,
    pub(super) left: bool,
}

#[derive(Debug)]
pub(super) struct Steps {
    pub(super) backend: Arc<dyn PartBackend>,
    pub(super) parts: Vec<Part>,
    pub(super) clock: Clock,
    progress: Mutex<Progress>,
    pub(super) news: watch::Sender<SequenceState>,
}

impl Progress {
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

impl Steps {
    pub(super) fn new(backend: Arc<dyn PartBackend>, parts: Vec<Part>, clock: Clock) -> Self {
        let waiting = ClaimState::Waiting { ahead: None, holder: None };
        let news = SequenceState { state: waiting, trouble: None, refused: None, left: false };
        Self { backend, parts, clock, progress: Mutex::default(), news: watch::Sender::new(news) }
    }

    pub(super) fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the next part is due: there is one, and all former ones are held.
    pub(super) fn may_advance(&self) -> bool {
        let progress = self.progress();
        progress.entered.len() < self.parts.len() && progress.grants().is_some()
    }

    /// Enters the next part.
    pub(super) async fn advance(&self, deadline: Moment) -> Result<()> {
        let at = {
            let mut progress = self.progress();
            progress.entering = true;
            progress.entered.len()
        };
        let good = self.clock.now();
        let claim = self.backend.enter(&self.parts[at].request, deadline).await?;
        let entered = Entered { claim: Arc::clone(&claim), state: None, good, left: false };
        {
            let mut progress = self.progress();
            progress.entering = false;
            progress.entered.push(entered);
        }
        // What is not learnt in time is learnt by whoever follows.
        let state = tokio::select! {
            state = claim.changed(None) => state.ok(),
            () = self.clock.sleep_until(deadline) => None,
        };
        // Whoever follows may have heard of it before, and is told nothing twice.
        if let Some(entered) = self.progress().entered.get_mut(at)
            && entered.state.is_none()
        {
            entered.state = state;
        }
        Ok(())
    }

    /// How the whole stands.
    fn state(&self) -> ClaimState {
        let mut progress = self.progress();
        let states = || progress.entered.iter().filter_map(|entered| entered.state.as_ref());
        let asked = |state: &&ClaimState| matches!(state, ClaimState::AskedToLeave { .. });
        if let Some(state) = states().find(|state| state.is_final()).or_else(|| states().find(asked)) {
            return state.clone();
        }
        if progress.entered.len() == self.parts.len()
            && let Some(grants) = progress.grants()
        {
            let grant = self.whole_of(&grants, &progress.entered);
            return ClaimState::Held(progress.grant.get_or_insert(grant).clone());
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
    pub(super) fn tell(&self, more: impl FnOnce(&mut SequenceState)) {
        let state = self.state();
        self.news.send_modify(|news| {
            if !news.state.is_final() {
                news.state = state;
            }
            more(news);
        });
    }

    /// The claims of parts that have not been left, by their place.
    pub(super) fn present(&self) -> Vec<(usize, Arc<dyn Claim>)> {
        let progress = self.progress();
        let present = progress.entered.iter().enumerate().filter(|(_, entered)| !entered.left);
        present.map(|(at, entered)| (at, Arc::clone(&entered.claim))).collect()
    }

    /// Leaves all parts, at the same time. The first error, after all have been tried.
    pub(super) async fn leave(self: &Arc<Self>, succeeded: bool, deadline: Moment) -> Result<()> {
        let mut leaving = JoinSet::new();
        for (at, claim) in self.present() {
            leaving.spawn(async move { (Some(at), claim.leave(succeeded, deadline).await) });
        }
        let asked_for = {
            let progress = self.progress();
            progress.entering.then_some(progress.entered.len())
        };
        if let Some(at) = asked_for {
            let steps = Arc::clone(self);
            let withdraw = async move { steps.backend.withdraw(&steps.parts[at].request, deadline).await };
            leaving.spawn(async move { (None, withdraw.await) });
        }
        let mut first = Ok(());
        while let Some(done) = leaving.join_next().await {
            // One that panicked has left nothing behind but its ttl; the panic has been told.
            let Ok((at, answer)) = done else { continue };
            match (answer, at) {
                (Err(error), _) => first = first.and(Err(error)),
                (Ok(()), Some(at)) => self.progress().entered[at].left = true,
                (Ok(()), None) => self.progress().entering = false,
            }
        }
        first
    }
}
