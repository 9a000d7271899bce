//! Backends: services that keep queues of claims.
//!
//! **A claim is one entry in a queue.** It waits, then holds, then is gone. Giving up and releasing are the
//! same act; position, loss and eviction are changes of the entry. Whether an entry holds is derived from the
//! ordered live entries by [`crate::lock::queue::held`], never stored.
//!
//! # The contract
//! The suite in `tests/contract` runs every clause against every backend; test names carry the ids.
//!
//! - **C01** The live entries that hold always satisfy [`crate::lock::queue::held`]. Another claim id is
//!   another claim, also from the same process.
//! - **C02** Entries hold in order of arrival at the service; nobody overtakes, whatever the modes.
//! - **C03** A token is greater than that of every claim that had to end before it: across modes, restarts,
//!   reconnects and idle times.
//! - **C04** An entry whose client vanished is gone within its ttl and
//!   [`Capabilities::abandoned_bound`], waiting or holding.
//! - **C05** [`Backend::enter`] is idempotent by the claim's id. If it failed or was dropped,
//!   [`Backend::withdraw`] removes what it may have left.
//! - **C06** [`Claim::changed`] answers promptly first, loses nothing when dropped at any point, and may skip
//!   intermediate waiting states but never a hold, a request to leave or a loss.
//! - **C07** [`Claim::renew`] and a [`Grant`](crate::lock::Grant) come with the moment from which the ttl
//!   certainly counts, never later than the beginning of the call. A loss is final: an expired entry is never
//!   revived.
//! - **C08** [`Claim::leave`] is idempotent and may be retried; it is no error if the entry is gone. Of the runs that
//!   succeeded the last one is that which acquired last, by the service's clock, whichever ended last.
//! - **C09** [`Backend::evict`] and [`Backend::evict_foreign`] remove exactly the entry of that id, never "whoever
//!   holds now"; [`Backend::publish`] changes exactly that one, and only if it holds.
//! - **C10** [`Backend::inspect`] and [`Backend::list`] change nothing.
//! - **C11** Every call that takes a deadline returns by it, even if the service accepts and never answers.
//! - **C12** Errors carry kind, operation, backend and lock; only `Unavailable` and `Full` are
//!   transient.
//! - **C13** No wall clock of the client decides anything.
//! - **C14** Any valid name and any holder text come back byte for byte.
//! - **C15** Kinds do not mix: a claim with slots on a queue of another kind, or the reverse, is a `Mismatch`
//!   error and changes nothing.

pub mod capability;
pub mod claim_state;
pub mod context;
pub mod deadlock;
pub mod document;
#[cfg(feature = "etcd")]
pub mod etcd;
pub mod facts;
pub mod file;
pub mod foreign;
pub mod locator;
#[cfg(feature = "memcached")]
pub mod memcached;
pub mod mixing;
pub mod observe;
pub mod options;
pub mod record;
#[cfg(feature = "redis")]
pub mod redis;
pub mod service;
#[cfg(feature = "_sql")]
pub mod sql;
pub(crate) mod success;
pub mod trial;
#[cfg(feature = "zk")]
pub mod zookeeper;

use std::fmt::Debug;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

pub use crate::lock::examination::{Examination, Risk, Weight};
use crate::lock::{
    ClaimId, ClaimState, Error, ErrorKind, Holder, LockName, LockStatus, Moment, Request, Result,
};
use crate::net::rank::Rank;
pub use capability::{Capabilities, TokenStrength};
pub use options::Options;

/// How to remove somebody's entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Evict {
    /// Mark it: its owner ends its command, leaves and says who asked. The entry stays until then.
    Ask,
    /// Remove it now; if it holds, the next one may start while its command still runs. Where that cannot be, it is refused.
    Force,
}

/// A service that keeps queues of claims (C01, C02, C03, C04, C13, C14, C15).
#[async_trait]
pub trait Backend: Debug + Send + Sync {
    /// Fixed facts; never a request to the service.
    fn capabilities(&self) -> Capabilities;

    /// Which service this is, for telling whether two dlock processes mean the same one. Without secrets.
    fn identity(&self) -> String;

