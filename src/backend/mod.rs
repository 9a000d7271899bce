//! Backends: services that keep queues of claims.
//!
//! **A claim is one entry in a queue.** It waits, then holds, then is gone. Withdrawing and releasing are the same act;
//! position, loss and eviction are changes of the entry. Whether an entry holds is derived from the ordered live
//! entries by [`crate::lock::queue::held`], never stored.
//!
//! # The contract The suite in `tests/contract` runs every clause against every backend; test names carry the ids.
//!
//! - **C01** The live entries that hold always satisfy [`crate::lock::queue::held`]. Another claim id is another claim,
//!   also from the same process.
//! - **C02** Entries hold in order of arrival at the service; no entry overtakes another, in any mode.
//! - **C03** A token is greater than that of every claim that had to end before it: across modes, restarts, reconnects
//!   and idle times.
//! - **C04** An entry with a vanished client is gone within its ttl and [`Capabilities::abandoned_bound`], waiting or
//!   holding.
//! - **C05** [`Backend::enter`] is idempotent by the claim's id. If it failed or was dropped, [`Backend::withdraw`]
//!   removes the entry that it may have left.
//! - **C06** [`Claim::changed`] answers promptly first, and loses nothing when dropped at any point. It may skip
//!   intermediate waiting states, but never a hold, a request to leave or a loss.
//! - **C07** [`Claim::renew`] and a [`Grant`](crate::lock::Grant) come with the moment from which the ttl certainly
//!   counts, never later than the beginning of the call. A loss is final: an expired entry is never revived.
//! - **C08** [`Claim::leave`] is idempotent and may be retried; it is no error if the entry is gone. The last
//!   successful run is the one that acquired last by the service's clock, whichever run ended last.
//! - **C09** [`Backend::evict`] and [`Backend::evict_foreign`] remove exactly the entry of that id, never "the present
//!   holder". [`Backend::publish`] changes exactly that entry, and only if it holds.
//! - **C10** [`Backend::inspect`] and [`Backend::list`] change nothing.
//! - **C11** Every call that takes a deadline returns by it, even if the service accepts and never answers.
//! - **C12** Errors carry kind, operation, backend and lock; only `Unavailable` and `Full` are transient.
//! - **C13** No wall clock of the client decides anything.
//! - **C14** Any valid name and any holder text come back byte for byte.
//! - **C15** Kinds do not mix: a claim with slots on a queue of another kind, or the reverse, is a `Mismatch` error and
//!   changes nothing.

pub mod claim_state;
pub mod context;
pub mod deadlock;
#[cfg(feature = "etcd")]
pub mod etcd;
pub mod facts;
pub mod file;
pub mod locator;
#[cfg(feature = "memcached")]
pub mod memcached;
pub mod observe;
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
use crate::net::credentials::{Secret, Tls};
use crate::net::rank::Rank;

/// The abilities and guarantees of a backend. Code and tests consult these, never the backend's name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Capabilities {
    /// The backend's name, as given to `--backend`.
    pub backend: &'static str,
    /// Whether claims wait in a queue: they hold in order of arrival (C02), are visible to other clients, and can be
    /// superseded. If not, each claim retries by itself until it holds.
    pub queue: bool,
    /// Whether claims end by a ttl on the server; if not, the kernel ends them with their processes.
    pub leased: bool,
    /// The number of renewals in one ttl.
    pub renewals_per_ttl: u32,
    /// Whether [`Backend::examine`] may find a warning that concerns users of `run`.
    pub look_while_running: bool,
    /// The longest time after its ttl for which an abandoned claim may remain (C04).
    pub abandoned_bound: Duration,
}

impl Capabilities {
    /// The facts of the backend `backend`, if it is as most are.
    pub const fn of(backend: &'static str) -> Self {
        Self {
            backend,
            queue: true,
            leased: true,
            renewals_per_ttl: 3,
            look_while_running: true,
            abandoned_bound: Duration::from_secs(1),
        }
    }
}

/// The naming scheme of ZooKeeper nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ZkLayout {
    /// The scheme of Curator.
    #[default]
    Curator,
    /// The scheme of kazoo.
    Kazoo,
}

/// The connection options as given, not yet parsed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// `--backend`.
    pub backend: Option<String>,
    /// `--endpoint`, as given: the backend splits comma lists, because it knows where commas are allowed.
    pub endpoints: Vec<String>,
    /// Where they come from, in words, if not from the command line: they then apply in any working directory.
    pub endpoints_in: Option<&'static str>,
    /// `--prefix`; an empty one differs from an absent one.
    pub prefix: Option<String>,
    /// `--user`.
    pub user: Option<String>,
    /// The password, from any source.
    pub password: Option<Secret>,
    /// Encryption.
    pub tls: Tls,
    /// `--zk-layout`.
    pub zk_layout: Option<ZkLayout>,
    /// `--max-ttl`.
    pub max_ttl: Option<Duration>,
    /// `--allow-network-fs`.
    pub allow_network_fs: bool,
}

