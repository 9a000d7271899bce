//! The operations that a service with compare-and-set must support.

use std::time::Duration;

use async_trait::async_trait;

use crate::backend::{Examination, ServiceClient};
use crate::lock::{ClaimId, LockName, Moment};
use crate::net::fault::FaultResult;

/// Identifies one write of an item, even after the item was removed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Version {
    /// The store's identifier of the write. No other write of any item has the same one, until the store restarts.
    pub write: String,
    /// The connection over which it was read. The identifier is comparable only within one connection.
    pub connection: u64,
}

/// The content of a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stored {
    /// Its bytes, possibly in another program's format.
    pub bytes: Vec<u8>,
    /// The write that produced it.
    pub version: Version,
}

/// An item of a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Which<'a> {
    /// The queue.
    Queue(&'a LockName),
    /// The note on why this claim is gone.
    Gone(&'a LockName, ClaimId),
    /// The last success.
    Success(&'a LockName),
}

/// A service that keeps items with compare-and-set.
///
/// Each call returns by its deadline. After an `Unavailable` fault a change may or may not have been made, and may
/// still be made later. A missing item differs from one that cannot be read.
#[async_trait]
pub trait Items: ServiceClient {
    /// Implements [`crate::backend::Backend::forget`].
    async fn forget(&self, name: &LockName, deadline: Moment) -> FaultResult<()> {
        let _ = (name, deadline);
        Ok(())
    }

    /// Implements [`crate::backend::Backend::examine`].
    async fn examine(&self, deadline: Moment) -> FaultResult<Examination>;

    /// Returns the largest size of an item, in bytes.
    fn room(&self) -> usize;

    /// Returns the key of an item.
    ///
    /// Errors: `Invalid` for a name that cannot be a key.
    fn key(&self, which: Which<'_>) -> FaultResult<Vec<u8>>;

    /// Reads an item.
    async fn read(&self, which: Which<'_>, deadline: Moment) -> FaultResult<Option<Stored>>;

    /// Overwrites an item other than a queue, and keeps it for `life`, or else for ever, unless the store drops it
    /// before.
    async fn write(
        &self,
        which: Which<'_>,
        bytes: &[u8],
        life: Option<Duration>,
        deadline: Moment,
    ) -> FaultResult<()>;

    /// Creates the queue's item from `empty`, to be kept for `life`, if it is absent; then reads it, and then draws a
    /// number for this lock, greater than any drawn before. `None` if the store has dropped the counter.
    async fn arrive(
        &self,
        name: &LockName,
        empty: &[u8],
        life: Duration,
        deadline: Moment,
    ) -> FaultResult<(Stored, Option<u64>)>;

    /// Returns the store's clock, in milliseconds. The value may be up to two seconds old.
    async fn time(&self, deadline: Moment) -> FaultResult<u64>;

    /// Draws another number, greater than `above`.
    async fn number(&self, name: &LockName, above: u64, deadline: Moment) -> FaultResult<u64>;

    /// Replaces the queue's item if it has this `version`, and keeps it for at least so long; `None` removes it. Returns
    /// whether it did. Also false if that is unknown, because the store now answers over another connection than that of
    /// the version: an earlier attempt may then have succeeded.
    async fn swap(
        &self,
        name: &LockName,
        version: &Version,
        new: Option<(Vec<u8>, Duration)>,
        deadline: Moment,
    ) -> FaultResult<bool>;

    /// Returns the items that may be queues of this store, at least those with claims, with their keys.
    async fn all(&self, deadline: Moment) -> FaultResult<Vec<(Vec<u8>, Stored)>>;
}
