//! What a client knows of its claim.

use std::sync::Arc;
use std::time::Duration;

use super::dialect::Session;
use super::position::Standing;
use crate::backend::claim_state::{Publisher, due};
use crate::lock::{ClaimId, ClaimState, Granted, Mode, Moment};

/// A session that tells of changes, and how often it had told when the state was read.
#[derive(Clone, Debug)]
pub(super) struct Armed {
    pub(super) session: Arc<dyn Session>,
    pub(super) notified: u64,
}

/// What a client knows of its claim.
#[derive(Debug)]
pub(super) struct View {
    pub(super) mode: Mode,
    ttl: Duration,
    pub(super) positions: Vec<Standing>,
    /// When time alone may have changed something.
    pub(super) look_at: Moment,
    /// When to look because nothing tells.
    pub(super) poll_at: Moment,
    /// Whether it is to sleep until the claim ahead has gone.
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

    /// Takes over what the database had said by `now`, and publishes how the claim stands. `order` is where the names of
    /// the request are among the positions.
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

    /// The same with what the news say that the claim was given, if they are that and nothing else; whether they are.
    pub(super) fn take_given(&mut self, own: ClaimId, order: &[usize], publisher: &Publisher) -> bool {
        let (Some(armed), [position]) = (&mut self.armed, &mut self.positions[..]) else { return false };
        let given = armed.session.given(own, armed.notified).filter(|_| position.present);
        let Some(granted) = given else { return false };
        position.give(granted);
        // Whoever holds sleeps no more.
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

    /// Whether it holds in all queues and was not given its tokens yet.
    pub(super) fn is_due(&self) -> bool {
        self.positions.iter().all(|position| position.holds(self.mode))
            && self.positions.iter().any(|position| position.granted.is_none())
    }

    /// The claim ahead that it waits for, and how many are ahead, in the first queue where it must wait; none if that may be the end of any of several.
    pub(super) fn ahead(&self) -> Option<(ClaimId, u32)> {
        let waits = self.positions.iter().find(|position| !position.holds(self.mode))?;
        match self.mode {
            // The first one of those who wait.
            Mode::Slots(slots) if waits.ahead() <= slots.get() => None,
            _ => waits.behind.map(|behind| (behind, waits.ahead())),
        }
    }

    /// Whether news of it come in time: a session tells, or none needs to.
    pub(super) fn follows(&self) -> bool {
        self.armed.is_some() || self.parked
    }

    /// How many claims must end before it is the next one, as far as it is known; a shared one may be let in with all others.
    pub(super) fn distance(&self) -> Option<u32> {
        let ahead = self.positions.iter().map(Standing::ahead).max()?;
        match self.mode {
            Mode::Exclusive => Some(ahead),
            Mode::Slots(slots) => Some(ahead.saturating_sub(slots.get() - 1)),
            Mode::Shared => None,
        }
    }

    /// Whether nothing can have changed since the database last answered.
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