/// How to remove another client's entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Evict {
    /// Marks the entry. Its owner then ends its command, leaves, and reports the client that asked. The entry remains
    /// until then.
    Ask,
    /// Removes the entry now. If it holds, its successor may start while its command still runs. Refused by services
    /// that cannot do this.
    Force,
}

/// The client of one service. Nothing here sends a request to it.
pub trait ServiceClient: Debug + Send + Sync {
    /// Returns fixed facts; never sends a request to the service.
    fn capabilities(&self) -> Capabilities;

    /// Returns a text, without secrets, that is equal for two dlock processes if they use the same service.
    fn identity(&self) -> String;

    /// Returns the service's place for display, without secrets.
    fn place(&self) -> String {
        self.identity()
    }

    /// Returns a remark on the place for readers of a status, as the continuation of its name. For example, only a part
    /// of this host sees the place, its files do not last, or it does not exist yet. Empty if no remark is
    /// known without a request.
    fn remark(&self) -> String {
        String::new()
    }

    /// Returns whether this client has been connected to the service, so that something may have been sent, without a
    /// request. True for a service without connections.
    fn has_connected(&self) -> bool {
        true
    }

    /// Sets the purpose of this client's connections from now on: holders connect before waiters.
    fn connects_as(&self, rank: Rank) {
        let _ = rank;
    }

    /// Returns whether a claim outlives its process for its ttl, so that [`Backend::renew`] can renew it.
    fn is_detachable(&self) -> bool {
        self.capabilities().leased
    }
}

/// A service that keeps queues of claims (C01, C02, C03, C04, C13, C14, C15).
#[async_trait]
pub trait Backend: Debug + Send + Sync {
    /// Returns the client of the service.
    fn client(&self) -> &dyn ServiceClient;

    /// Joins the queues of all names at once and returns, whether or not the locks are free.
    ///
    /// `deadline` bounds the whole call. A wait that closes a cycle of waits is found by [`deadlock::enter`].
    ///
    /// Errors: `Unavailable`, `Denied`, `Invalid`, `Mismatch` (C15), `Unwritable`, `System`. Dropping the future, or an
    /// error, may leave the entry: [`Backend::withdraw`] removes it, whether it holds by then or not. A request still
    /// in flight ends with its ttl (C05).
    async fn enter(&self, request: &Request, deadline: Moment) -> Result<Arc<dyn Claim>>;

    /// Reads holders and waiters in order; changes nothing (C10). A name never used is an empty queue. Entries show the
    /// ancestors and the related names of their requests, which [`deadlock::enter`] needs.
    async fn inspect(&self, name: &LockName, deadline: Moment) -> Result<LockStatus>;

    /// Reads the queues with holders or waiters and with names that start with `prefix`, sorted by name; changes
    /// nothing.
    async fn list(&self, prefix: &str, deadline: Moment) -> Result<Vec<LockStatus>>;

    /// Starts observing the queue of `name`.
    async fn observe(&self, name: &LockName) -> Result<Box<dyn Observer>>;

    /// Removes exactly the entry `id` in the queue of `name`, or asks it to leave (C09). `by` is the client that asks.
    ///
    /// Returns whether there was such an entry. A claim on several names is removed from all of them. If the first
    /// answer is lost, the request is sent again, and may then return false because the first one removed the entry.
    ///
    /// Errors: `Unavailable`, `Denied`, and `Unsupported` for a hold that only its own process can end; nothing is
    /// changed then.
    async fn evict(
        &self,
        name: &LockName,
        id: ClaimId,
        how: Evict,
        by: &Holder,
        deadline: Moment,
    ) -> Result<bool>;

    /// Removes the entry that a failed or dropped attempt to enter with `request` may have left, whether it holds by
    /// then or not. Also refuses the requests of that attempt that are still in flight. It is [`Backend::evict`] by the
    /// claim's own client, which knows all names.
    ///
    /// If one request suffices, it is sent at once, because the caller may exit before an answer arrives. Errors:
    /// `Unavailable`, `Denied`; the rest ends with its ttl. A request that was sent when the future is dropped may
    /// still be executed.
    async fn withdraw(&self, request: &Request, deadline: Moment) -> Result<()> {
        for name in &request.names {
            self.evict(name, request.id, Evict::Force, &request.holder, deadline).await?;
        }
        Ok(())
    }

    /// Removes, now, exactly the entry of another program's client in the queue of `name` that [`Backend::inspect`]
    /// shows as `id`, whether it holds or waits. Its owner is not notified.
    ///
    /// Returns whether it was still there. Errors: those of [`Backend::evict`].
    async fn evict_foreign(&self, name: &LockName, id: ClaimId, deadline: Moment) -> Result<bool>;

