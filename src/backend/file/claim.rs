//! One claim: waiting, holding, leaving.

use std::future::Future;
use std::os::fd::OwnedFd;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Notify;

use super::fault::{Fault, Outcome};
use super::fifo::{self, Ear, Watch};
use super::grant::{self, Place};
use super::guard::{Flock, Pending};
use super::line::Fixed;
use super::presence::Presence;
use super::reserve::{guards, reserve};
use super::storage::LineFile;
use super::turn::Step;
use crate::backend::Claim;
use crate::clock;
use crate::lock::claim::Granted;
use crate::lock::{ClaimId, ClaimState, FencingToken, Grant, LossReason, Moment, Request, Result};

/// How long a claim may stand in the line at most without being able to do its part.
const LONGEST_PATIENCE: Duration = Duration::from_secs(5);

/// A claim of this process.
#[derive(Debug)]
pub(super) struct FileClaim {
    pub(super) id: ClaimId,
    inner: Mutex<Inner>,
    /// How long it may stand in the line without being able to do its part.
    pub(super) patience: Duration,
    /// The state may have changed by another call.
    pub(super) news: Notify,
}

#[derive(Debug)]
pub(super) struct Inner {
    /// In the order of the request's names.
    pub(super) places: Vec<Place>,
    /// The name of the own FIFO, and the FIFO until it leaves.
    pub(super) fifo: (Option<String>, Option<Arc<OwnedFd>>),
    pub(super) state: ClaimState,
    pub(super) grant: Option<Grant>,
    /// Whether somebody was told of the hold.
    announced: bool,
    left: bool,
    ear: Option<Arc<Ear>>,
    pub(super) watches: Vec<Arc<Watch>>,
    pub(super) pending: Option<Arc<Pending>>,
    /// The kernel's news of the files of a hold.
    pub(super) presence: Option<Arc<Presence>>,
    /// Whether something may have happened to them since they were looked at.
    pub(super) disturbed: bool,
    /// Since when it has not been able to do its part.
    pub(super) faltering_since: Option<Moment>,
    /// The last moment at which the claim was known to stand.
    proven: Moment,
    /// When it acquired: µs of wall time.
    acquired: u64,
}

impl Inner {
    pub(super) fn new(
        places: Vec<Place>,
        fifo: (Option<String>, Option<Arc<OwnedFd>>),
        began: Moment,
    ) -> Self {
        let state = ClaimState::Waiting { ahead: None, holder: None };
        Self {
            places,
            fifo,
            state,
            grant: None,
            announced: false,
            left: false,
            ear: None,
            watches: Vec::new(),
            pending: None,
            presence: None,
            disturbed: false,
            faltering_since: None,
            proven: began,
            acquired: 0,
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.left || self.state.is_final()
    }

    /// Notes that the records say held.
    pub(super) fn hold(&mut self, began: Moment) {
        let granted = |p: &Place| {
            let token = FencingToken::new(p.fixed.token)?;
            Some(Granted { token, slot: (p.fixed.slot > 0).then_some(p.fixed.slot) })
        };
        let names = self.places.iter().filter_map(granted).collect();
        let grant = Grant { names, counts_from: began };
        self.state = ClaimState::Held(grant.clone());
        self.grant = Some(grant);
        self.acquired = self.places.first().map_or(0, |p| p.fixed.since);
        self.pending = None;
    }

    /// What `seen` leads to: a hold is told before a request to leave it.
    fn announce(&mut self, seen: Option<&ClaimState>) -> Option<ClaimState> {
        let state = match (&self.state, &self.grant) {
            (ClaimState::AskedToLeave { .. }, Some(grant)) if !self.announced => {
                ClaimState::Held(grant.clone())
            }
            (state, _) => state.clone(),
        };
        if seen == Some(&state) {
            return None;
        }
        self.announced |= matches!(state, ClaimState::Held(_));
        Some(state)
    }
}

impl FileClaim {
    /// The claim of `request`.
    pub(super) fn new(request: &Request, inner: Inner) -> Self {
        let patience = (request.ttl / 6).min(LONGEST_PATIENCE);
        Self { id: request.id, inner: Mutex::new(inner), patience, news: Notify::new() }
    }

