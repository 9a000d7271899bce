//! Starters that make a holder stop and take its place.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::support::running::CROWD;
use crate::support::scripts::{Overlap, Tree};
use crate::support::wait::{let_pass, until_true, until_within};
use crate::support::{Running, TestEnv, quiet};

/// Logs when two commands run at once, and which one it is. Ends at SIGTERM or when the gate is opened.
const ALONE: &str = r#"trap 'rmdir "$0.on"; exit 143' TERM
mkdir "$0.on" || echo "$1" >>"$0.overlap"
echo "$1" >>"$0.order"
head -n 1 "$0.gate" >/dev/null & wait $!
rmdir "$0.on""#;

fn replacing(env: &TestEnv, n: usize) -> Running {
    let report = format!("report.{n}");
    let mut command =
        env.run(["-q", "--replace", "--name", "x", "--report", &report, "--", "sh", "-c", ALONE]);
    env.start(command.arg(env.path("one")).arg(n.to_string()))
}

fn outcome(env: &TestEnv, n: usize) -> String {
    let report: serde_json::Value =
        serde_json::from_str(&env.read(&format!("report.{n}"))).expect("a report");
    report["outcome"].as_str().expect("a text").to_owned()
}

fn started(env: &TestEnv) -> usize {
    env.read("one.order").lines().count()
}

#[test]
fn replaced_holder_ends_its_tree_before_the_newcomer_starts() {
    let env = TestEnv::new();
    let (tree, words) = Tree::words(&env, "tree");
    let options = ["--replace", "--name", "x", "--grace", "300ms", "--report", "old", "--"];
    let old = env.start(env.run(options).args(words));
    let members = tree.await_grown(&env);
    let (overlap, words) = Overlap::words(&env, &members);
    let new = env.start(env.run(["-q", "--replace", "--name", "x", "--label", "v2", "--"]).args(words));
    old.finish().failed(76, &["replaced under x by", "v2"]);
    new.finish().silently(0);
    overlap.assert_none(&env);
    let report: serde_json::Value = serde_json::from_str(&env.read("old")).expect("a report");
    assert_eq!((&report["outcome"], &report["exit_code"]), (&"replaced".into(), &76.into()));
    env.assert_free("x");
    env.await_no_process();
}

#[test]
fn irreplaceable_holder_is_awaited_and_older_waiters_leave() {
    let env = TestEnv::new();
    let holder = env.held(&["--supersede", "--name", "x"]);
    let superseded = env.start(&mut env.run(["--supersede", "--name", "x", "--", "touch", "ran"]));
    env.await_waiters("x", 1);
    let plain = env.hold(&["-q", "--name", "x"]);
    env.await_waiters("x", 2);
    let replaced = env.start(&mut env.run(["--replace", "--name", "x", "-q", "--", "touch", "ran"]));
    let ended = superseded.finish();
    let last = ended.err.lines().last().unwrap_or_default();
    let told = last.starts_with("dlock: ") && last.contains(&replaced.pid().to_string());
    assert!(ended.code() == Some(75) && told, "{:?}: {}", ended.status, ended.err);
    env.await_waiters("x", 2);
    let mut newest = env.hold(&["-q", "--replace", "--name", "x"]);
    assert_eq!(replaced.finish().code(), Some(75));
    env.await_waiters("x", 2);
    assert!(!newest.has_started() && !plain.has_started(), "the holder is not asked");
    holder.release().silently(0);
    plain.let_go();
    plain.running.finish().silently(0);
    newest.await_start();
    newest.release().silently(0);
    assert!(!env.exists("ran"));
}

/// The starters arrive at a fixed pace. One may arrive before the previous one has started its command.
#[test]
fn fifty_replacing_starters_at_a_pace_let_the_last_one_finish() {
    const STARTERS: usize = 50;
    const PACE: Duration = Duration::from_millis(200);
    let _load = quiet::loading();
    let env = TestEnv::new();
    let gate = env.gate("one.gate");
    let begun = Instant::now();
    let mut all = Vec::new();
    for n in 0..STARTERS {
        let_pass((PACE * u32::try_from(n).expect("few")).saturating_sub(begun.elapsed()));
        all.push(replacing(&env, n));
    }
    let last = all.pop().expect("fifty");
    for (n, one) in all.into_iter().enumerate() {
        let ended = one.finish_within(CROWD);
        let told = (ended.code(), outcome(&env, n));
        let in_turn = [(Some(76), "replaced".to_owned()), (Some(75), "superseded".to_owned())];
        assert!(in_turn.contains(&told), "{n} ended as {told:?}: {}", ended.err);
    }
    until_true("the start of the last one", || env.read("one.order").lines().last() == Some("49"));
    gate.open();
    assert_eq!(last.finish().code(), Some(0));
    assert_eq!(outcome(&env, STARTERS - 1), "ran");
    let order: Vec<usize> =
        env.read("one.order").lines().map(|line| line.parse().expect("a number")).collect();
    assert!(order.is_sorted(), "not in turn: {order:?}");
    eprintln!("{} of {STARTERS} started", order.len());
    assert!(!env.exists("one.overlap"), "two at once: {}", env.read("one.overlap"));
    env.assert_free("x");
    env.await_no_process();
}

#[test]
fn of_many_at_once_one_remains() {
    const STARTERS: usize = 20;
    let env = TestEnv::new();
    let gate = env.gate("one.gate");
    let mut all: Vec<_> = (0..STARTERS).map(|n| replacing(&env, n)).collect();
    let mut ended = vec![false; STARTERS];
    // If the order of arrival settles late, so does this.
    let left = until_within(
        CROWD,
        || format!("the end of all but one; {} said {}", env.status("x"), started(&env)),
        || {
            for (one, ended) in all.iter_mut().zip(&mut ended) {
                *ended = *ended || one.has_ended();
            }
            let left: Vec<usize> = (0..STARTERS).filter(|n| !ended[*n]).collect();
            assert!(!left.is_empty(), "no process remains");
            (left.len() == 1).then(|| left[0])
        },
    );
    gate.open();
    for (n, one) in all.into_iter().enumerate() {
        let one = one.finish_within(CROWD);
        match (outcome(&env, n).as_str(), one.code()) {
            ("ran", code) => assert_eq!((n, code), (left, Some(0))),
            // A starter that lost its place with its session on a busy machine cannot know the later starters. It polls
            // late.
            ("replaced", Some(76)) | ("superseded" | "busy", Some(75)) => {}
            (other, code) => panic!("{n} ended as {other} with {code:?}: {}", one.err),
        }
    }
    assert!(!env.exists("one.overlap"), "two at once: {}", env.read("one.overlap"));
    env.assert_free("x");
}

#[test]
fn suspended_waiter_exits_75() {
    for option in ["--supersede", "--replace"] {
        let env = TestEnv::new();
        let holder = env.held(&["--name", "x"]);
        let waiter =
            env.start(&mut env.run(["-v", option, "--name", "x", "--report", "r", "--", "touch", "ran"]));
        env.await_waiters("x", 1);
        waiter.signal(Signal::TSTP);
        waiter.finish().lost_its_place("x", "(suspended)");
        assert_eq!(env.waiters("x"), 0);
        assert!(env.read("r").contains(r#""outcome":"busy""#), "{}", env.read("r"));
        holder.release().silently(0);
        assert!(!env.exists("ran"));
        env.assert_free("x");
        env.await_no_process();
    }
}
