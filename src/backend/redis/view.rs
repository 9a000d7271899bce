//! What a client knows of its claim.

use std::sync::Arc;
use std::time::Duration;

use super::connection::Connection;
use super::row::Row;
use crate::lock::{ClaimState, Grant, LossReason, Mode, Moment};

/// A connection that tells of changes, and how often it had told when the state was read.
#[derive(Clone, Debug)]
pub(super) struct Armed {
    pub(super) connection: Arc<Connection>,
    pub(super) told: u64,
}

/// What a client knows of its claim.
#[derive(Debug)]
pub(super) struct View {
    pub(super) mode: Mode,
    pub(super) ttl: Duration,
    pub(super) rows: Vec<Row>,
    /// From when the last confirmed ttl counts.
    pub(super) last_good: Moment,
    /// That of the hold, as it was when the hold was first seen.
    grant_from: Option<Moment>,
    pub(super) held_at: Option<Moment>,
    /// When time alone may have changed something.
    pub(super) look_at: Moment,
    pub(super) armed: Option<Armed>,
    /// Nobody has asked yet since the service last answered.
    pub(super) unasked: bool,
    pub(super) left: bool,
}

/// Beyond the service's own resolution of time.
const SLACK: Duration = Duration::from_millis(2);

impl View {
    pub(super) fn new(mode: Mode, ttl: Duration, entered: Moment) -> Self {
        Self {
            mode,
            ttl,
            rows: Vec::new(),
            last_good: entered,
            grant_from: None,
            held_at: None,
            look_at: Moment::NEVER,
            armed: None,
            unasked: true,
            left: false,
        }
    }

    /// Takes over what the service said, and says how the claim stands.
    pub(super) fn take(&mut self, rows: Vec<Row>, now: Moment) -> ClaimState {
        let horizon = rows.iter().filter_map(|row| row.horizon).min();
        self.look_at = horizon.map_or(Moment::NEVER, |length| now + length + SLACK);
        self.rows = rows;
        self.state(now)
    }

    fn state(&mut self, now: Moment) -> ClaimState {
        if let Some(row) = self.rows.iter().find(|row| row.gone.is_some()) {
            return self.gone(row, now);
        }
        if let Some(by) = self.rows.iter().find_map(|row| row.asked.clone()) {
            return ClaimState::AskedToLeave { by };
        }
        let granted: Option<Vec<_>> = self.rows.iter().map(|row| row.granted).collect();
        if let Some(names) = granted {
            self.held_at.get_or_insert(now);
            let counts_from = *self.grant_from.get_or_insert(self.last_good);
            return ClaimState::Held(Grant { names, counts_from });
        }
        let ahead = self.rows.iter().filter(|row| row.granted.is_none()).map(|row| row.ahead).max();
        let holder = self.rows.iter().find(|row| row.granted.is_none()).and_then(|row| row.lead.clone());
        ClaimState::Waiting { ahead, holder: holder.map(Box::new) }
    }

    fn gone(&self, row: &Row, now: Moment) -> ClaimState {
        let reason = match (row.gone.as_deref(), &row.by) {
            (Some("superseded"), Some(by)) => return ClaimState::Superseded { by: by.clone() },
            (Some("evicted"), by) => LossReason::Evicted(by.clone()),
            _ if now >= self.last_good + self.ttl => LossReason::Expired,
            _ => LossReason::Evicted(None),
        };
        ClaimState::Lost(reason)
    }

    /// Whether every name is granted.
    pub(super) fn holds(&self) -> bool {
        !self.rows.is_empty() && self.rows.iter().all(|row| row.granted.is_some() && row.gone.is_none())
    }

    /// Whether nothing can have changed since the service last answered.
    pub(super) fn is_fresh(&self, now: Moment) -> bool {
        let armed = self.armed.as_ref().is_some_and(|armed| {
            armed.connection.is_open() && armed.connection.told() == armed.told && now < self.look_at
        });
        armed || self.unasked
    }
}

/// Whether nothing can follow.
pub(super) fn is_final(state: &ClaimState) -> bool {
    matches!(state, ClaimState::Lost(_) | ClaimState::Superseded { .. })
}
