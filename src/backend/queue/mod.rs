//! Queues over any [`store::Store`]: who holds, who waits for whom, and who makes way is decided here alone.

pub mod store;
