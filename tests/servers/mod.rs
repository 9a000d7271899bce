//! Real servers for tests. Each listens on a free port of the loopback interface and keeps its data in a temporary
//! directory.
//!
//! A server is killed with the test process, however that ends, and its directory is removed. [`Kind`] describes a
//! service for tests; each is in the file of its servers.

#![allow(dead_code, unreachable_pub, unused_imports, reason = "each test crate uses a part of it")]

pub(crate) mod certificates;
pub(crate) mod etcd;
pub(crate) mod mariadb;
pub(crate) mod memcached;
pub(crate) mod peers;
pub(crate) mod postgres;
mod process;
pub(crate) mod proxy;
pub(crate) mod redis;
pub(crate) mod relay;
mod site;
pub(crate) mod zookeeper;
pub(crate) mod zookeeper_raw;

pub(crate) use process::{Server, free_port, shared_folder};
pub(crate) use site::{Kind, Need, Order, Site};

/// Every service that runs in servers.
pub(crate) static KINDS: [&Kind; 7] = [
    &etcd::KIND,
    &redis::KIND,
    &zookeeper::KIND,
    &redis::REDLOCK,
    &mariadb::KIND,
    &postgres::KIND,
    &memcached::KIND,
];
