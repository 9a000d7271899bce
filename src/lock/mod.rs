//! The domain: names, claims, the grant rule and the arithmetic of leases.
//!
//! Everything here is pure. No module does I/O, reads a clock or uses a runtime, so every rule can be tested as a table
//! or a property.

pub mod claim;
pub mod claim_id;
pub mod deadlock;
pub mod duration;
pub mod error;
pub mod examination;
pub mod holder;
pub mod mode;
pub mod moment;
pub mod name;
pub mod queue;
pub mod reason;
pub mod request;
pub mod status;
pub mod token;
pub mod validity;

pub use claim::{ClaimState, Grant, Granted, LossReason};
pub use claim_id::ClaimId;
pub use error::{Error, ErrorKind, Result};
pub use examination::{Examination, Risk, Weight};
pub use holder::{Holder, Verb};
pub use mode::Mode;
pub use moment::Moment;
pub use name::LockName;
pub use reason::Reason;
pub use request::{Ancestor, Request};
pub use status::{Entry, LockStatus};
pub use token::FencingToken;