    /// Publishes `value` as the label of the entry `id` in the queue of `name` if that entry holds (`proclaim`).
    /// Returns whether it does. The step that writes the value also proves the hold. If a hold ends only with its entry
    /// and the step needs that entry, the proof may come before.
    ///
    /// It changes the label that others see, not the claim itself. Errors: `Unavailable`, `Denied`; the value may have
    /// been written then.
    async fn publish(&self, name: &LockName, id: ClaimId, value: &str, deadline: Moment) -> Result<bool>;

    /// Renews the claim `id`, which holds the lock `name` without a process, by another ttl on all of its names, as
    /// [`Claim::renew`] does.
    ///
    /// Returns whether it still holds. Errors: those of [`Claim::renew`], and `Unsupported` if claims are not
    /// [`ServiceClient::is_detachable`].
    async fn renew(&self, name: &LockName, id: ClaimId, deadline: Moment) -> Result<bool> {
        let _ = (name, id, deadline);
        let reason = "it keeps no lease without a process";
        Err(Error::new(ErrorKind::Unsupported, reason))
    }

    /// Examines the service itself, for `doctor`: its kind, its response time, and its risks. Changes nothing.
    async fn examine(&self, deadline: Moment) -> Result<Examination>;

    /// Returns names similar to `name` that together cover all parts of this service that keep locks of their own, one
    /// for each part.
    async fn everywhere(&self, name: LockName, deadline: Moment) -> Result<Vec<LockName>> {
        let _ = deadline;
        Ok(vec![name])
    }

    /// Removes all data of a lock that no claim will ever use again, such as its last token.
    async fn forget(&self, name: &LockName, deadline: Moment) -> Result<()> {
        let _ = (name, deadline);
        Ok(())
    }

    /// Returns how long ago the last successful run under `name` acquired the lock; `None` if none is known. The last
    /// one is the run that acquired last (C08). If the service's clock was set back between two, it may be the one with
    /// the greater time. A time more than a minute in the future counts as unknown.
    async fn last_success(&self, name: &LockName, deadline: Moment) -> Result<Option<Duration>>;
}

/// One entry in the queues of its request's names. All methods take `&self`: the keeper renews while the caller waits.
#[async_trait]
pub trait Claim: Debug + Send + Sync {
    /// Returns the time to live that the service granted; `None` if the kernel ends the claim with its processes.
    fn ttl(&self) -> Option<Duration>;

    /// With `None` returns the present state, promptly; else resolves when the state differs from `seen`.
    ///
    /// An error is not a state: call again with the same `seen`, unless it [is final](Error::is_final). Dropping the
    /// future anywhere loses nothing (C06).
    async fn changed(&self, seen: Option<&ClaimState>) -> Result<ClaimState>;

    /// Proves that the entry lives and gives it another ttl; returns the moment from which that counts (C07).
    ///
    /// Errors: `Unavailable`. An entry found gone is not an error here: [`Claim::changed`] returns `Lost`, at once, and
    /// this returns the last good moment again. Dropping the future may still renew.
    async fn renew(&self, deadline: Moment) -> Result<Moment>;

    /// Leaves all queues: releases if it holds, withdraws if it waits (C08). `succeeded` records for `--once-per` that
    /// the run which acquired with this claim was a success, unless a run that acquired later succeeded.
    ///
    /// After an error or a drop it may be called again; if it never succeeds the entry ends with its ttl.
    async fn leave(&self, succeeded: bool, deadline: Moment) -> Result<()>;

    /// Returns descriptors that carry the hold in the kernel, if any. The lock remains taken while any process has one
    /// of them open. An orderly [`Claim::leave`] releases it in any case.
    fn anchors(&self) -> Result<Vec<OwnedFd>> {
        Ok(Vec::new())
    }
}

/// A view of one queue.
#[async_trait]
pub trait Observer: Debug + Send {
    /// Returns first the present queue, then the queue after each change. Cancel-safe.
    async fn next(&mut self) -> Result<LockStatus>;
}

#[cfg(test)]
impl Options {
    /// Returns options that contain only endpoints.
    pub(crate) fn at(endpoints: &[&str]) -> Self {
        Self { endpoints: endpoints.iter().map(|&endpoint| endpoint.to_owned()).collect(), ..Self::default() }
    }
}

/// Checks that parsing failed with one line that contains `part` and not the password `secret`.
#[cfg(test)]
#[track_caller]
pub(crate) fn assert_refused<T: std::fmt::Debug>(parsed: std::result::Result<T, String>, part: &str) {
    let why = parsed.expect_err(part);
    assert!(why.contains(part) && !why.contains('\n') && !why.contains("secret"), "{why}");
}
