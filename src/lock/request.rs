//! What is asked of a service.

use std::time::Duration;

use super::{ClaimId, Holder, LockName, Mode};

/// A claim under which another one is made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ancestor {
    /// The claim.
    pub claim: ClaimId,
    /// Its locks.
    pub names: Vec<LockName>,
}

/// One claim on one or several locks, taken together: all or none.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// The locks, without repetition, at least one.
    pub names: Vec<LockName>,
    /// The identity of the claim.
    pub id: ClaimId,
    /// The mode, the same for all names.
    pub mode: Mode,
    /// The wanted length of the lease; the one that the service grants counts.
    pub ttl: Duration,
    /// Who asks.
    pub holder: Holder,
    /// The claims under which the asking process runs; an end of these may wait for this claim's, so a wait
    /// of this claim for one of them is a deadlock.
    pub ancestors: Vec<Ancestor>,
    /// Whether this claim takes the place of older waiters that also said so, and a newer one that of this.
    pub supersede: bool,
}
