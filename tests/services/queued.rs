//! The promises to a waiter that has a place in a queue.

use crate::site;
use crate::support::TestEnv;
use crate::support::wait::until_true;

#[test]
fn waiter_with_a_removed_entry_rejoins_at_the_end_and_warns() {
    let env = TestEnv::new();
    let holder = env.held(&["--name", "x"]);
    let script = "echo $0 >>order";
    let words = |name| ["--name", "x", "--ttl", "6s", "--", "sh", "-c", script, name];
    let removed = env.start(&mut env.run(words("removed")));
    env.await_waiters("x", 1);
    let later = env.start(env.run(["-q"]).args(words("later")));
    env.await_waiters("x", 2);
    let claim = env.status("x")["waiters"][0]["claim"].as_str().expect("a claim").to_owned();
    site::shared().lose(env.service(), "x", &claim);
    until_true("a waiter that is back", || removed.err_so_far().contains("at the end"));
    env.await_waiters("x", 2);
    holder.release().silently(0);
    assert_eq!((later.finish().code(), removed.finish().code()), (Some(0), Some(0)));
    assert_eq!(env.read("order"), "later\nremoved\n");
}

#[test]
fn superseding_waiter_exits_75_when_its_entry_is_gone() {
    let env = TestEnv::new();
    let holder = env.held(&["--name", "x"]);
    let waiter = env.start(&mut env.run(["--supersede", "--name", "x", "--ttl", "6s", "--", "touch", "ran"]));
    env.await_waiters("x", 1);
    let claim = env.status("x")["waiters"][0]["claim"].as_str().expect("a claim").to_owned();
    site::shared().lose(env.service(), "x", &claim);
    waiter.finish().lost_its_place("x", "");
    holder.release().silently(0);
    assert!(!env.exists("ran"));
    env.assert_free("x");
}
