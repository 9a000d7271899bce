//! One client's end of a claim.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::arrive::{self, Entered, Own};
use super::change::{Found, Patience, Step, understand, wall_clock};
use super::client::Queues;
use super::pace::Pace;
use super::queue::Document;
use super::view::{Note, View, foreign_entry, is_final};
use super::{Fault, FaultResult, Item, Side, deadlock, evict};
use crate::backend::Claim;
use crate::clock::Alarm;
use crate::lock::{ClaimState, Error, ErrorKind, LossReason, Moment, Result};

/// What there is to say of a claim.
#[derive(Clone, Debug)]
struct News {
    state: ClaimState,
    /// Why the claim could not be followed, and how often that has happened.
    trouble: Option<(u64, Fault)>,
}

#[derive(Debug)]
struct Shared {
    queues: Queues,
    own: Own,
    view: Mutex<View>,
    news: watch::Sender<News>,
}

/// A claim. While it exists it is followed in the background; dropping it leaves its entry to its ttl.
#[derive(Debug)]
pub(super) struct DocumentClaim {
    shared: Arc<Shared>,
    following: JoinHandle<()>,
}

impl Drop for DocumentClaim {
    fn drop(&mut self) {
        self.following.abort();
    }
}

impl DocumentClaim {
    /// The claim `own`, whose attempt to enter, begun at `begun`, came to `entered`.
    pub(super) fn new(queues: &Queues, own: Own, entered: Entered, begun: Moment) -> Arc<Self> {
        let view = Mutex::new(View::new(own.request.id, own.ttl, begun));
        let waiting = ClaimState::Waiting { ahead: None, holder: None };
        let news = watch::Sender::new(News { state: waiting, trouble: None });
        let shared = Arc::new(Shared { queues: queues.clone(), own, view, news });
        shared.entered(entered);
        let following = tokio::spawn(follow(Arc::clone(&shared)));
        Arc::new(Self { shared, following })
    }

    pub(super) fn own(&self) -> &Own {
        &self.shared.own
    }

    pub(super) fn queues(&self) -> &Queues {
        &self.shared.queues
    }

    /// Whether it stood in line when the store last answered.
    pub(super) fn waits(&self) -> bool {
        matches!(self.shared.state(), ClaimState::Waiting { .. })
    }

    /// Takes the claim out of the queue.
    pub(super) async fn send_leave(&self, succeeded: bool, deadline: Moment) -> FaultResult<()> {
        self.shared.leave(succeeded, deadline).await
    }

    fn error(&self, fault: Fault, operation: &'static str) -> Error {
        fault.during(self.shared.queues.store.backend(), operation, Some(&self.shared.own.name))
    }
}

