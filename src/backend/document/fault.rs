//! What went wrong at a store, before it is known during what.

use std::fmt;

use crate::lock::{Error, ErrorKind, LockName};

/// A failure; becomes an [`Error`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// What kind of failure.
    pub kind: ErrorKind,
    /// Why, without secrets.
    pub reason: String,
}

/// What came out, or what went wrong.
pub type FaultResult<T> = Result<T, Fault>;

impl Fault {
    /// A failure of `kind`.
    pub fn new(kind: ErrorKind, reason: impl fmt::Display) -> Self {
        Self { kind, reason: reason.to_string() }
    }

    /// The store could not be reached or did not answer; what was sent may have been done.
    pub fn unavailable(reason: impl fmt::Display) -> Self {
        Self::new(ErrorKind::Unavailable, reason)
    }

    /// The error of `operation` on `lock`.
    pub fn during(self, backend: &'static str, operation: &'static str, lock: Option<&LockName>) -> Error {
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
