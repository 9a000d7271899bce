//! The output of dlock, for people and programs.
//!
//! Every sentence is a variant of [`Message`]. [`Printer`] makes lines of messages, and [`writer`] is the one place that writes
//! them, to standard error. Data goes through renderers: [`status`] for people, [`json`] for programs, [`report`] and [`metrics`]
//! into files. Texts of other users pass [`sanitise`] first.

pub mod assignments;
pub mod doctor;
pub mod file;
pub mod json;
pub mod live;
pub mod message;
pub mod metrics;
mod ms;
pub mod party;
pub mod printer;
pub mod report;
pub mod sanitise;
mod sentence;
pub mod service;
pub mod status;
pub mod table;
pub mod writer;

pub use live::Live;
pub use message::{Level, Message};
pub use ms::Ms;
pub use party::Party;
pub use printer::{LogFormat, Printer, Verbosity};
pub use report::{Outcome, Report};
pub use sentence::agree;
pub use service::ServicePlace;
