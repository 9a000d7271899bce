//! etcd behind its own grpc-proxy.

use std::thread;
use std::time::Duration;

use crate::etcd::env;
use crate::servers::etcd::Etcd;
use crate::site::looked;
use crate::support::TestEnv;
use crate::support::wait::let_pass;

/// Starts two runs, one behind the other. Each lasts longer than its lease.
fn assert_leases_are_kept(env: &TestEnv, ttl: &str, longer: Duration) {
    let options = ["-q", "--name", "x", "--ttl", ttl, "--grace", "0"];
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
    let etcd = Etcd::start();
    let proxy = etcd.grpc_proxy();
    let [env, other] = [(); 2].map(|()| env(format!("http://127.0.0.1:{}", proxy.port())));
    thread::scope(|scope| {
        scope.spawn(|| assert_leases_are_kept(&other, "9s", Duration::from_secs(10)));
        // The proxy answers a keep-alive after it has sent its own, a third of the lease later.
        assert_leases_are_kept(&env, "15s", Duration::from_secs(16));
    });
    let refused = env.finish(&mut env.run(["--name", "x", "--ttl", "4s", "--", "sh", "-c", "echo ran"]));
    assert_eq!(refused.failed(64, &["grpc-proxy", "5s"]).text(), "");
    let said = looked(&env);
    assert!(said.contains("grpc-proxy") && !said.contains("cluster of one"), "{said}");
}
