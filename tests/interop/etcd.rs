//! etcdctl and dlock in one line: each keeps the other out, and both hold in order of arrival.

use std::process::Command;

use rustix::process::Signal;

use crate::both;
use crate::breaking::Shared;
use crate::place::{self, key};
use crate::servers::etcd;
use crate::support::gate::Gate;
use crate::support::running::finish_all;
use crate::support::wait::until_true;
use crate::support::{Bed, Running, process};

fn bed() -> Option<Bed> {
    place::bed(&etcd::KIND)
}

fn etcdctl(bed: &Bed, words: &[&str]) -> Command {
    let mut command = bed.command("etcdctl");
    command.env("ETCDCTL_API", "3").args(["--endpoints", &bed.service().endpoint]).args(words);
    command
}

/// An `etcdctl lock` whose command says its revision and waits at the gate.
fn lock(bed: &Bed) -> (Running, Gate) {
    let gate = bed.gate("ctl.gate");
    let script = "echo $ETCD_LOCK_REV >ctl.up; read _ <ctl.gate";
    (bed.start(&mut etcdctl(bed, &["lock", "--ttl", "5", &key(bed), "--", "sh", "-c", script])), gate)
}

fn revision(bed: &Bed) -> u64 {
    bed.await_line("ctl.up").parse().expect("a number")
}

#[test]
fn each_waits_for_the_other_and_tokens_rise() {
    let Some(bed) = bed() else { return };
    let holder = bed.held(&["--name", "x"]);
    let first = holder.token();
    let (running, gate) = lock(&bed);
    bed.await_waiters("x", 1);
    assert_eq!(bed.status("x")["waiters"][0]["foreign"], true);
    assert!(!bed.exists("ctl.up"), "etcdctl waits");
    holder.release().silently(0);
    let second = revision(&bed);
    assert!(second > first, "{second} after {first}");
    both::assert_foreign(&bed);
    let mut next = bed.hold(&["-q", "--name", "x"]);
    bed.await_waiters("x", 1);
    gate.open();
    running.finish();
    next.await_start();
    assert!(next.token() > second, "{} after {second}", next.token());
    next.release().silently(0);
}

#[test]
fn shared_and_slot_holds_keep_etcdctl_out() {
    let Some(bed) = bed() else { return };
    for mode in [&["-s"] as &[&str], &["--slots", "2"]] {
        let words: Vec<&str> = [&["--name", "x"], mode].concat();
        let (one, two) = (bed.held(&words), bed.held(&words));
        let (running, gate) = lock(&bed);
        bed.await_waiters("x", 1);
        one.release().silently(0);
        until_true("one holder is left", || bed.holders("x") == 1);
        assert!(!bed.exists("ctl.up"), "etcdctl waits for both");
        two.release().silently(0);
        revision(&bed);
        gate.open();
        running.finish();
        for file in ["ctl.up", "ctl.gate"] {
            std::fs::remove_file(bed.path(file)).expect("there");
        }
    }
}

#[test]
fn all_of_one_line_hold_in_order_of_arrival() {
    let Some(bed) = bed() else { return };
    let holder = bed.held(&["--name", "x"]);
    let mut running = Vec::new();
    for n in 0..6 {
        let script = format!("echo {n} >>order");
        running.push(if n % 2 == 0 {
            bed.start(&mut etcdctl(&bed, &["lock", &key(&bed), "--", "sh", "-c", &script]))
        } else {
            bed.start(&mut bed.run(["-q", "--name", "x", "--", "sh", "-c", &script]))
        });
        bed.await_waiters("x", n + 1);
    }
    holder.release().silently(0);
    finish_all(running);
    assert_eq!(bed.read("order").split_whitespace().collect::<String>(), "012345");
}

#[test]
fn candidates_of_an_election_stand_in_the_same_line() {
    let Some(bed) = bed() else { return };
    let campaign = bed.start(&mut etcdctl(&bed, &["elect", &key(&bed), "somebody"]));
    until_true("somebody leads", || bed.holders("x") == 1);
    let mut next = bed.hold(&["-q", "--name", "x", "--label", "10.0.0.1:80"]);
    bed.await_waiters("x", 1);
    campaign.signal(Signal::INT);
    next.await_start();
    campaign.finish();
    let listener = bed.start(&mut etcdctl(&bed, &["elect", "-l", &key(&bed)]));
    until_true("etcdctl shows the label as the leader's value", || bed_output(&bed, "10.0.0.1:80"));
    listener.signal(Signal::INT);
    listener.finish();
    next.release().silently(0);
}

/// A dlock that campaigns with the value `one`, and whose command proclaims `first` to `last`, says so and waits.
fn elect(bed: &Bed, last: u32) -> (Running, Gate) {
    let gate = bed.gate("elect.gate");
    let script = r#"for n in $(seq "$0"); do "$dlock" proclaim --endpoint "$locks" "v$n" || exit 1; done
        echo up >elect.up; read _ <elect.gate"#;
    let mut command = bed.verb("elect", ["-q", "--name", "x", "--value", "one", "--", "bash", "-c", script]);
    (bed.start(command.arg(last.to_string())), gate)
}

