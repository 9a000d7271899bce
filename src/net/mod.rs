//! Connections to services: addresses, encryption, credentials, and the causes of failures.

pub mod address;
pub mod cause;
#[cfg(feature = "_tls")]
pub mod connector;
pub mod credentials;
pub mod fault;
pub mod link;
pub mod passwords;
#[cfg(feature = "_pipeline")]
pub mod pipeline;
pub mod rank;
pub mod request;
pub mod socket;
pub mod stage;
pub mod tcp;
#[cfg(feature = "_tls")]
pub mod tls;
