//! Connections to services: addresses, encryption, credentials, and the causes of failures.

pub mod address;
pub mod cause;
pub mod credentials;
pub mod link;
pub mod passwords;
#[cfg(feature = "_pipeline")]
pub mod pipeline;
pub mod rank;
pub mod request;
pub mod socket;
#[cfg(feature = "_tls")]
pub mod tls;

/// The failure of a request.
pub mod fault {
    pub use crate::lock::Error as Fault;
    pub use crate::lock::error::Retry;

    /// The result of a request.
    pub type FaultResult<T> = crate::lock::Result<T>;
}