#[test]
fn leaders_of_both_programs_are_seen_with_their_values() {
    let Some(bed) = bed() else { return };
    let follower = bed.start(&mut bed.verb("leader", ["x", "--follow"]));
    let campaign = bed.start(&mut etcdctl(&bed, &["elect", &key(&bed), "somebody"]));
    until_true("somebody leads", || follower.out_so_far() == "somebody\n");
    let shown = bed.finish(&mut bed.verb("leader", ["x", "--json"])).silently(0);
    let shown: serde_json::Value = serde_json::from_slice(&shown.out).expect("JSON");
    assert_eq!((&shown["value"], &shown["foreign"]), (&"somebody".into(), &true.into()));
    let (leader, gate) = elect(&bed, 1);
    bed.await_waiters("x", 1);
    let next = bed.start(&mut etcdctl(&bed, &["elect", &key(&bed), "else"]));
    bed.await_waiters("x", 2);
    campaign.signal(Signal::INT);
    campaign.finish();
    bed.await_line("elect.up");
    until_true("all values", || follower.out_so_far() == "somebody\none\nv1\n");
    let listener = bed.start(&mut etcdctl(&bed, &["elect", "-l", &key(&bed)]));
    until_true("etcdctl shows what was proclaimed", || bed_output(&bed, "v1"));
    gate.open();
    leader.finish().silently(0);
    until_true("the next leader", || follower.out_so_far().ends_with("v1\nelse\n"));
    for program in [next, listener, follower] {
        program.signal(Signal::INT);
        program.finish();
    }
}

#[test]
fn what_is_proclaimed_faster_than_it_is_read_is_seen_all_the_same() {
    const LAST: u32 = 30;
    let Some(bed) = bed() else { return };
    let followers = [&[] as &[&str], &["--json"]].map(|options| {
        let mut command = bed.verb("leader", ["x", "--follow"]);
        bed.start(command.args(options))
    });
    until_true("somebody who looks", || followers[1].out_so_far() == "null\n");
    let holder = bed.held(&["--name", "x", "--label", "zero"]);
    until_true("both look", || followers.iter().all(|follower| follower.out_so_far().contains("zero")));
    for follower in &followers {
        process::signal(follower.pid(), Signal::STOP);
        until_true("a stopped follower", || process::is_stopped(follower.pid()));
    }
    holder.release().silently(0);
    let (leader, gate) = elect(&bed, LAST);
    bed.await_line("elect.up");
    gate.open();
    leader.finish().silently(0);
    for follower in &followers {
        process::signal(follower.pid(), Signal::CONT);
    }
    let values: Vec<String> = (1..=LAST).map(|n| format!("v{n}\n")).collect();
    let values = values.concat();
    until_true("every value, in order", || followers[0].out_so_far() == format!("zero\none\n{values}"));
    until_true("the end", || followers[1].out_so_far().ends_with("null\n"));
    // Nobody, zero, nobody, one and the values, nobody.
    assert_eq!(followers[1].out_so_far().lines().count(), 5 + LAST as usize, "{}", followers[1].out_so_far());
    for follower in followers {
        follower.signal(Signal::INT);
        follower.finish();
    }
}

/// Whether some program of this bed has written `line`.
fn bed_output(bed: &Bed, line: &str) -> bool {
    let files = std::fs::read_dir(bed.root()).expect("readable").filter_map(Result::ok);
    let mut texts = files.filter(|f| f.path().extension().is_some_and(|e| e == "out"));
    texts.any(|f| std::fs::read_to_string(f.path()).unwrap_or_default().lines().any(|l| l == line))
}

#[test]
fn a_hold_of_etcdctl_is_ended_by_force() {
    let Some(bed) = bed() else { return };
    let mut running = Vec::new();
    let verb = |verb: &str, options: &[&str]| bed.verb(verb, options);
    let key_of = format!("key {}/", key(&bed));
    Shared { bed: &bed, name: "x", verb: &verb, key: &key_of }.every_hold_is_ended(|| {
        // A removed file is another gate.
        for file in ["ctl.up", "ctl.gate"] {
            let _ = std::fs::remove_file(bed.path(file));
        }
        running.push(lock(&bed));
        revision(&bed);
    });
    let mut command = etcdctl(&bed, &["elect", &key(&bed), "somebody"]);
    let campaign = bed.start(&mut command);
    until_true("somebody leads", || bed.holders("x") == 1);
    bed.finish(&mut bed.verb("break", ["x", "--yes", "--force"])).silently(0);
    bed.assert_free("x");
    campaign.signal(Signal::INT);
    campaign.finish();
}

#[test]
fn a_foreign_waiter_is_ended_by_force_and_its_holder_is_not() {
    let Some(bed) = bed() else { return };
    let holder = bed.held(&["--name", "x"]);
    let (_running, _gate) = lock(&bed);
    bed.await_waiters("x", 1);
    let claim = bed.status("x")["waiters"][0]["claim"].as_str().expect("a claim").to_owned();
    bed.finish(&mut bed.verb("break", ["x", "--yes", "--force", "--claim", &claim])).silently(0);
    // What becomes of it is its own affair: etcdctl 3.4 goes on without its key.
    assert_eq!((bed.holders("x"), bed.waiters("x")), (1, 0));
    holder.release().silently(0);
}
