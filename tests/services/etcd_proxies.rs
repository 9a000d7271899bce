//! etcd behind its own grpc-proxy.

use std::time::Duration;

use crate::etcd::env;
use crate::servers::Server;
use crate::servers::etcd::Etcd;
use crate::site::looked;
use crate::support::wait::{let_pass, until_true};
use crate::support::{TestEnv, process};

/// Starts a server, its proxy with these additional arguments, and an environment that uses the proxy.
fn proxied(more: &[&str]) -> (Etcd, Server, TestEnv) {
    let etcd = Etcd::start();
    let proxy = etcd.grpc_proxy(more);
    let env = env(format!("http://127.0.0.1:{}", proxy.port()));
    (etcd, proxy, env)
}

/// Starts two runs, one behind the other. Each lasts longer than its lease.
fn assert_leases_are_kept(env: &TestEnv, ttl: &str, longer: Duration) {
    let options = ["-q", "--name", "x", "--ttl", ttl];
    let holder = env.held(&options);
    let mut waiter = env.hold(&options);
    env.await_waiters("x", 1);
    let_pass(longer);
    assert!(!waiter.has_started());
    assert_eq!((env.holders("x"), env.waiters("x")), (1, 1));
    holder.release().silently(0);
    waiter.await_start();
    let_pass(longer);
    waiter.release().silently(0);
    env.assert_free("x");
}

#[test]
fn behind_the_grpc_proxy_leases_are_kept_and_doctor_warns() {
    let (_etcd, _proxy, env) = proxied(&[]);
    assert_leases_are_kept(&env, "6s", Duration::from_secs(8));
    // The proxy answers a keep-alive after it has sent its own, a third of the lease later.
    assert_leases_are_kept(&env, "12s", Duration::from_secs(14));
    let refused = env.finish(&mut env.run(["--name", "x", "--ttl", "4s", "--", "sh", "-c", "echo ran"]));
    assert_eq!(refused.failed(64, &["grpc-proxy", "5s"]).text(), "");
    let said = looked(&env);
    assert!(said.contains("grpc-proxy") && !said.contains("cluster of one"), "{said}");
}

#[test]
fn behind_the_grpc_proxy_a_killed_holder_is_gone_with_its_lease() {
    let (_etcd, _proxy, env) = proxied(&[]);
    let holder = env.held(&["--name", "x", "--ttl", "5s"]);
    let_pass(Duration::from_secs(2));
    process::kill_at_once(&[holder.running.pid(), holder.running.keeper()]);
    holder.running.finish();
    until_true("the lease is over", || env.holders("x") == 0);
}

#[test]
fn grpc_proxy_advertising_the_servers_is_recognised() {
    let (_etcd, _proxy, env) = proxied(&["--advertise-client-url="]);
    assert_leases_are_kept(&env, "6s", Duration::from_secs(8));
    let said = looked(&env);
    assert!(said.contains("grpc-proxy"), "{said}");
}
