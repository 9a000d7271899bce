//! The operations that a service with compare-and-set must support.

use std::fmt::Debug;
use std::time::Duration;

use async_trait::async_trait;

use crate::backend::{Capabilities, Examination};
use crate::lock::{ClaimId, LockName, Moment};
use crate::net::fault::FaultResult;
use crate::net::rank::Rank;

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

/// The data for an arriving claim.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// The lock's item, created if it was absent.
    pub item: Stored,
    /// A number for this lock, drawn after the item was read: greater than any drawn before.
    pub number: u64,
}

/// A service that keeps items with compare-and-set.
///
/// Each call returns by its deadline. After an `Unavailable` fault a change may or may not have been made, and may
/// still be made later. A missing item differs from one that cannot be read.
#[async_trait]
pub trait Items: Debug + Send + Sync {
    /// Implements [`crate::backend::ServiceClient::capabilities`].
    fn capabilities(&self) -> Capabilities;

    /// Implements [`crate::backend::ServiceClient::identity`].
    fn identity(&self) -> String;

    /// Implements [`crate::backend::ServiceClient::connects_as`].
    fn connects_as(&self, rank: Rank) {
        let _ = rank;
    }

    /// Completes when there is no connection; never, if the store cannot tell.
    async fn cut(&self) {
        std::future::pending::<()>().await;
    }

    /// Implements [`crate::backend::ServiceClient::has_connected`].
    fn has_connected(&self) -> bool;

    /// Implements [`crate::backend::Backend::forget`].
    async fn forget(&self, name: &LockName, deadline: Moment) -> FaultResult<()> {
        let _ = (name, deadline);
        Ok(())
    }

    /// Implements [`crate::backend::Backend::examine`].
    async fn examine(&self, deadline: Moment) -> FaultResult<Examination>;

    /// Returns why a claim may have lost an item that no client removed, as a sentence without a full stop.
    fn why_forgotten(&self) -> &'static str;

    /// Returns the largest size of an item, in bytes.
    fn room(&self) -> usize;

    /// Returns the longest ttl for which items can be kept.
    fn longest_ttl(&self) -> Duration;

    /// Returns the key of the lock's item.
    ///
    /// Errors: `Invalid` for a name that cannot be a key.
    fn key(&self, name: &LockName) -> FaultResult<Vec<u8>>;

    /// Reads the lock's item.
    async fn read(&self, name: &LockName, deadline: Moment) -> FaultResult<Option<Stored>>;

    /// Creates the lock's item from `empty`, to be kept for `life`, if it is absent; then reads it, and then draws a
    /// number.
    async fn arrive(
        &self,
        name: &LockName,
        empty: &[u8],
        life: Duration,
        deadline: Moment,
    ) -> FaultResult<Arrival>;

    /// Returns the store's clock, in milliseconds. The value may be up to two seconds old.
    async fn time(&self, deadline: Moment) -> FaultResult<u64>;

    /// Draws another number, greater than `above`.
    async fn number(&self, name: &LockName, above: u64, deadline: Moment) -> FaultResult<u64>;

    /// Replaces the lock's item if it has this `version`, and keeps it for at least `life`. Returns whether it did. Also
    /// false if that is unknown, because the store now answers over another connection than that of the version: an
    /// earlier attempt may then have succeeded.
    async fn replace(
        &self,
        name: &LockName,
        version: &Version,
        bytes: &[u8],
        life: Duration,
        deadline: Moment,
    ) -> FaultResult<bool>;

    /// Removes the lock's item if it has this `version`; otherwise works like [`Items::replace`].
    async fn remove(&self, name: &LockName, version: &Version, deadline: Moment) -> FaultResult<bool>;

    /// Reads the note, a separate item, on why the claim `id` is gone from the lock.
    async fn read_note(&self, name: &LockName, id: ClaimId, deadline: Moment) -> FaultResult<Option<Stored>>;

    /// Overwrites that note and keeps it for `life`, unless the store drops it before.
    async fn write_note(
        &self,
        name: &LockName,
        id: ClaimId,
        bytes: &[u8],
        life: Duration,
        deadline: Moment,
    ) -> FaultResult<()>;

    /// Records the success of a run that acquired the lock `ago`.
    async fn record_success(&self, name: &LockName, ago: Duration, deadline: Moment) -> FaultResult<()>;

    /// Returns how long ago the last successful run acquired the lock, by the store's clock.
    async fn age_of_success(&self, name: &LockName, deadline: Moment) -> FaultResult<Option<Duration>>;

    /// Returns the items that may be locks of this store, at least those with claims, with their keys.
    async fn all(&self, deadline: Moment) -> FaultResult<Vec<(Vec<u8>, Stored)>>;
}
