//! The failure of a request.

pub use crate::lock::Error as Fault;
pub use crate::lock::error::Retry;

/// What came out, or what went wrong.
pub type FaultResult<T> = crate::lock::Result<T>;
