//! etcdctl and dlock in one queue: each excludes the other, and both hold in order of arrival.

use std::process::Command;

use rustix::process::Signal;

use crate::both;
use crate::breaking::Shared;
use crate::place::{self, key};
use crate::servers::etcd;
use crate::support::gate::Gate;
use crate::support::running::finish_all;
use crate::support::wait::until_true;
use crate::support::{Running, TestEnv};

fn env() -> Option<TestEnv> {
    place::env(&etcd::KIND)
}

fn etcdctl(env: &TestEnv, words: &[&str]) -> Command {
    let mut command = env.command("etcdctl");
    command.env("ETCDCTL_API", "3").args(["--endpoints", &env.service().endpoint]).args(words);
    command
}

/// Starts an `etcdctl lock` whose command prints its revision and waits at the gate.
fn lock(env: &TestEnv) -> (Running, Gate) {
    let gate = env.gate("ctl.gate");
    let script = "echo $ETCD_LOCK_REV >ctl.up; read _ <ctl.gate";
    (env.start(&mut etcdctl(env, &["lock", "--ttl", "5", &key(env), "--", "sh", "-c", script])), gate)
}

fn revision(env: &TestEnv) -> u64 {
    env.await_line("ctl.up").parse().expect("a number")
}

#[test]
fn each_waits_for_the_other_and_tokens_rise() {
    let Some(env) = env() else { return };
    let holder = env.held(&["--name", "x"]);
    let first = holder.token();
    let (running, gate) = lock(&env);
    env.await_waiters("x", 1);
    assert_eq!(env.status("x")["waiters"][0]["foreign"], true);
    assert!(!env.exists("ctl.up"), "etcdctl waits");
    holder.release().silently(0);
    let second = revision(&env);
    assert!(second > first, "{second} after {first}");
    both::assert_foreign(&env);
    let mut next = env.hold(&["-q", "--name", "x"]);
    env.await_waiters("x", 1);
    gate.open();
    running.finish();
    next.await_start();
    assert!(next.token() > second, "{} after {second}", next.token());
    next.release().silently(0);
}

#[test]
fn shared_and_slot_holds_keep_etcdctl_out() {
    let Some(env) = env() else { return };
    for mode in [&["-s"] as &[&str], &["--slots", "2"]] {
        let words: Vec<&str> = [&["--name", "x"], mode].concat();
        let (one, two) = (env.held(&words), env.held(&words));
        let (running, gate) = lock(&env);
        env.await_waiters("x", 1);
        one.release().silently(0);
        until_true("one holder is left", || env.holders("x") == 1);
        assert!(!env.exists("ctl.up"), "etcdctl waits for both");
        two.release().silently(0);
        revision(&env);
        gate.open();
        running.finish();
        for file in ["ctl.up", "ctl.gate"] {
            std::fs::remove_file(env.path(file)).expect("there");
        }
    }
}

#[test]
fn all_of_one_queue_hold_in_order_of_arrival() {
    let Some(env) = env() else { return };
    let holder = env.held(&["--name", "x"]);
    let mut running = Vec::new();
    for n in 0..6 {
        let script = format!("echo {n} >>order");
        running.push(if n % 2 == 0 {
            env.start(&mut etcdctl(&env, &["lock", &key(&env), "--", "sh", "-c", &script]))
        } else {
            env.start(&mut env.run(["-q", "--name", "x", "--", "sh", "-c", &script]))
        });
        env.await_waiters("x", n + 1);
    }
    holder.release().silently(0);
    finish_all(running);
    assert_eq!(env.read("order").split_whitespace().collect::<String>(), "012345");
}

/// Starts a dlock that campaigns with the value `one`. Its command proclaims `v1`, reports that and waits.
fn elect(env: &TestEnv) -> (Running, Gate) {
    let gate = env.gate("elect.gate");
    let script =
        r#""$dlock" proclaim --endpoint "$locks" v1 || exit 1; echo up >elect.up; read _ <elect.gate"#;
    let mut command = env.verb("elect", ["-q", "--name", "x", "--value", "one", "--", "bash", "-c", script]);
    (env.start(&mut command), gate)
}

#[test]
fn leaders_of_both_programs_are_seen_with_their_values() {
    let Some(env) = env() else { return };
    let follower = env.start(&mut env.verb("leader", ["x", "--follow"]));
    let campaign = env.start(&mut etcdctl(&env, &["elect", &key(&env), "somebody"]));
    until_true("a leader", || follower.out_so_far() == "somebody\n");
    let shown = env.finish(&mut env.verb("leader", ["x", "--json"])).silently(0);
    let shown: serde_json::Value = serde_json::from_slice(&shown.out).expect("JSON");
    assert_eq!((&shown["value"], &shown["foreign"]), (&"somebody".into(), &true.into()));
    let (leader, gate) = elect(&env);
    env.await_waiters("x", 1);
    let next = env.start(&mut etcdctl(&env, &["elect", &key(&env), "else"]));
    env.await_waiters("x", 2);
    campaign.signal(Signal::INT);
    campaign.finish();
    env.await_line("elect.up");
    // Of changes in quick succession only the last is certain to appear.
    let shown = || follower.out_so_far();
    until_true("the last value", || shown().starts_with("somebody\n") && shown().ends_with("\nv1\n"));
    let listener = env.start(&mut etcdctl(&env, &["elect", "-l", &key(&env)]));
    until_true("etcdctl shows what was proclaimed", || env_output(&env, "v1"));
    gate.open();
    leader.finish().silently(0);
    until_true("the next leader", || follower.out_so_far().ends_with("v1\nelse\n"));
    for program in [next, listener, follower] {
        program.signal(Signal::INT);
        program.finish();
    }
}

/// Returns whether a program of this environment has written `line`.
fn env_output(env: &TestEnv, line: &str) -> bool {
    let files = std::fs::read_dir(env.root()).expect("readable").filter_map(Result::ok);
    let mut texts = files.filter(|f| f.path().extension().is_some_and(|e| e == "out"));
    texts.any(|f| std::fs::read_to_string(f.path()).unwrap_or_default().lines().any(|l| l == line))
}

#[test]
fn a_hold_of_etcdctl_is_ended_by_force() {
    let Some(env) = env() else { return };
    let mut running = Vec::new();
    Shared { env: &env, name: "x", key: &format!("key {}/", key(&env)) }.every_hold_is_ended(|_| {
        // A removed file is another gate.
        for file in ["ctl.up", "ctl.gate"] {
            let _ = std::fs::remove_file(env.path(file));
        }
        running.push(lock(&env));
        revision(&env);
    });
    let mut command = etcdctl(&env, &["elect", &key(&env), "somebody"]);
    let campaign = env.start(&mut command);
    until_true("a leader", || env.holders("x") == 1);
    env.finish(&mut env.verb("break", ["x", "--yes", "--force"])).silently(0);
    env.assert_free("x");
    campaign.signal(Signal::INT);
    campaign.finish();
}
