//! Leases of nobody's process that a process of dlock has to keep: where only the end of a process, or of its session, ends a
//! hold.

use std::fs;

use rustix::process::Signal;

use super::acquire::{pair, script};
use super::detached::{acquire, value};
use crate::support::wait::until_true;
use crate::support::{TestEnv, process};

#[test]
fn nobody_waits_for_what_keeps_it() {
    let env = TestEnv::new();
    // A pipe ends when nobody has it any more.
    let text =
        "printed=$(dlock acquire --detach --name x --ttl 1h --format env 2>&1) || exit; echo \"$printed\"";
    let printed = env.finish(&mut script(&env, text)).silently(0).text();
    let (front, keeper) = pair(&env);
    assert_eq!(env.processes().len(), 2);
    for pid in [front.pid, keeper.pid] {
        let link = |what: &str| fs::read_link(format!("/proc/{pid}/{what}")).expect("a link");
        assert_eq!(link("cwd").to_str(), Some("/"), "{pid}");
        for number in 0..=2 {
            assert_eq!(link(&format!("fd/{number}")).to_str(), Some("/dev/null"), "{number} of {pid}");
        }
    }
    let lease = env.status("x")["holders"][0]["ttl_ms"].as_u64().expect("a time to live");
    assert!((3_000_000..=3_600_000).contains(&lease), "{lease}");
    env.finish(&mut env.verb("release", [&value(&printed, "DLOCK_CLAIM"), "--name", "x"])).silently(0);
    env.assert_free("x");
    env.await_no_process();
}

#[test]
fn the_end_of_what_keeps_it_is_the_end_of_the_lease() {
    for (victim, signal) in
        [("front", Signal::KILL), ("front", Signal::TERM), ("keeper", Signal::KILL), ("keeper", Signal::STOP)]
    {
        let env = TestEnv::new();
        // What ends a stopped keeper waits for as long as a renewal may take.
        let ttl = if signal == Signal::STOP { "4s" } else { "1h" };
        acquire(&env, ttl, &[]).silently(0);
        let (front, keeper) = pair(&env);
        process::signal(if victim == "front" { front.pid } else { keeper.pid }, signal);
        until_true(&format!("the end after {signal:?} to the {victim}"), || env.holders("x") == 0);
        // Nobody has taken it anew.
        env.await_no_process();
        env.assert_free("x");
    }
}

#[test]
fn one_that_is_broken_is_asked_and_leaves() {
    let env = TestEnv::new();
    acquire(&env, "1h", &["--shared"]).silently(0);
    acquire(&env, "1h", &["--shared"]).silently(0);
    let broken = env.finish(&mut env.verb("break", ["x", "--all", "--yes"])).silently(0).text();
    assert_eq!(broken.matches("asked ").count(), 2, "{broken}");
    env.await_no_process();
    env.assert_free("x");
}

#[test]
fn a_run_under_its_variables_does_not_join_it() {
    let env = TestEnv::new();
    let printed = acquire(&env, "1h", &[]).silently(0).text();
    let variables = printed.lines().filter_map(|line| line.split_once('='));
    let mut run = env.run(["--wait", "0", "--name", "x", "--", "true"]);
    env.finish(run.envs(variables)).failed(75, &["x"]);
    env.finish(&mut env.verb("release", [&value(&printed, "DLOCK_CLAIM"), "--name", "x"])).silently(0);
    env.await_no_process();
}