    /// Where it is, for people. Without secrets.
    fn place(&self) -> String {
        self.identity()
    }

    /// A remark on the place for readers of a status, in words that follow its name: it is seen by a part of this host alone, its
    /// files do not last, or it has not been made. Empty where there is none, as far as that is known without a request.
    fn remark(&self) -> String {
        String::new()
    }

    /// Begins to connect, as far as that takes no waiting and no runtime, so that the service has accepted by the time
    /// of the first request. Called once, before it, by who has other things to do until then. That it cannot connect
    /// is the first request's affair.
    fn preconnect(&self) {}

    /// Whether this client has been connected to the service, so that something may have been sent; as far as that is
    /// known without a request. True where nothing is connected to.
    fn has_connected(&self) -> bool {
        true
    }

    /// Takes note what this client asks for from now on: who keeps a hold connects before those who wait.
    fn connects_as(&self, rank: Rank) {
        let _ = rank;
    }

    /// Joins the queues of all names at once and returns, whether or not the locks are free.
    ///
    /// `deadline` bounds the whole call. A wait that closes a cycle of waits is found by [`deadlock::enter`]. Errors:
    /// `Unavailable`, `Denied`, `Invalid`, `Mismatch` (C15), `Unwritable`, `System`.
    /// Dropping the future, or an error, may leave the entry: [`Backend::withdraw`] removes it, whether it
    /// holds by then or not, and what is still in flight ends with its ttl (C05).
    async fn enter(&self, request: &Request, deadline: Moment) -> Result<Arc<dyn Claim>>;

    /// Reads holders and waiters in order; changes nothing (C10). A name never used is an empty queue. Entries show the ancestors
    /// and the related names of their requests, with which [`deadlock::enter`] goes on.
    async fn inspect(&self, name: &LockName, deadline: Moment) -> Result<LockStatus>;

    /// The queues with holders or waiters whose names start with `prefix`, sorted by name; changes nothing.
    async fn list(&self, prefix: &str, deadline: Moment) -> Result<Vec<LockStatus>>;

    /// Starts observing the queue of `name`.
    async fn observe(&self, name: &LockName) -> Result<Box<dyn Observer>>;

    /// Removes, or asks to leave, exactly the entry `id` in the queue of `name` (C09); `by` is who asks.
    ///
    /// Returns whether there was such an entry to act on. For a claim on several names the whole claim goes. A call whose
    /// first answer was lost asks again, and may then say that there is no entry since it has removed it itself. Errors:
    /// `Unavailable`, `Denied`, and `Unsupported` where a hold is to be removed that only its own process can end; then nothing is
    /// changed.
    async fn evict(
        &self,
        name: &LockName,
        id: ClaimId,
        how: Evict,
        by: &Holder,
        deadline: Moment,
    ) -> Result<bool>;

    /// Removes what an attempt to enter with `request` that failed or was dropped may have left, whether it holds by then or
    /// not, and keeps out what of it is still under way: [`Backend::evict`] by its own client, which knows all names.
    ///
    /// Where one request can do it, that goes out at once: whoever calls may be gone before an answer comes and another
    /// request could be sent. Errors: `Unavailable`, `Denied`; what was left ends with its ttl. What was sent when the
    /// future is dropped may still be done.
    async fn withdraw(&self, request: &Request, deadline: Moment) -> Result<()> {
        for name in &request.names {
            self.evict(name, request.id, Evict::Force, &request.holder, deadline).await?;
        }
        Ok(())
    }

    /// Removes, now, exactly the entry in the queue of `name` that another program's client made and
    /// [`Backend::inspect`] shows as `id`; whether it holds or waits. Its owner is told nothing.
    ///
    /// Returns whether it was still there. Errors: as of [`Backend::evict`].
    async fn evict_foreign(&self, name: &LockName, id: ClaimId, deadline: Moment) -> Result<bool>;

