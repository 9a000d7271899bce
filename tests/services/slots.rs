//! Slots of two locks, on services that report a mark of one claim to the next: etcd reports none, and a waiter on MySQL
//! sleeps until the one ahead leaves.

use crate::support::TestEnv;

/// The first waiter waits for another lock, too. It takes no slot yet and stays, so nothing else tells the one behind it.
#[test]
fn a_slot_is_taken_behind_a_waiter_for_two_locks() {
    let env = TestEnv::new();
    let on = |name: &'static str| ["--slots", "2", "--ttl", "10m", "-q", "--name", name];
    let [first, second] = ["a", "a"].map(|name| env.held(&on(name)));
    let [full, _also_full] = ["b", "b"].map(|name| env.held(&on(name)));
    let mut both = env.hold(&[&on("a")[..], &["--name", "b"]].concat());
    env.await_waiters("b", 1);
    let mut behind = env.hold(&on("a"));
    env.await_waiters("a", 2);
    first.release().silently(0);
    env.await_waiters("a", 1);
    assert!(!behind.has_started());
    second.release().silently(0);
    behind.await_start();
    full.release().silently(0);
    both.await_start();
    behind.release().silently(0);
    both.release().silently(0);
}