    pub(super) fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it has left, or can no longer hold.
    pub(super) fn is_over(&self) -> bool {
        self.inner().is_over()
    }

    /// Whether it holds.
    pub(super) fn holds(&self) -> bool {
        self.inner().grant.is_some()
    }

    /// Its lines, in the order in which guards are taken.
    fn lines(&self) -> Vec<Arc<LineFile>> {
        let mut lines: Vec<_> = self.inner().places.iter().map(|p| Arc::clone(&p.line)).collect();
        lines.sort_by(|a, b| a.files.cmp(&b.files));
        lines
    }

    /// Brings the state up to date.
    async fn look(&self, deadline: Moment) -> Outcome<()> {
        let began = clock::now();
        if self.stands_unchanged()? {
            return Ok(());
        }
        let mut guards = guards(&self.lines(), deadline).await?;
        loop {
            match self.survey(began)? {
                Step::Settled => return Ok(()),
                Step::Reserve(line) => guards = reserve(line, guards, deadline).await?,
            }
        }
    }

    /// Brings the state up to date, then looks at the files by `check`. Those of a hold are looked at also while its line
    /// cannot be read, and a loss that is found counts whatever cannot be told.
    async fn look_with(&self, check: impl FnOnce(&Self) -> Outcome<()>, deadline: Moment) -> Outcome<()> {
        let looked = match self.look(deadline).await {
            Ok(()) => check(self),
            Err(fault) if self.holds() => self.check_files().and(Err(fault)),
            Err(fault) => Err(fault),
        };
        if self.is_over() { Ok(()) } else { looked }
    }

