//! Leases without a process: `acquire --detach`, `renew` and `release` each run in a process of their own.

use std::time::{Duration, Instant};

use crate::support::wait::{let_pass, until_true};
use crate::support::{Finished, TestEnv};

/// Acquires `x` with these options, without a process. The output has one variable on each line.
fn acquire(env: &TestEnv, ttl: &str, options: &[&str]) -> Finished {
    let words = ["--detach", "--name", "x", "--ttl", ttl, "--format", "env"];
    env.finish(env.verb("acquire", words).args(options))
}

/// Returns the printed value of `variable`.
fn value(printed: &str, variable: &str) -> String {
    let line = printed.lines().find_map(|line| line.strip_prefix(&format!("{variable}=")));
    line.unwrap_or_else(|| panic!("no {variable} in {printed}")).to_owned()
}

#[test]
fn a_lease_outlives_its_shell_for_one_ttl_from_its_last_renewal() {
    let env = TestEnv::new();
    let printed = acquire(&env, "7s", &[]).silently(0).text();
    env.assert_busy("x");
    let claim = value(&printed, "DLOCK_CLAIM");
    let renew = || {
        let mut command = env.verb("renew", std::iter::empty::<&str>());
        env.finish(command.env("DLOCK_CLAIM", &claim).env("DLOCK_NAME", "x"))
    };
    // So that the first TTL ends well before the second.
    let_pass(Duration::from_secs(2));
    let renewed = Instant::now();
    renew().silently(0);
    until_true("the end of the lease", || env.holders("x") == 0);
    let lasted = renewed.elapsed();
    assert!(lasted >= Duration::from_secs(7), "it ended {lasted:?} after the renewal");
    renew().failed(76, &[&claim]);
    env.assert_free("x");
    env.await_no_process();
}

#[test]
fn lease_is_released_by_its_claim_id_and_its_token_counts() {
    let env = TestEnv::new();
    // memcached cannot change several items in one step.
    let is_one = env.service().backend == "memcached";
    let (names, last): (&[&str], _) = if is_one { (&[], "x") } else { (&["--name", "y"], "y") };
    let printed = acquire(&env, "60s", names).silently(0).text();
    assert!(is_one || !printed.contains("DLOCK_NAMES"), "{printed}");
    let (claim, token) = (value(&printed, "DLOCK_CLAIM"), value(&printed, "DLOCK_TOKEN"));
    let release = |name: &str| env.finish(&mut env.verb("release", [&claim[..12], "--name", name]));
    release("z").failed(76, &[]);
    assert_eq!((env.holders("x"), env.holders(last)), (1, 1));
    release(last).silently(0);
    env.assert_free("x");
    env.assert_free(last);
    release(last).failed(76, &[]);
    let next = env.held(&["--name", "x"]);
    assert!(next.token() > token.parse().expect("digits"));
    next.release().silently(0);
    env.await_no_process();
}

#[test]
fn detached_lease_starts_with_full_ttl_after_a_wait() {
    let env = TestEnv::new();
    let holder = env.held(&["--name", "x"]);
    let words = ["--detach", "-q", "--name", "x", "--ttl", "9s"];
    let waiter = env.start(&mut env.verb("acquire", words));
    env.await_waiters("x", 1);
    // Too short for a renewal while it waits.
    let_pass(Duration::from_secs(2));
    let released = Instant::now();
    holder.release().silently(0);
    waiter.finish().silently(0);
    env.await_no_process();
    let left = env.status("x")["holders"][0]["ttl_ms"].as_u64().expect("a time to live");
    let left = Duration::from_millis(left);
    assert!(left <= Duration::from_secs(9), "{left:?}");
    // etcd shows whole seconds.
    assert!(left + released.elapsed() >= Duration::from_secs(8), "{left:?}, {:?} later", released.elapsed());
}

#[test]
fn broken_lease_is_removed_at_once_with_a_message() {
    let env = TestEnv::new();
    acquire(&env, "60s", &["--shared"]).silently(0);
    acquire(&env, "60s", &["--shared"]).silently(0);
    let broken = env.finish(&mut env.verb("break", ["x", "--all", "--yes"])).silently(0).text();
    assert_eq!(broken.matches("it was a detached lease").count(), 2, "{broken}");
    env.assert_free("x");
}
