//! The client of a store.

use std::sync::Arc;

use super::Store;
use crate::clock::Clock;

/// The queues that a store keeps, and the clock of its client.
#[derive(Clone, Debug)]
pub struct Queues {
    pub(super) store: Arc<dyn Store>,
    pub(super) clock: Clock,
}

impl Queues {
    /// Creates the client of `store`.
    pub fn new(store: Arc<dyn Store>, clock: Clock) -> Self {
        Self { store, clock }
    }
}
