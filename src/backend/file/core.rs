//! What the parts of one claim share.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::fifo::{Listener, Watch};
use super::grant::QueuedClaim;
use super::guard::Pending;
use super::presence::Presence;
use super::storage::QueueFile;
use crate::lock::claim::Granted;
use crate::lock::{ClaimId, ClaimState, FencingToken, Grant, Moment, Request};

/// How long a claim may stand in the queue at most without being able to do its part.
const LONGEST_PATIENCE: Duration = Duration::from_secs(5);

/// A claim of this process.
#[derive(Debug)]
pub(super) struct FileClaim {
    pub(super) id: ClaimId,
    inner: Mutex<Inner>,
    /// How long it may stand in the queue without being able to do its part.
    pub(super) patience: Duration,
    /// The state may have changed by another call.
    pub(super) news: Notify,
}

#[derive(Debug)]
pub(super) struct Inner {
    /// In the order of the request's names.
    pub(super) places: Vec<QueuedClaim>,
    /// The name of the own FIFO, and the FIFO until it leaves.
    pub(super) fifo: (Option<String>, Option<Arc<OwnedFd>>),
    pub(super) state: ClaimState,
    pub(super) grant: Option<Grant>,
    /// Whether somebody was told of the hold.
    announced: bool,
    pub(super) left: bool,
    pub(super) listener: Option<Arc<Listener>>,
    pub(super) watches: Vec<Arc<Watch>>,
    pub(super) pending: Option<Arc<Pending>>,
    /// The kernel's news of the files of a hold.
    pub(super) presence: Option<Arc<Presence>>,
    /// Whether something may have happened to them since they were looked at.
    pub(super) disturbed: bool,
    /// Since when it has not been able to do its part.
    pub(super) failing_since: Option<Moment>,
    /// The last moment at which the claim was known to stand.
    pub(super) proven: Moment,
    /// When it acquired: µs of wall time.
    pub(super) acquired: u64,
}

impl Inner {
    pub(super) fn new(
        places: Vec<QueuedClaim>,
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
            listener: None,
            watches: Vec::new(),
            pending: None,
            presence: None,
            disturbed: false,
            failing_since: None,
            proven: began,
            acquired: 0,
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.left || self.state.is_final()
    }

    /// Notes that the records say held.
    pub(super) fn hold(&mut self, began: Moment) {
        let granted = |p: &QueuedClaim| {
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
    pub(super) fn announce(&mut self, seen: Option<&ClaimState>) -> Option<ClaimState> {
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

    /// Its queues, in the order in which guards are taken.
    pub(super) fn queues(&self) -> Vec<Arc<QueueFile>> {
        let mut queues: Vec<_> = self.inner().places.iter().map(|p| Arc::clone(&p.queue)).collect();
        queues.sort_by(|a, b| a.files.cmp(&b.files));
        queues
    }
}
