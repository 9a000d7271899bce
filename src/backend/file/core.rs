//! The state that the parts of one claim share.

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

/// The longest time that a waiter may stay in the queue while it cannot do its part.
const LONGEST_PATIENCE: Duration = Duration::from_secs(5);

/// A claim of this process.
#[derive(Debug)]
pub(super) struct FileClaim {
    pub(super) id: ClaimId,
    inner: Mutex<Inner>,
    /// How long it may stay in the queue while it cannot do its part.
    pub(super) patience: Duration,
    /// Notifies that another call may have changed the state.
    pub(super) news: Notify,
}

#[derive(Debug)]
pub(super) struct Inner {
    /// In the order of the request's names.
    pub(super) places: Vec<QueuedClaim>,
    /// The name of the claim's own FIFO, and the FIFO until the claim leaves.
    pub(super) fifo: (Option<String>, Option<Arc<OwnedFd>>),
    pub(super) state: ClaimState,
    pub(super) grant: Option<Grant>,
    /// Whether the hold has been announced to a caller.
    announced: bool,
    pub(super) left: bool,
    pub(super) listener: Option<Arc<Listener>>,
    pub(super) watches: Vec<Arc<Watch>>,
    pub(super) pending: Option<Arc<Pending>>,
    /// The kernel's events about the files of a hold.
    pub(super) presence: Option<Arc<Presence>>,
    /// Whether something may have happened to the files since the last look at them.
    pub(super) disturbed: bool,
    /// Since when it has not been able to do its part.
    pub(super) failing_since: Option<Moment>,
    /// The last moment at which the claim was known to be in force.
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

    /// Notes that the records say `Held`.
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

    /// Returns the next state for a caller that has `seen` one, if it is a new one. A hold is announced before a
    /// request to leave it.
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
    /// Creates the claim of `request`.
    pub(super) fn new(request: &Request, inner: Inner) -> Self {
        let patience = (request.ttl / 6).min(LONGEST_PATIENCE);
        Self { id: request.id, inner: Mutex::new(inner), patience, news: Notify::new() }
    }

    pub(super) fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether it has left, or can no longer hold.
    pub(super) fn is_over(&self) -> bool {
        self.inner().is_over()
    }

    /// Returns whether it has acquired.
    pub(super) fn holds(&self) -> bool {
        self.inner().grant.is_some()
    }

    /// Returns its queues, in the order in which guards are taken.
    pub(super) fn queues(&self) -> Vec<Arc<QueueFile>> {
        let mut queues: Vec<_> = self.inner().places.iter().map(|p| Arc::clone(&p.queue)).collect();
        queues.sort_by(|a, b| a.files.cmp(&b.files));
        queues
    }
}
