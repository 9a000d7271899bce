//! What a client knows of its claim.

use std::sync::Arc;
use std::time::Duration;

use super::connection::Connection;
use super::row::Row;
use crate::backend::claim_state::{Publisher, due};
use crate::lock::{ClaimState, Mode, Moment};

/// A connection that tells of changes, and how often it had told when the state was read.
#[derive(Clone, Debug)]
pub(super) struct Armed {
    pub(super) connection: Arc<Connection>,
    pub(super) notified: u64,
}

/// What a client knows of its claim.
#[derive(Debug)]
pub(super) struct View {
    pub(super) mode: Mode,
    pub(super) ttl: Duration,
    pub(super) rows: Vec<Row>,
    /// When time alone may have changed something.
    pub(super) look_at: Moment,
    pub(super) armed: Option<Armed>,
}

impl View {
    pub(super) fn new(mode: Mode, ttl: Duration) -> Self {
        Self { mode, ttl, rows: Vec::new(), look_at: Moment::NEVER, armed: None }
    }

    /// Takes over what the service had said by `now`, and publishes how the claim stands.
    pub(super) fn take(&mut self, rows: Vec<Row>, now: Moment, publisher: &Publisher) {
        let horizon = rows.iter().filter_map(|row| row.horizon).min();
        self.look_at = due(now, horizon);
        self.rows = rows;
        publisher.publish(self.state(publisher));
    }

    fn state(&self, publisher: &Publisher) -> ClaimState {
        if let Some(row) = self.rows.iter().find(|row| row.gone.is_some()) {
            return publisher.ended(row.gone.as_deref(), row.by.as_ref(), self.ttl);
        }
        if let Some(by) = self.rows.iter().find_map(|row| row.asked.clone()) {
            return ClaimState::AskedToLeave { by };
        }
        let granted: Option<Vec<_>> = self.rows.iter().map(|row| row.granted).collect();
        if let Some(names) = granted {
            return publisher.held(names);
        }
        let ahead = self.rows.iter().filter(|row| row.granted.is_none()).map(|row| row.ahead).max();
        let holder = self.rows.iter().find(|row| row.granted.is_none()).and_then(|row| row.lead.clone());
        ClaimState::Waiting { ahead, holder: holder.map(Box::new) }
    }

    /// Whether every name is granted.
    pub(super) fn holds(&self) -> bool {
        !self.rows.is_empty() && self.rows.iter().all(|row| row.granted.is_some() && row.gone.is_none())
    }

    /// Whether nothing can have changed since the service last answered.
    pub(super) fn is_fresh(&self, now: Moment) -> bool {
        self.armed.as_ref().is_some_and(|armed| {
            armed.connection.is_open()
                && armed.connection.notified_count() == armed.notified
                && now < self.look_at
        })
    }
}
