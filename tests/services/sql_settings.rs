//! The parts of dlock that depend on a database's settings, with settings meant for other programs.

use std::time::Duration;

use serde_json::Value;

use crate::support::TestEnv;
use crate::support::running::Finished;
use crate::support::test_env::Holder;
use crate::support::wait::let_pass;

/// Returns the risks that `doctor` reports.
pub(super) fn risks(env: &TestEnv) -> Value {
    let told = env.finish(&mut env.verb("doctor", ["--json"])).silently(0);
    let told: Value = serde_json::from_slice(&told.out).expect("JSON from doctor");
    assert!(told["risks"].is_array(), "{told}");
    told["risks"].clone()
}

/// Checks all kinds of locks. It calls `waiting` while three claims wait and no renewal is due.
pub(super) fn assert_all_works(env: &TestEnv, waiting: impl Fn()) {
    let long = ["-q", "--name", "x", "--ttl", "10m"];
    let mut holder = env.held(&long);
    let mut waiters: Vec<Holder> = Vec::new();
    for n in 0..3 {
        waiters.push(env.hold(&long));
        env.await_waiters("x", n + 1);
    }
    waiting();
    for mut next in waiters {
        assert_eq!(env.finish(&mut env.run(["-n", "--name", "x", "--", "true"])).code(), Some(75));
        holder.release().silently(0);
        next.await_start();
        holder = next;
    }
    holder.release().silently(0);
    renewed_and_broken(env);
    slots_and_several_names(env);
    let once = || env.finish(&mut env.run(["--once-per", "1h", "--name", "o", "-c", "echo ran"]));
    let (first, second): (Finished, Finished) = (once(), once());
    assert_eq!(
        (first.text(), second.text()),
        ("ran\n".to_owned(), String::new()),
        "{} {}",
        first.err,
        second.err
    );
    env.assert_free("x");
}

fn renewed_and_broken(env: &TestEnv) {
    let holder = env.held(&["--name", "x", "--ttl", "6s"]);
    let mut waiter = env.hold(&["--name", "x", "--ttl", "6s"]);
    env.await_waiters("x", 1);
    // Past its lease, so it was renewed.
    let_pass(Duration::from_secs(7));
    assert!(!waiter.has_started());
    assert_eq!((env.holders("x"), env.waiters("x")), (1, 1));
    holder.release().silently(0);
    waiter.await_start();
    env.finish(&mut env.verb("break", ["x", "--all", "--yes"])).silently(0);
    let ended = waiter.running.finish();
    assert!(ended.code() == Some(76) && !ended.err.contains("cannot"), "{}", ended.err);
}

fn slots_and_several_names(env: &TestEnv) {
    let slots = ["-q", "--name", "s", "--slots", "2"];
    let holders = [env.held(&slots), env.held(&slots)];
    let mut waiter = env.hold(&slots);
    env.await_waiters("s", 1);
    assert_eq!(env.holders("s"), 2);
    let both = env.held(&["-q", "--name", "a", "--name", "b"]);
    let listed = env.finish(&mut env.verb("list", ["--json"])).silently(0).text();
    let listed: Value = serde_json::from_str(&listed).expect("JSON from list");
    let found = listed["locks"].as_array().expect("a list").iter();
    let found = found.map(|lock| {
        let count = |part: &str| lock[part].as_array().map_or(0, Vec::len);
        (lock["lock"].as_str().unwrap_or_default(), count("holders"), count("waiters"))
    });
    assert_eq!(found.collect::<Vec<_>>(), [("a", 1, 0), ("b", 1, 0), ("s", 2, 1)]);
    both.release().silently(0);
    for holder in holders {
        holder.release().silently(0);
    }
    waiter.await_start();
    waiter.release().silently(0);
}
