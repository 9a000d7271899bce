//! What a store must be able to do.

use std::fmt::Debug;
use std::time::Duration;

use async_trait::async_trait;

use crate::backend::{Capabilities, Examination};
use crate::lock::{ClaimId, LockName, Moment};
use crate::net::fault::FaultResult;
use crate::net::rank::Rank;

/// Names one write of an item, also after the item was removed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Version {
    /// What the store calls the write. No other write of any item has the same, until the store is restarted.
    pub write: String,
    /// Over which connection it was read: over the same one it means the same.
    pub connection: u64,
}

/// What is kept under a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Item {
    /// Its bytes; of another program's item whatever that wrote.
    pub bytes: Vec<u8>,
    /// Which write it is from.
    pub version: Version,
}

/// What an attempt to replace or remove an item came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Replaced {
    /// Whether the item still had the version, so that it was done. Not, too, if that cannot be told any more, nor whether an
    /// attempt before was: the version is not of the connection over which the store answers.
    pub done: bool,
    /// The item as it is after that; another one may have changed it already.
    pub item: Option<Item>,
}

/// What an arriving claim learns.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// The lock's item, which was made if there was none.
    pub item: Item,
    /// A number for this lock, drawn after the item was read: greater than any drawn before.
    pub number: u64,
}

/// A store of items that can be compared and set.
///
/// Each call returns by its deadline. An `Unavailable` fault of one that changes something does not say whether it was done,
/// nor that it will not be done later. An item that is missing can be told from one that cannot be read.
#[async_trait]
pub trait Store: Debug + Send + Sync {
    /// The backend's name.
    fn backend(&self) -> &'static str;

    /// As [`crate::backend::Backend::capabilities`].
    fn capabilities(&self) -> Capabilities;

    /// As [`crate::backend::Backend::identity`].
    fn identity(&self) -> String;

    /// As [`crate::backend::Backend::connects_as`].
    fn connects_as(&self, rank: Rank) {
        let _ = rank;
    }

    /// Completes when there is no connection; never, where nobody tells.
    async fn cut(&self) {
        std::future::pending::<()>().await;
    }

    /// As [`crate::backend::Backend::has_connected`].
    fn has_connected(&self) -> bool;

    /// As [`crate::backend::Backend::forget`].
    async fn forget(&self, name: &LockName, deadline: Moment) -> FaultResult<()> {
        let _ = (name, deadline);
        Ok(())
    }

    /// As [`crate::backend::Backend::examine`].
    async fn examine(&self, deadline: Moment) -> FaultResult<Examination>;

    /// Why a claim may have lost an item that nobody removed, as a sentence without a full stop.
    fn why_forgotten(&self) -> &'static str;

    /// How many bytes an item may have.
    fn room(&self) -> usize;

    /// The longest ttl for which items can be kept.
    fn longest_ttl(&self) -> Duration;

    /// The key of the lock's item.
    ///
    /// Errors: `Invalid` for a name of which no key can be made.
    fn key(&self, name: &LockName) -> FaultResult<Vec<u8>>;

    /// What its clients call the lock's item, for a sentence: `key x`.
    fn called(&self, name: &LockName) -> String;

    /// Reads the lock's item.
    async fn read(&self, name: &LockName, deadline: Moment) -> FaultResult<Option<Item>>;

    /// Makes the lock's item out of `empty`, to be kept for `life`, unless there is one; then reads it, and then draws a number.
    async fn arrive(
        &self,
        name: &LockName,
        empty: &[u8],
        life: Duration,
        deadline: Moment,
    ) -> FaultResult<Arrival>;

    /// The store's clock, in milliseconds: it may be up to two seconds behind what it was when asked.
    async fn time(&self, deadline: Moment) -> FaultResult<u64>;

    /// Draws another number, greater than `above`.
    async fn number(&self, name: &LockName, above: u64, deadline: Moment) -> FaultResult<u64>;

    /// Replaces the lock's item if it has this `version`; it is kept for `life` at least.
    async fn replace(
        &self,
        name: &LockName,
        version: &Version,
        bytes: &[u8],
        life: Duration,
        deadline: Moment,
    ) -> FaultResult<Replaced>;

    /// Removes the lock's item if it has this `version`.
    async fn remove(&self, name: &LockName, version: &Version, deadline: Moment) -> FaultResult<Replaced>;

    /// Reads the note on why the claim `id` is gone from the lock, an item of its own.
    async fn read_note(&self, name: &LockName, id: ClaimId, deadline: Moment) -> FaultResult<Option<Item>>;

    /// Writes that note, whatever was there; it is kept for `life`, as far as the store keeps anything.
    async fn write_note(
        &self,
        name: &LockName,
        id: ClaimId,
        bytes: &[u8],
        life: Duration,
        deadline: Moment,
    ) -> FaultResult<()>;

    /// Notes that a run succeeded which acquired the lock so long ago.
    async fn record_success(&self, name: &LockName, ago: Duration, deadline: Moment) -> FaultResult<()>;

    /// How long ago the last run that succeeded acquired the lock, by the store's clock.
    async fn age_of_success(&self, name: &LockName, deadline: Moment) -> FaultResult<Option<Duration>>;

    /// The items of all locks that this store may keep, at least those with claims, with their keys.
    async fn all(&self, deadline: Moment) -> FaultResult<Vec<(Vec<u8>, Item)>>;
}