impl Shared {
    fn view(&self) -> MutexGuard<'_, View> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> ClaimState {
        self.news.borrow().state.clone()
    }

    fn now(&self) -> Moment {
        self.queues.clock.now()
    }

    /// How long a look may take that nobody gave a deadline.
    fn soon(&self) -> Moment {
        self.now() + (self.own.ttl / 6).min(Duration::from_secs(5))
    }

    /// Whether nothing will change any more.
    fn is_over(&self) -> bool {
        self.view().left || is_final(&self.news.borrow().state)
    }

    /// Tells how the claim stands, unless it has ended.
    fn tell(&self, state: ClaimState) {
        self.news.send_if_modified(|news| {
            let is_news = !is_final(&news.state) && (news.state != state || news.trouble.is_some());
            if is_news {
                *news = News { state, trouble: None };
            }
            is_news
        });
    }

    /// Takes over what an attempt to enter came to.
    fn entered(&self, entered: Entered) {
        let now = self.now();
        match entered {
            Entered::In(known, sent) => {
                let mut view = self.view();
                view.last_good = sent;
                if let Some(known) = known {
                    let state = view.take(known, now);
                    drop(view);
                    if let Some(state) = state {
                        self.tell(state);
                    }
                } else {
                    // It was in the queue when it was sent, and is not any more: the next look says why.
                    view.born = Some(String::new());
                    view.unasked = false;
                }
            }
            Entered::Behind(item) => self.waits_behind(&item),
            Entered::Out(note) => self.tell(Note::state(&note)),
        }
    }

    fn waits_behind(&self, item: &Item) {
        let claim = evict::identity_of(&self.own.name, item);
        let holder = Some(Box::new(foreign_entry(claim)));
        self.view().ahead = Some(1);
        self.tell(ClaimState::Waiting { ahead: None, holder });
    }

    /// A lease that ran out is over, whatever the store says: somebody may have taken the entry for dead.
    fn expire(&self) -> bool {
        let expired = self.view().is_expired(self.now());
        if expired {
            self.tell(ClaimState::Lost(LossReason::Expired));
        }
        expired
    }

    /// Finds out how the claim stands; says whether the queue ahead of it has changed.
    async fn look(&self, deadline: Moment) -> FaultResult<bool> {
        if self.is_over() || self.expire() {
            return Ok(true);
        }
        let before = self.state();
        if self.view().born.is_none() {
            let entered = arrive::attempt(&self.queues, &self.own, deadline).await?;
            self.entered(entered);
        } else {
            let found = self.queues.look(&self.own.name, deadline).await?;
            self.take(found, deadline).await?;
        }
        Ok(before != self.state())
    }

    /// Takes over what was found, after taking out whoever is dead.
    async fn take(&self, mut found: Found, deadline: Moment) -> FaultResult<()> {
        if let Found::Queue(known) = &found {
            let mut tidied = known.document.clone();
            if self.tidy(&mut tidied) && tidied.find(self.own.request.id).is_some() {
                let replaced = self.queues.put(&self.own.name, &known.version, &tidied, deadline).await?;
                found = understand(replaced.item)?;
            }
        }
        self.settle(found, deadline).await;
        Ok(())
    }

    /// Takes over how the claim stands in what was found.
    async fn settle(&self, found: Found, deadline: Moment) {
        let document = match found {
            Found::Queue(known) => {
                let document = known.document.clone();
                let state = self.view().take(known, self.now());
                if let Some(state) = state {
                    return self.tell(state);
                }
                Some(document)
            }
            Found::Foreign(_) | Found::Nothing => None,
        };
        // That it is gone is certain; why, only if it can be read.
        let side = Side::Gone(&self.own.name, self.own.request.id);
        let state = if let Ok(Some(note)) = self.queues.store.read_side(side, deadline).await {
            Note::state(&note.bytes)
        } else {
            let forgotten = self.queues.store.why_forgotten();
            self.view().gone(document.as_ref(), forgotten, self.now())
        };
        if !self.view().left {
            self.tell(state);
        }
    }

    /// Takes the dead out of what was read just now, and gives holds to those whose turn it is; says whether anything was to
    /// do.
    fn tidy(&self, document: &mut Document) -> bool {
        let before = document.clone();
        let dead = {
            let (mut view, now) = (self.view(), self.now());
            view.watch.look(Some(document), now);
            view.dead(document, now)
        };
        for id in dead {
            document.remove(id, wall_clock());
        }
        document.settle(wall_clock());
        *document != before
    }

    async fn renew(&self, deadline: Moment) -> FaultResult<()> {
        let begun = self.now();
        if self.view().born.is_none() {
            // It has no entry that could run out.
            self.look(deadline).await?;
            if self.view().born.is_none() {
                self.view().last_good = begun;
            }
            return Ok(());
        }
        if self.is_over() || self.expire() {
            return Ok(());
        }
        let id = self.own.request.id;
        let known = self.view().known.take();
        let renew = |document: &mut Document| {
            let renewed = document.renew(id);
            if renewed {
                self.tidy(document);
                Step::Write(true)
            } else {
                Step::Keep(false)
            }
        };
        let changed = self.queues.change(&self.own.name, known, Patience::Once, deadline, renew).await?;
        if changed.said == Some(true) && !self.is_over() {
            let mut view = self.view();
            view.last_good = view.last_good.max(begun);
        }
        self.settle(changed.after, deadline).await;
        Ok(())
    }

    async fn leave(&self, succeeded: bool, deadline: Moment) -> FaultResult<()> {
        let (store, own, id) = (&self.queues.store, &self.own, self.own.request.id);
        let (known, held_for) = {
            let mut view = self.view();
            if view.left {
                return Ok(());
            }
            (view.known.take(), view.held_for(self.now()))
        };
        if succeeded && let Some(held_for) = held_for {
            store.record_success(&own.name, held_for, deadline).await?;
        }
        let remove = |document: &mut Document| {
            document.remove(id, wall_clock());
            // Also where it is not there: what may still come of it is refused once the queue has changed.
            Step::Write(())
        };
        self.queues.change(&own.name, known, Patience::Deadline, deadline, remove).await?;
        self.view().left = true;
        // Nobody needs what is beside the queue any more; what cannot be removed now is found useless later.
        if !own.request.ancestors.is_empty() {
            drop(deadlock::forget(&self.queues, id, deadline).await);
        }
        if own.all.len() > 1 {
            drop(store.remove_side(Side::Names(id), deadline).await);
        }
        Ok(())
    }
}

