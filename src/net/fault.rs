//! What went wrong at a service, before it is known during what.

use std::fmt;

use crate::lock::reason::Reason;
use crate::lock::{self, Error, ErrorKind, LockName};

/// A failure; becomes an [`Error`] when it is known during what ([`During`]).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// What kind of failure.
    pub kind: ErrorKind,
    /// Why, without secrets.
    pub reason: Reason,
    /// What may help.
    pub retry: Retry,
}

/// What may help after a [`Fault`].
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
    /// Making what the service keeps locks in.
    Making,
}

/// What came out, or what went wrong.
pub type FaultResult<T> = Result<T, Fault>;

impl Fault {
    /// A failure of `kind` that nothing helps against, or only time.
    pub fn new(kind: ErrorKind, reason: impl Into<Reason>) -> Self {
        Self { kind, reason: reason.into(), retry: Retry::Nothing }
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

    /// The same, with who said it.
    #[must_use]
    pub fn at(self, server: &impl fmt::Display) -> Self {
        Self { reason: self.reason.at(server), ..self }
    }

    /// Whether the connection is of no more use.
    pub fn is_spent(&self) -> bool {
        matches!(self.retry, Retry::OtherConnection | Retry::OtherServer)
    }

    /// The error of `operation`, a verb phrase, at `backend` on `lock`, if on one (C12).
    pub fn during(self, backend: &'static str, operation: &'static str, lock: Option<&LockName>) -> Error {
        let unanswered = self.retry == Retry::OtherConnection;
        Error { unanswered, ..Error::new(self.kind, backend, operation, lock, self.reason) }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reason.fmt(f)
    }
}

impl std::error::Error for Fault {}

/// Results that know what went wrong, and not during what.
pub trait During<T> {
    /// As [`Fault::during`].
    fn during(
        self,
        backend: &'static str,
        operation: &'static str,
        lock: Option<&LockName>,
    ) -> lock::Result<T>;
}

impl<T, F: Into<Fault>> During<T> for Result<T, F> {
    fn during(
        self,
        backend: &'static str,
        operation: &'static str,
        lock: Option<&LockName>,
    ) -> lock::Result<T> {
        self.map_err(|fault| fault.into().during(backend, operation, lock))
    }
}
