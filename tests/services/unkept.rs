//! Leases of nobody's process that the service itself lets end.

use std::time::Duration;

use super::detached::acquire;
use crate::support::TestEnv;
use crate::support::wait::let_pass;

#[test]
fn no_process_stays_behind() {
    let env = TestEnv::new();
    acquire(&env, "4s", &[]).silently(0);
    env.await_no_process();
    env.assert_busy("x");
}

#[test]
fn one_that_has_waited_lasts_for_a_whole_ttl() {
    let env = TestEnv::new();
    let holder = env.held(&["--name", "x"]);
    let words = ["--detach", "-q", "--name", "x", "--ttl", "9s"];
    let waiter = env.start(&mut env.verb("acquire", words));
    env.await_waiters("x", 1);
    // Not so long that it is renewed while it waits.
    let_pass(Duration::from_secs(2));
    holder.release().silently(0);
    waiter.finish().silently(0);
    env.await_no_process();
    let left = env.status("x")["holders"][0]["ttl_ms"].as_u64().expect("a time to live");
    assert!((7_500..=9_000).contains(&left), "{left}");
}

#[test]
fn a_broken_lease_is_removed_at_once_and_that_is_said() {
    let env = TestEnv::new();
    acquire(&env, "4s", &["--shared"]).silently(0);
    acquire(&env, "4s", &["--shared"]).silently(0);
    let broken = env.finish(&mut env.verb("break", ["x", "--all", "--yes"])).silently(0).text();
    assert_eq!(broken.matches("a lease without a process").count(), 2, "{broken}");
    env.assert_free("x");
}
