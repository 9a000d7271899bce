//! Errors of backends.

use std::fmt;

use super::LockName;
use super::reason::Reason;

/// A result whose error says who could not do what.
pub type Result<T> = std::result::Result<T, Error>;

/// What kind of failure it is; each kind has one exit code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorKind {
    /// The service could not be reached or did not answer in time. A retry may help.
    Unavailable,
    /// The service has answered that it has no room for another client now. A retry may help.
    Full,
    /// The service refused the credentials or the access.
    Denied,
    /// The request cannot be expressed on this service.
    Invalid,
    /// The lock is in use by claims of a kind that does not mix with this one.
    Mismatch,
    /// This service cannot do that.
    Unsupported,
    /// Waiting would never end.
    Deadlock,
    /// A lock file or directory cannot be made or written.
    Unwritable,
    /// The system refused a process, memory or a descriptor.
    System,
    /// The service's data or reply makes no sense.
    Corrupt,
    /// A defect of dlock.
    Internal,
}

impl ErrorKind {
    /// Whether trying again may help.
    pub fn is_transient(self) -> bool {
        matches!(self, Self::Unavailable | Self::Full)
    }
}

/// A failure of one operation on one backend.
#[derive(Clone, Debug)]
pub struct Error {
    /// What kind of failure.
    pub kind: ErrorKind,
    /// What was tried, as a verb phrase: `join the queue`.
    pub operation: &'static str,
    /// Which backend: `file`.
    pub backend: &'static str,
    /// On which lock, if on one.
    pub lock: Option<LockName>,
    /// Why, with what to do about it where there is something to do.
    pub reason: Reason,
    /// Nobody answered: what was asked for may have been done, or may be done later.
    pub unanswered: bool,
    /// The claim that waits was refused and will never hold, which does not follow from the kind.
    pub is_final: bool,
}

impl Error {
    /// An error of `operation` at `backend` on `lock`, if it was on one.
    pub fn new(
        kind: ErrorKind,
        backend: &'static str,
        operation: &'static str,
        lock: Option<&LockName>,
        reason: impl Into<Reason>,
    ) -> Self {
        let (lock, reason) = (lock.cloned(), reason.into());
        Self { kind, operation, backend, lock, reason, unanswered: false, is_final: false }
    }

    /// Whether trying again may help.
    pub fn is_transient(&self) -> bool {
        self.kind.is_transient()
    }
}

impl fmt::Display for Error {
    /// `cannot join the queue of deploy (file): reason`; not sanitised.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {}", self.operation)?;
        if let Some(lock) = &self.lock {
            write!(f, " of {lock}")?;
        }
        write!(f, " ({}): {}", self.backend, self.reason)
    }
}

impl std::error::Error for Error {}