    /// Whether nothing can have changed; without a guard, since one read of one page is whole.
    fn stands_unchanged(&self) -> Outcome<bool> {
        let inner = self.inner();
        if inner.is_over() {
            return Ok(true);
        }
        if inner.grant.is_none() {
            return Ok(false);
        }
        let known = matches!(inner.state, ClaimState::AskedToLeave { .. });
        for place in &inner.places {
            let expected = Fixed { asked: known, ..place.fixed };
            if Fixed::read(&place.line.read_fixed(place.at)?) != Some(expected) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Completes when looking again may show something new. `called` was made before the last look.
    async fn wait(&self, called: Pin<&mut (impl Future<Output = ()> + Send)>) -> Outcome<()> {
        let (ear, watches, pending, presence) = {
            let inner = &mut *self.inner();
            if inner.grant.is_some() {
                // Not as soon as it holds: the last one to close a FIFO takes it apart, and the command waits.
                inner.watches.clear();
            }
            if let (None, Some(fifo)) = (&inner.ear, &inner.fifo.1) {
                inner.ear = Some(Arc::new(Ear::new(Arc::clone(fifo))?));
            }
            (inner.ear.clone(), inner.watches.clone(), inner.pending.clone(), inner.presence.clone())
        };
        let mut all: Vec<Pin<Box<dyn Future<Output = ()> + Send + '_>>> = vec![Box::pin(called)];
        if let Some(ear) = ear {
            all.push(Box::pin(async move { ear.heard().await }));
        }
        if let Some(pending) = pending {
            all.push(Box::pin(async move { pending.done().await }));
        }
        if let Some(presence) = presence {
            all.push(Box::pin(async move {
                presence.disturbed().await;
                self.inner().disturbed = true;
            }));
        }
        for watch in watches {
            all.push(Box::pin(async move { watch.ended().await }));
        }
        std::future::poll_fn(|cx| {
            let ready = all.iter_mut().any(|f| f.as_mut().poll(cx).is_ready());
            if ready { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        Ok(())
    }

    fn fail(&self, operation: &'static str) -> impl FnOnce(Fault) -> crate::lock::Error {
        let lock = self.inner().places.first().map(|p| p.line.lock.clone());
        move |fault| fault.during(operation, lock.as_ref())
    }

    /// Has the successor's processor wake up while this claim is still leaving.
    fn rouse(&self) {
        let fifo = self.inner().fifo.1.clone();
        if let Some(fifo) = fifo {
            fifo::rouse(&fifo);
        }
    }

    /// Leaves under the guards, or without them if they cannot be had: the locks and the FIFO count.
    pub(super) fn go(&self, guards: Option<Vec<Flock>>, succeeded: bool) -> Outcome<()> {
        let mut result = Ok(());
        let (fifo, ear, watches, presence) = {
            let inner = &mut *self.inner();
            if std::mem::replace(&mut inner.left, true) {
                return Ok(());
            }
            let success = (succeeded && inner.acquired > 0).then_some(inner.acquired);
            if guards.is_some() {
                for place in &inner.places {
                    result = result.and(place.line.remove(self.id, place.at, place.end, success));
                }
            }
            grant::release(&mut inner.places);
            inner.places.iter_mut().for_each(Place::stop_waiting);
            inner.pending = None;
            if !inner.state.is_final() {
                inner.state = ClaimState::Lost(LossReason::SessionEnded);
            }
            let watches = std::mem::take(&mut inner.watches);
            (inner.fifo.1.take(), inner.ear.take(), watches, inner.presence.take())
        };
        drop(guards);
        // Closing it wakes the successor, who finds guard and locks free.
        drop((ear, fifo));
        // It may have been woken on this processor, and has more to do than this process.
        rustix::thread::sched_yield();
        self.news.notify_waiters();
        drop(watches);
        if let Some(presence) = presence {
            presence.end();
        }
        let inner = self.inner();
        if let (Some(place), Some(fifo)) = (inner.places.first(), &inner.fifo.0) {
            place.line.directory.unlink(fifo);
        }
        result
    }
}

#[async_trait]
impl Claim for FileClaim {
    fn ttl(&self) -> Option<Duration> {
        None
    }

    async fn changed(&self, seen: Option<&ClaimState>) -> Result<ClaimState> {
        loop {
            let called = self.news.notified();
            let looked = self.look_with(Self::check_if_disturbed, Moment::NEVER).await;
            self.falter(looked).map_err(self.fail("wait in the queue"))?;
            if let Some(state) = self.inner().announce(seen) {
                return Ok(state);
            }
            self.wait(pin!(called)).await.map_err(self.fail("wait in the queue"))?;
        }
    }

    fn settle(&self) {
        self.watch_files();
    }

    async fn renew(&self, deadline: Moment) -> Result<Moment> {
        let began = clock::now();
        let before = self.inner().state.clone();
        // If it could not be had before.
        self.watch_files();
        let looked = self.look_with(Self::check_files, deadline).await;
        looked.map_err(self.fail("renew in the queue"))?;
        let inner = &mut *self.inner();
        if inner.state != before {
            self.news.notify_waiters();
        }
        if !inner.is_over() {
            inner.proven = began;
        }
        Ok(inner.proven)
    }

    async fn leave(&self, succeeded: bool, deadline: Moment) -> Result<()> {
        if self.inner().left {
            return Ok(());
        }
        self.rouse();
        let left = match guards(&self.lines(), deadline).await {
            Ok(guards) => self.go(Some(guards), succeeded),
            Err(fault) => self.go(None, false).and(if succeeded { Err(fault) } else { Ok(()) }),
        };
        left.map_err(self.fail("leave the queue"))
    }

    fn anchors(&self) -> Result<Vec<OwnedFd>> {
        let inner = self.inner();
        let mut anchors = Vec::new();
        for place in &inner.places {
            for hold in place.holds() {
                let anchor = hold.anchor(&place.line.directory);
                anchors.push(anchor.map_err(|f| f.during("anchor the lock", Some(&place.line.lock)))?);
            }
        }
        Ok(anchors)
    }
}