/// Looks again and again until the claim is over.
async fn follow(shared: Arc<Shared>) {
    let (mut pace, mut alarm) = (Pace::new(shared.own.request.id), Alarm::default());
    let id = shared.own.request.id;
    let mut failures = 0;
    while !shared.is_over() {
        let next = {
            let view = shared.view();
            let now = shared.now();
            let look = now + pace.next(view.ahead);
            // Not at once, should a death have been seen that could not be written.
            let death = view.watch.next_death(Some(id)).max(now + Duration::from_millis(50));
            look.min(death).min(view.expires_at())
        };
        alarm.sleep_until(shared.queues.clock, next).await;
        match shared.look(shared.soon()).await {
            Ok(true) => pace.changed(),
            Ok(false) => {}
            Err(fault) => {
                failures += 1;
                shared.news.send_modify(|news| news.trouble = Some((failures, fault)));
            }
        }
    }
}

#[async_trait]
impl Claim for DocumentClaim {
    fn ttl(&self) -> Option<Duration> {
        Some(self.shared.own.ttl)
    }

    async fn changed(&self, seen: Option<&ClaimState>) -> Result<ClaimState> {
        let shared = &*self.shared;
        let mut news = shared.news.subscribe();
        let is_told = std::mem::replace(&mut shared.view().unasked, false);
        if seen.is_none() && !is_told {
            let looked = shared.look(shared.soon()).await;
            looked.map_err(|fault| self.error(fault, "follow the queue"))?;
        }
        let known_trouble = news.borrow().trouble.as_ref().map(|(number, _)| *number);
        loop {
            {
                let now = news.borrow_and_update();
                if shared.view().left {
                    let gone = Fault::new(ErrorKind::Invalid, "the claim has left it");
                    return Err(self.error(gone, "follow the queue"));
                }
                if seen != Some(&now.state) {
                    return Ok(now.state.clone());
                }
                if let Some((number, fault)) = &now.trouble
                    && Some(*number) != known_trouble
                {
                    return Err(self.error(fault.clone(), "follow the queue"));
                }
            }
            // The sender is part of `self`.
            let _ = news.changed().await;
        }
    }

    async fn renew(&self, deadline: Moment) -> Result<Moment> {
        let renewed = self.shared.renew(deadline).await;
        renewed.map_err(|fault| self.error(fault, "renew the claim"))?;
        Ok(self.shared.view().last_good)
    }

    async fn leave(&self, succeeded: bool, deadline: Moment) -> Result<()> {
        if self.shared.view().born.is_none() {
            // What it may be entering with at this moment comes too late once the queue has changed.
            self.following.abort();
        }
        let left = self.shared.leave(succeeded, deadline).await;
        left.map_err(|fault| self.error(fault, "leave the queue"))?;
        self.shared.news.send_modify(|_| {});
        Ok(())
    }

    fn anchors(&self) -> Result<Vec<OwnedFd>> {
        Ok(Vec::new())
    }
}
