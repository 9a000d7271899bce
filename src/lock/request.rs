//! A request to a service.

use std::time::Duration;

use super::{ClaimId, Holder, LockName, Mode};

/// A claim inside which another one is made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ancestor {
    /// The claim.
    pub claim: ClaimId,
    /// Its locks.
    pub names: Vec<LockName>,
}

/// One claim on one or several locks: all or none.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// The locks, without repetition, at least one.
    pub names: Vec<LockName>,
    /// The identity of the claim.
    pub id: ClaimId,
    /// The mode, the same for all names.
    pub mode: Mode,
    /// The wanted length of the lease; the length that the service grants counts.
    pub ttl: Duration,
    /// The process that makes the request.
    pub holder: Holder,
    /// The claims inside which that process runs. Their ends may wait for the end of this claim, so a wait of this
    /// claim for one of them is a deadlock.
    pub ancestors: Vec<Ancestor>,
    /// Whether this claim supersedes older waiters that also have this flag, and is itself superseded by newer ones.
    pub supersede: bool,
}
