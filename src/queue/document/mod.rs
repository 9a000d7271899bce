//! The queue of a lock as one document, for services with only compare-and-set: read, create if absent, replace if
//! unchanged, remove if unchanged ([`Items`]). [`DocumentStore`] makes a store of the engine of them.
//!
//! Each claim is an entry of the document (`queue::Document`), in order of arrival, with a counter that its owner
//! increments to renew it. A change is one replacement of the document that was read, so a late request is refused
//! because the document has changed since. An entry is only ever added to an existing document: an empty one is created
//! first. So a request that creates an item cannot revive a claim that has ended.
//!
//! Server clocks decide no lease: every client takes an entry for dead once its counter has not changed for its ttl and
//! `watch::MARGIN` on the client's clock, as the leader election of Kubernetes' client-go does. The store cannot wake
//! a waiter, so claims poll (`pace`).

mod change;
mod items;
mod pace;
mod queue;
mod store;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod watch;

pub use change::DocumentStore;
pub use items::{Items, Stored, Version, Which};
