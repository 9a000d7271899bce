//! Locks in memcached: the queue of a lock as one item, changed by compare-and-set ([`crate::queue::document`]).
//!
//! The item has the plain key of the lock. So clients that `add` a key to lock and `delete` it to unlock are excluded
//! while there are claims, and dlock waits for such clients. The item is removed with the last claim.
//!
//! This is an implementation of the text protocol, which every version since 1.5 has.

mod client;
mod config;
mod examine;
mod fault;
mod keys;
mod store;
mod wire;

use std::sync::Arc;

use crate::backend::Backend;
use crate::backend::service::{self as descriptor, Address};
use crate::clock::Clock;
use crate::queue::Queues;
use crate::queue::document::DocumentStore;
use client::Client;
pub use config::MemcachedConfig;
use fault::NAME;
use store::MemcachedStore;

/// One memcached.
pub static SERVICE: descriptor::Service = descriptor::Service {
    name: NAME,
    schemes: &["memcached://", "memcacheds://"],
    has_login: true,
    options: &[],
    parse: |options| Ok(Box::new(MemcachedConfig::parse(options)?)),
    manual: include_str!("../../../man/dlock-memcached.7"),
};

impl Address for MemcachedConfig {
    fn service(&self) -> &'static descriptor::Service {
        &SERVICE
    }

    fn open(&self) -> Arc<dyn Backend> {
        Arc::new(with_clock(self.clone(), Clock::Boot))
    }

    fn place(&self) -> String {
        self.identity()
    }
}

/// Creates a client of the memcached in `config`, which connects with the first request. Deadlines are of `clock`.
pub fn with_clock(config: MemcachedConfig, clock: Clock) -> Queues {
    let items = Arc::new(MemcachedStore::new(Client::new(config, clock)));
    Queues::new(Arc::new(DocumentStore::new(items, clock)), clock)
}
