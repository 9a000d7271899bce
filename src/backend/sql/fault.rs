//! What went wrong at the database, before it is known during what.

use std::fmt;

use crate::backend::cause::{self, Cause};
use crate::lock::{Error, ErrorKind, LockName};

/// A failure; becomes an [`Error`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Fault {
    pub(super) kind: ErrorKind,
    pub(super) reason: String,
    pub(super) remedy: Remedy,
}

/// What may help.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Remedy {
    /// Nothing, or nothing but time.
    Nothing,
    /// Another session, perhaps with another server.
    OtherSession,
    /// The same once more: the transaction was undone for the sake of another one.
    Again,
    /// Making the tables.
    Tables,
}

/// What came out, or what went wrong.
pub(super) type FaultResult<T> = Result<T, Fault>;

impl Fault {
    pub(super) fn new(kind: ErrorKind, reason: impl fmt::Display) -> Self {
        Self { kind, reason: reason.to_string(), remedy: Remedy::Nothing }
    }

    /// One after which another session may help.
    pub(super) fn spent(reason: impl fmt::Display) -> Self {
        Self { kind: ErrorKind::Unavailable, reason: reason.to_string(), remedy: Remedy::OtherSession }
    }

    /// What a look at the server found.
    pub(super) fn found((kind, reason): Cause) -> Self {
        Self { kind, ..Self::spent(reason) }
    }

    /// There is no connection.
    pub(super) fn unreached(error: &std::io::Error) -> Self {
        // Who it was is added by whoever knows.
        Self::spent(cause::explained(error))
    }

    /// The transaction was undone; the same may be tried at once.
    pub(super) fn again(reason: impl fmt::Display) -> Self {
        Self { kind: ErrorKind::Unavailable, reason: reason.to_string(), remedy: Remedy::Again }
    }

    /// The tables are not there.
    pub(super) fn no_tables(reason: impl fmt::Display) -> Self {
        Self { kind: ErrorKind::Denied, reason: reason.to_string(), remedy: Remedy::Tables }
    }

    /// No right to make or use the tables.
    pub(super) fn no_right(reason: impl fmt::Display) -> Self {
        Self::new(
            ErrorKind::Denied,
            cause::no_right(
                &reason.to_string(),
                "`dlock doctor --schema` prints the tables and the rights that are needed",
            ),
        )
    }

    /// A reply that is not what was asked for.
    pub(super) fn nonsense(what: impl fmt::Display) -> Self {
        let reason = format!("the reply makes no sense ({what})");
        Self { kind: ErrorKind::Corrupt, reason, remedy: Remedy::OtherSession }
    }

    /// The same, with who said it.
    pub(super) fn from(self, peer: &str) -> Self {
        Self { reason: format!("{peer}: {}", self.reason), ..self }
    }

    /// The error of `operation` on `lock`.
    pub(super) fn during(
        self,
        backend: &'static str,
        operation: &'static str,
        lock: Option<&LockName>,
    ) -> Error {
        let error = Error::new(self.kind, backend, operation, self.reason);
        match lock {
            Some(lock) => error.on(lock),
            None => error,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for Fault {}
