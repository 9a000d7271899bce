//! Queues over any [`store::Store`]. Which claim holds, which entries it waits for, and which it supersedes is decided
//! here alone.
//!
//! Each claim has one task, which reads, decides (`decide`) and commits. A claim that leaves grants nothing: it removes
//! its entry, and each claim that waits for that entry looks for itself.

mod backend;
mod claim;
mod decide;
pub mod document;
mod enter;
mod observe;
pub mod store;
mod supersede;

pub use backend::Queues;
