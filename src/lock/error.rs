//! Errors of backends.

use std::fmt;

use super::LockName;
use super::reason::Reason;

/// A result whose error says what could not be done.
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

/// What may help after an [`Error`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Retry {
    /// Nothing, or nothing but time.
    Nothing,
    /// Another connection, perhaps to another server: this one is broken, or of no use. What was sent may have been done.
    OtherConnection,
    /// As that, and the server said itself that it only follows another one.
    OtherServer,
    /// The same once more: it was undone for the sake of something else.
    Again,
    /// The same at once over another connection, be it to the node that the server named.
    OtherNode,
    /// Making what the service keeps locks in.
    Making,
}

/// What was tried.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Operation {
    /// As a verb phrase: `join the queue`.
    pub verb: &'static str,
    /// On which backend: `file`.
    pub backend: &'static str,
    /// On which lock, if on one.
    pub lock: Option<LockName>,
}

/// A failure at a service.
///
/// A service says why; [`crate::backend::context`] adds during what (C12).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Error {
    /// What kind of failure.
    pub kind: ErrorKind,
    /// Why, without secrets, with what to do about it where there is something to do.
    pub reason: Reason,
    /// What may help.
    pub retry: Retry,
    /// The service's own number for it; 0 without one. Only the folder of that service knows what it means.
    pub code: i32,
    /// The claim that waits was refused and will never hold, which does not follow from the kind.
    pub is_final: bool,
    /// During what.
    pub operation: Option<Box<Operation>>,
}

impl Error {
    /// A failure of `kind` that nothing helps against, or only time.
    pub fn new(kind: ErrorKind, reason: impl Into<Reason>) -> Self {
        let reason = reason.into();
        Self { kind, reason, retry: Retry::Nothing, code: 0, is_final: false, operation: None }
    }

    /// The service could not be reached or did not answer, or cannot serve now; what was sent may have been done.
    pub fn unavailable(reason: impl Into<Reason>) -> Self {
        Self::new(ErrorKind::Unavailable, reason)
    }

    /// One after which another connection may help.
    pub fn spent(reason: impl Into<Reason>) -> Self {
        Self::unavailable(reason).helped_by(Retry::OtherConnection)
    }

    /// A reply that is not what was asked for.
    pub fn nonsense(what: impl fmt::Display) -> Self {
        let reason = format!("the reply makes no sense ({what})");
        Self::new(ErrorKind::Corrupt, reason).helped_by(Retry::OtherConnection)
    }

    /// The same, against which something else helps.
    #[must_use]
    pub fn helped_by(self, retry: Retry) -> Self {
        Self { retry, ..self }
    }

    /// The same, with the service's own number for it.
    #[must_use]
    pub fn coded(self, code: i32) -> Self {
        Self { code, ..self }
    }

    /// The same, with the server that said it.
    #[must_use]
    pub fn at(self, server: &impl fmt::Display) -> Self {
        Self { reason: self.reason.at(server), ..self }
    }

    /// The same during the operation `verb` at `backend` on `lock`, if on one; of one that is known during what, the same.
    #[must_use]
    pub fn during(self, backend: &'static str, verb: &'static str, lock: Option<&LockName>) -> Self {
        let operation =
            self.operation.unwrap_or_else(|| Box::new(Operation { verb, backend, lock: lock.cloned() }));
        Self { operation: Some(operation), ..self }
    }

    /// The backend, once it is known.
    pub fn backend(&self) -> &'static str {
        self.operation.as_ref().map_or("", |operation| operation.backend)
    }

    /// Whether trying again may help.
    pub fn is_transient(&self) -> bool {
        self.kind.is_transient()
    }

    /// Whether the connection is of no more use.
    pub fn is_spent(&self) -> bool {
        matches!(self.retry, Retry::OtherConnection | Retry::OtherServer)
    }

    /// Whether no answer came: the request may have been carried out, or may be carried out later.
    pub fn is_unanswered(&self) -> bool {
        self.retry == Retry::OtherConnection
    }
}

impl fmt::Display for Error {
    /// `cannot join the queue of deploy (file): reason`, or the reason alone; not sanitised.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(operation) = &self.operation {
            write!(f, "cannot {}", operation.verb)?;
            if let Some(lock) = &operation.lock {
                write!(f, " of {lock}")?;
            }
            write!(f, " ({}): ", operation.backend)?;
        }
        self.reason.fmt(f)
    }
}

impl std::error::Error for Error {}
