//! Locks in Redis: a string key that any client understands, and a fair queue for it.
//!
//! The lock itself is the key that redis-py, redsync and similar clients use. It always names the first claim in the
//! queue: by its id, with the rest of the ttl as its life, or by a marker for claims that can share the lock.
//!
//! In the same cluster slot, the queue is a sorted set in order of arrival, with one hash for each claim. Every step is
//! one script on the server's clock, which removes the dead and decides nothing. The server's tracking of keys wakes
//! waiters and holders. It is only a hint: the state is always read, never inferred.

mod client;
mod config;
mod connection;
mod dial;
mod examine;
mod fault;
mod keys;
mod names;
pub mod redlock;
mod rows;
mod script;
mod store;
mod watch;

use std::sync::Arc;

use crate::backend::Backend;
use crate::backend::service::{self as descriptor, Address};
use crate::clock::Clock;
use crate::net::address::HostPort;
use crate::queue::Queues;
use client::Client;
pub use config::{RedisConfig, Topology};
use fault::NAME;
use redlock::{RedlockBackend, RedlockConfig};
use store::RedisStore;

/// One Redis, or with Redlock several independent ones.
pub static SERVICE: descriptor::Service = descriptor::Service {
    name: NAME,
    schemes: &["redis://", "rediss://", "unix:", "redis+sentinel://", "redis+cluster://"],
    has_login: true,
    options: &["max-ttl"],
    parse: |options| match RedlockConfig::parse(options)? {
        Some(several) => Ok(Box::new(several)),
        None => Ok(Box::new(RedisConfig::parse(options)?)),
    },
    manual: include_str!("../../../man/dlock-redis.7"),
};

impl Address for RedisConfig {
    fn service(&self) -> &'static descriptor::Service {
        &SERVICE
    }

    fn open(&self) -> Arc<dyn Backend> {
        Arc::new(open(self.clone()))
    }

    fn place(&self) -> String {
        self.identity()
    }

    fn each(&self) -> Vec<Box<dyn Address>> {
        let hosts: &[HostPort] = if self.fails_over() { &self.hosts } else { &[] };
        hosts.iter().map(|host| Box::new(self.at(host.clone())) as Box<_>).collect()
    }

    /// Without `--max-ttl`, which applies only to Redlock.
    fn options(&self) -> &'static [&'static str] {
        &[]
    }
}

impl Address for RedlockConfig {
    fn service(&self) -> &'static descriptor::Service {
        &SERVICE
    }

    fn open(&self) -> Arc<dyn Backend> {
        Arc::new(RedlockBackend::open(self.clone()))
    }

    fn each(&self) -> Vec<Box<dyn Address>> {
        self.nodes.iter().map(|node| Box::new(node.clone()) as Box<_>).collect()
    }

    /// A node need not have every lock.
    fn alternatives(&self) -> Vec<Box<dyn Address>> {
        Vec::new()
    }

    fn place(&self) -> String {
        self.identity()
    }
}

/// Creates a client of one Redis, found directly, through sentinels, or as a cluster. It connects with the first call.
pub fn open(config: RedisConfig) -> Queues {
    with_clock(config, Clock::Boot)
}

/// Creates a client with a clock that may differ from the server's; otherwise works like [`open`].
pub fn with_clock(config: RedisConfig, clock: Clock) -> Queues {
    Queues::new(Arc::new(RedisStore::new(Client::new(config, clock))), clock)
}
