//! Foreign clients and dlock in the same queues: flock(1) of util-linux on the same file, etcdctl, redis-py, pottery,
//! Curator, kazoo and pymemcache.

#![allow(clippy::print_stderr, reason = "a test that cannot run here says why")]

mod both;
mod breaking;
mod etcd;
mod flock;
mod memcached;
mod peer;
mod place;
mod redis;
mod redlock;
mod zookeeper;

#[path = "../servers/mod.rs"]
mod servers;
#[path = "../support/mod.rs"]
mod support;

/// The locks of a test are in its own directory.
fn service(root: &std::path::Path) -> support::Service {
    support::Service::file(root)
}

/// Prints that a client is missing. Fails if `DLOCK_TEST_REQUIRE` names the client.
fn skip(client: &str, reason: &str) {
    let required = std::env::var("DLOCK_TEST_REQUIRE").unwrap_or_default();
    assert!(required.split(',').all(|name| name.trim() != client), "{client}: {reason}");
    eprintln!("skipped: {client}: {reason}");
}
