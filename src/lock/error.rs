//! Errors of backends.

use std::fmt;

use super::LockName;
use super::reason::Reason;

/// A result with an error that names the failed operation.
pub type Result<T> = std::result::Result<T, Error>;

/// The kind of a failure; each kind has one exit status.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorKind {
    /// The service could not be reached or did not answer in time. A retry may help.
    Unavailable,
    /// The service answers that it has no room for another client now. A retry may help.
    Full,
    /// The service refused the credentials or the access.
    Denied,
    /// The request cannot be expressed on this service.
    Invalid,
    /// The lock is in use by claims of a kind that does not mix with this one.
    Mismatch,
    /// This service does not support the operation.
    Unsupported,
    /// The wait would never end.
    Deadlock,
    /// A lock file or directory cannot be created or written.
    Unwritable,
    /// The system refuses a process, memory or a descriptor.
    System,
    /// The service's data or reply makes no sense.
    Corrupt,
    /// A defect of dlock.
    Internal,
}

impl ErrorKind {
    /// Returns whether a retry may help.
    pub fn is_transient(self) -> bool {
        matches!(self, Self::Unavailable | Self::Full)
    }
}

/// The remedy after an [`Error`] that dlock can apply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Retry {
    /// None, or only time.
    Nothing,
    /// Another connection, perhaps to another server: this one is broken or useless. The request may have been
    /// executed.
    OtherConnection,
    /// Like [`Retry::OtherConnection`], and the server reports that it only follows another one.
    OtherServer,
    /// The same request again, perhaps to the node that the service named: it undid the request in favour of another one,
    /// or made nothing of it.
    Again,
    /// Creating the storage in which the service keeps locks.
    Making,
}

/// The failed operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Operation {
    /// A verb phrase: `join the queue`.
    pub verb: &'static str,
    /// The backend: `file`.
    pub backend: &'static str,
    /// The lock, if it concerns one.
    pub lock: Option<LockName>,
}

/// A failure at a service.
///
/// The service supplies the reason; [`crate::backend::context`] adds the operation (C12).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Error {
    /// The kind of the failure.
    pub kind: ErrorKind,
    /// The reason, without secrets, with advice if there is any.
    pub reason: Reason,
    /// The remedy that dlock can apply.
    pub retry: Retry,
    /// The service's own code; 0 without one. Only the code of that service interprets it.
    pub code: i32,
    /// Whether the waiting claim was refused and will never hold, which does not follow from the kind.
    pub is_final: bool,
    /// The failed operation.
    pub operation: Option<Box<Operation>>,
}

impl Error {
    /// Creates a failure of `kind` without a remedy, or with time as the only one.
    pub fn new(kind: ErrorKind, reason: impl Into<Reason>) -> Self {
        let reason = reason.into();
        Self { kind, reason, retry: Retry::Nothing, code: 0, is_final: false, operation: None }
    }

    /// Creates the failure of a service that cannot be reached, does not answer, or cannot serve now. The request may
    /// have been executed.
    pub fn unavailable(reason: impl Into<Reason>) -> Self {
        Self::new(ErrorKind::Unavailable, reason)
    }

    /// Creates a failure after which another connection may help.
    pub fn spent(reason: impl Into<Reason>) -> Self {
        Self::unavailable(reason).helped_by(Retry::OtherConnection)
    }

    /// Creates the failure of an unexpected reply.
    pub fn nonsense(what: impl fmt::Display) -> Self {
        let reason = format!("the reply makes no sense ({what})");
        Self::new(ErrorKind::Corrupt, reason).helped_by(Retry::OtherConnection)
    }

    /// Replaces the remedy.
    #[must_use]
    pub fn helped_by(self, retry: Retry) -> Self {
        Self { retry, ..self }
    }

    /// Replaces the service's own code.
    #[must_use]
    pub fn coded(self, code: i32) -> Self {
        Self { code, ..self }
    }

    /// Adds the server to the reason.
    #[must_use]
    pub fn at(self, server: &impl fmt::Display) -> Self {
        Self { reason: self.reason.at(server), ..self }
    }

    /// Adds the operation `verb` at `backend` on `lock`, if it concerns one, unless the operation is known already.
    #[must_use]
    pub fn during(self, backend: &'static str, verb: &'static str, lock: Option<&LockName>) -> Self {
        let operation =
            self.operation.unwrap_or_else(|| Box::new(Operation { verb, backend, lock: lock.cloned() }));
        Self { operation: Some(operation), ..self }
    }

    /// Returns the backend, or an empty text before it is known.
    pub fn backend(&self) -> &'static str {
        self.operation.as_ref().map_or("", |operation| operation.backend)
    }

    /// Returns whether a retry may help.
    pub fn is_transient(&self) -> bool {
        self.kind.is_transient()
    }

    /// Returns whether the connection is useless.
    pub fn is_spent(&self) -> bool {
        matches!(self.retry, Retry::OtherConnection | Retry::OtherServer)
    }

    /// Returns whether no answer came: the request may have been executed, or may be executed later.
    pub fn is_unanswered(&self) -> bool {
        self.retry == Retry::OtherConnection
    }
}

impl fmt::Display for Error {
    /// Writes `cannot join the queue of deploy (file): reason`, or the reason alone; not sanitised.
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
