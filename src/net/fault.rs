//! The failure of a request.

pub use crate::lock::Error as Fault;
pub use crate::lock::error::Retry;

/// The result of a request.
pub type FaultResult<T> = crate::lock::Result<T>;
