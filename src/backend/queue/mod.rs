//! Queues over any [`store::Store`]: who holds, who waits for whom, and who makes way is decided here alone.
//!
//! Each claim has one task, which reads, decides ([`decide`]) and commits. A claim that leaves grants nothing: it removes
//! its entry, and each claim that waits for that entry looks for itself.

mod backend;
mod claim;
mod decide;
mod observe;
pub mod store;
#[cfg(test)]
mod testing;

pub use backend::Queues;
