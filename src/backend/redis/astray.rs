//! Requests that make an entry and were not answered: they may be done long after whoever sent them has gone on.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::connection::Connection;
use super::script::{Step, millis};
use crate::backend::tcp;
use crate::lock::ClaimId;

/// For how long a claim of which something may still arrive is kept out: a connection that is given up is closed.
pub(super) const KEEP_OUT: Duration = tcp::LATE;

/// The entering requests of one client that were sent and not answered: of which claim, and over which connection.
#[derive(Debug, Default)]
pub(super) struct Astray(Mutex<Vec<(String, u64)>>);

impl Astray {
    fn all(&self) -> MutexGuard<'_, Vec<(String, u64)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `steps` go out over `connection`.
    pub(super) fn sent(&self, steps: &[Step], connection: &Connection) {
        let entering = steps.iter().filter_map(Step::enters);
        let mut all = None;
        for id in entering {
            all.get_or_insert_with(|| self.all()).push((id.to_owned(), connection.number()));
        }
    }

    /// The server has done or refused `steps`.
    pub(super) fn answered(&self, steps: &[Step], connection: &Connection) {
        for id in steps.iter().filter_map(Step::enters) {
            let mut all = self.all();
            let this = |(who, over): &(String, u64)| who == id && *over == connection.number();
            if let Some(at) = all.iter().position(this) {
                all.swap_remove(at);
            }
        }
    }

    /// For how long the server has to keep `id` out when it is told over `connection` that the claim is over, as its
    /// scripts take it: what went out over the same connection arrives before that.
    pub(super) fn keep_out(&self, id: ClaimId, connection: &Connection) -> String {
        let id = id.to_string();
        let late = self.all().iter().any(|(who, over)| *who == id && *over != connection.number());
        if late { millis(KEEP_OUT) } else { "0".to_owned() }
    }
}