    /// Publishes `value` as the label of the entry `id` in the queue of `name` if that entry holds (`proclaim`); whether
    /// it does. That it holds is proved in the step that writes the value, or before it where a hold ends only with its
    /// entry and the step needs that entry.
    ///
    /// What others are shown changes, not the claim itself. Errors: `Unavailable`, `Denied`; it may have been written then.
    async fn publish(&self, name: &LockName, id: ClaimId, value: &str, deadline: Moment) -> Result<bool>;

    /// Whether a claim lives on for its ttl without the process that made it, so that [`Backend::renew`] renews it.
    fn is_detachable(&self) -> bool {
        false
    }

    /// Gives the claim `id`, which holds the lock `name` without a process, another ttl, as [`Claim::renew`] does; on all
    /// of its names.
    ///
    /// Returns whether it still holds. Errors: those of [`Claim::renew`], and `Unsupported` where claims are not
    /// [`Backend::is_detachable`].
    async fn renew(&self, name: &LockName, id: ClaimId, deadline: Moment) -> Result<bool> {
        let _ = (name, id, deadline);
        let reason = "it keeps no lease without a process";
        Err(Error::new(ErrorKind::Unsupported, reason))
    }

    /// Looks at the service itself, for `doctor`: what it is, how fast it answers, what can go wrong with it.
    /// Changes nothing.
    async fn examine(&self, deadline: Moment) -> Result<Examination>;

    /// Names such as `name` which together lie wherever this service keeps locks: one for each part that has locks of its own.
    async fn everywhere(&self, name: LockName, deadline: Moment) -> Result<Vec<LockName>> {
        let _ = deadline;
        Ok(vec![name])
    }

    /// Removes what is kept of a lock that no claim will ever ask for again, such as its last token.
    async fn forget(&self, name: &LockName, deadline: Moment) -> Result<()> {
        let _ = (name, deadline);
        Ok(())
    }

    /// How long ago the last successful run under `name` acquired the lock; `None` if none is known. The last is that which
    /// acquired last (C08); where the service's clock has gone back between two, it may be that with the greater time. One that
    /// is dated more than a minute later than now is not known.
    async fn last_success(&self, name: &LockName, deadline: Moment) -> Result<Option<Duration>>;
}

/// One entry in the queues of its request's names. All methods take `&self`: the keeper renews while the caller
/// waits.
#[async_trait]
pub trait Claim: Debug + Send + Sync {
    /// The time to live that the service granted; `None` if the kernel ends the claim with its processes.
    fn ttl(&self) -> Option<Duration>;

    /// With `None` the present state, promptly; else resolves when the state differs from `seen`.
    ///
    /// An error is not a state: call again with the same `seen`, unless it [is final](Error::is_final). Dropping the future anywhere loses nothing
    /// (C06).
    async fn changed(&self, seen: Option<&ClaimState>) -> Result<ClaimState>;

    /// Told once, when the command has run for a moment: what makes a long hold safer and would delay a short one may be
    /// set up now.
    fn settle(&self) {}

    /// Proves that the entry lives and gives it another ttl; returns the moment from which that counts (C07).
    ///
    /// Errors: `Unavailable`. An entry found gone is not an error here: [`Claim::changed`] says `Lost`, at
    /// once, and this returns the last good moment again. Dropping the future may still renew.
    async fn renew(&self, deadline: Moment) -> Result<Moment>;

    /// Leaves all queues: releases if it holds, withdraws if it waits (C08). `succeeded` records for
    /// `--once-per` that the run which acquired with this claim was a success, unless one that acquired later was.
    ///
    /// After an error or a drop it may be called again; if it never succeeds the entry ends with its ttl.
    async fn leave(&self, succeeded: bool, deadline: Moment) -> Result<()>;

    /// Descriptors that carry the hold in the kernel, if any. As long as any process has one of them open, the
    /// lock stays taken; an orderly [`Claim::leave`] releases it whoever has them.
    fn anchors(&self) -> Result<Vec<OwnedFd>> {
        Ok(Vec::new())
    }
}

/// A view of one queue.
#[async_trait]
pub trait Observer: Debug + Send {
    /// First the present queue, then each time the queue as it is after a change. Cancel-safe.
    async fn next(&mut self) -> Result<LockStatus>;
}
