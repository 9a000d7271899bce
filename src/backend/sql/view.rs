//! A client's knowledge of its claim.

use std::sync::Arc;
use std::time::Duration;

use super::dialect::Session;
use super::position::Standing;
use crate::backend::claim_state::{Publisher, due};
use crate::lock::{ClaimId, ClaimState, Granted, Mode, Moment};

/// A session that reports changes, and its number of notifications when the state was read.
#[derive(Clone, Debug)]
pub(super) struct Armed {
    pub(super) session: Arc<dyn Session>,
    pub(super) notified: u64,
}

/// A client's knowledge of its claim.
#[derive(Debug)]
pub(super) struct View {
    pub(super) mode: Mode,
    ttl: Duration,
    pub(super) positions: Vec<Standing>,
    /// When time alone may have changed the state.
    pub(super) look_at: Moment,
    /// When to poll, without notifications.
    pub(super) poll_at: Moment,
    /// Whether it is to sleep until the claim ahead is gone.
    pub(super) sleeps: bool,
    pub(super) armed: Option<Armed>,
    /// Whether it has no connection until its next renewal.
    pub(super) parked: bool,
}

impl View {
    pub(super) fn new(mode: Mode, ttl: Duration) -> Self {
        Self {
            mode,
            ttl,
            positions: Vec::new(),
            look_at: Moment::NEVER,
            poll_at: Moment::NEVER,
            sleeps: false,
            armed: None,
            parked: false,
        }
    }

    /// Applies the database's answer, received by `now`, and publishes the state of the claim. `order` is the index of
    /// each name of the request among the positions.
    pub(super) fn take(
        &mut self,
        mut positions: Vec<Standing>,
        order: &[usize],
        now: Moment,
        publisher: &Publisher,
    ) {
        positions.iter_mut().zip(&self.positions).for_each(|(new, known)| new.keep(known));
        let horizon = positions.iter().filter_map(|position| position.horizon).min();
        self.look_at = due(now, horizon);
        self.positions = positions;
        publisher.publish(self.state(order, publisher));
    }

    /// Applies the grant in a notification, if there is nothing else in it. Returns whether there was one.
    pub(super) fn take_given(&mut self, own: ClaimId, order: &[usize], publisher: &Publisher) -> bool {
        let (Some(armed), [position]) = (&mut self.armed, &mut self.positions[..]) else { return false };
        let given = armed.session.given(own, armed.notified).filter(|_| position.present);
        let Some(granted) = given else { return false };
        position.give(granted);
        // A holder does not sleep.
        self.armed = None;
        publisher.publish(self.state(order, publisher));
        true
    }

    fn state(&self, order: &[usize], publisher: &Publisher) -> ClaimState {
        if let Some(position) = self.positions.iter().find(|position| !position.present) {
            return publisher.ended(position.gone.as_deref(), position.by.as_ref(), self.ttl);
        }
        if let Some(by) = self.positions.iter().find_map(|position| position.asked.clone()) {
            return ClaimState::AskedToLeave { by };
        }
        let granted: Option<Vec<Granted>> = order.iter().map(|at| self.positions[*at].granted).collect();
        if let Some(names) = granted {
            return publisher.held(names);
        }
        let waits = |position: &&Standing| !position.holds(self.mode);
        let ahead = self.positions.iter().filter(waits).map(Standing::ahead).max();
        let holder = self.positions.iter().find(waits).and_then(|position| position.lead.clone());
        ClaimState::Waiting { ahead, holder: holder.map(Box::new) }
    }

    /// Returns whether it holds in all queues and has not all of its tokens yet.
    pub(super) fn is_due(&self) -> bool {
        self.positions.iter().all(|position| position.holds(self.mode))
            && self.positions.iter().any(|position| position.granted.is_none())
    }

    /// Returns the claim ahead that it waits for, and the number of claims ahead, in the first queue in which it must
    /// wait. `None` if any of several claims may end the wait.
    pub(super) fn ahead(&self) -> Option<(ClaimId, u32)> {
        let waits = self.positions.iter().find(|position| !position.holds(self.mode))?;
        match self.mode {
            // It is the first waiter.
            Mode::Slots(slots) if waits.ahead() <= slots.get() => None,
            _ => waits.behind.map(|behind| (behind, waits.ahead())),
        }
    }

    /// Returns whether the state is known in time: a session reports changes, or none needs to.
    pub(super) fn follows(&self) -> bool {
        self.armed.is_some() || self.parked
    }

    /// Returns how many claims must end before it is the next one, as far as known. `None` for a shared claim, which
    /// may be let in together with all others.
    pub(super) fn distance(&self) -> Option<u32> {
        let ahead = self.positions.iter().map(Standing::ahead).max()?;
        match self.mode {
            Mode::Exclusive => Some(ahead),
            Mode::Slots(slots) => Some(ahead.saturating_sub(slots.get() - 1)),
            Mode::Shared => None,
        }
    }

    /// Returns whether nothing can have changed since the database last answered.
    pub(super) fn is_fresh(&self, now: Moment) -> bool {
        self.armed.as_ref().is_some_and(|armed| {
            let session = &armed.session;
            session.is_open()
                && session.can_notify()
                && session.notified_count() == armed.notified
                && now < self.look_at
        })
    }
}
