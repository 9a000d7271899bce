//! The effect of each lock option.

use std::time::Duration;

use rustix::process::Signal;

use super::acquire::script;
use crate::support::wait::{let_pass, until_true};
use crate::support::{Running, TestEnv, process};

#[test]
fn hold_at_least_is_cut_short_by_a_signal_and_the_status_stays() {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT] {
        let env = TestEnv::new();
        let running = lingering(&env);
        env.assert_busy("x");
        running.signal(signal);
        running.finish().silently(3);
        env.assert_free("x");
    }
}

/// Starts a holder of x with `--hold-at-least 1h` whose command has exited 3.
fn lingering(env: &TestEnv) -> Running {
    let options = ["--name", "x", "--hold-at-least", "1h"];
    let running = env.start(env.run(options).args(["--", "sh", "-c", "echo up >ready; exit 3"]));
    env.await_line("ready");
    let keeper = running.keeper();
    until_true("the end of the command", || process::children(keeper).is_empty());
    running
}

#[test]
fn broken_hold_at_least_warns_and_keeps_the_status() {
    let env = TestEnv::new();
    let broken = lingering(&env);
    assert_eq!(env.finish(&mut env.verb("break", ["x", "--yes"])).code(), Some(0));
    let ended = broken.finish();
    assert_eq!(ended.code(), Some(3), "{}", ended.err);
    let by = "x was released early, after the command exited: broken by ";
    assert!(ended.err.contains(by), "{}", ended.err);
}

#[test]
fn once_per_skips_after_a_success_only() {
    let env = TestEnv::new();
    let once = |script: &str| {
        env.finish(&mut env.run(["--name", "x", "--once-per", "1h", "--", "sh", "-c", script]))
    };
    once("echo failed >>log; exit 3").silently(3);
    once("echo done >>log").silently(0);
    once("echo again >>log").silently(0);
    assert_eq!(env.read("log"), "failed\ndone\n");
    // dlock runs the command for another name, and again after the period.
    env.finish(&mut env.run(["--name", "y", "--once-per", "1h", "--", "sh", "-c", "echo y >>log"]))
        .silently(0);
    let_pass(Duration::from_millis(20));
    env.finish(&mut env.run(["--name", "x", "--once-per", "10ms", "--", "sh", "-c", "echo x >>log"]))
        .silently(0);
    assert_eq!(env.read("log"), "failed\ndone\ny\nx\n");
    let told = env.finish(&mut env.run(["-v", "--name", "x", "--once-per", "1h", "--", "touch", "started"]));
    assert!(told.code() == Some(0) && told.err.lines().count() >= 1, "{}", told.err);
    assert!(!env.exists("started"));
    env.assert_free("x");
}

#[test]
fn once_per_is_asked_again_under_the_lock() {
    let env = TestEnv::new();
    let gate = env.gate("gate");
    let words = |who: &str| {
        let script = format!("echo {who} >>log; echo up >ready; read _ <gate");
        env.run(["--name", "x", "--once-per", "1h", "--", "sh", "-c", &script])
    };
    let first = env.start(&mut words("first"));
    env.await_line("ready");
    let second = env.start(&mut words("second"));
    env.await_waiters("x", 1);
    gate.open();
    first.finish().silently(0);
    let ended = second.finish();
    assert_eq!(ended.code(), Some(0), "{}", ended.err);
    assert_eq!(env.read("log"), "first\n");
    env.assert_free("x");
}

#[test]
fn once_per_ignores_releases_of_running_scripts() {
    let env = TestEnv::new();
    let text = "trap 'dlock release' EXIT; eval \"$(dlock acquire --name x --for-pid $$)\" || exit; exit 3";
    assert_eq!(env.finish(&mut script(&env, text)).code(), Some(3));
    env.finish(&mut env.run(["--name", "x", "--once-per", "1h", "--", "sh", "-c", "echo ran >>log"]))
        .silently(0);
    assert_eq!(env.read("log"), "ran\n");
}

#[test]
fn a_command_string_is_the_shells() {
    let env = TestEnv::new();
    let ended = env.finish(&mut env.run(["--name", "x", "-c", "echo a | tr a b; exit 4"]));
    assert_eq!(ended.silently(4).text(), "b\n");
    let ended = env.finish(&mut env.run(["--name", "x", "--command", "readlink /proc/$$/exe"])).silently(0);
    assert!(ended.text().contains("sh"), "{}", ended.text());
}
