//! Processes that a command leaves running.

use rustix::process::Signal;

use crate::support::wait::until_true;
use crate::support::{Running, TestEnv, process};

const DAEMON: &str = "setsid sh -c 'echo $$ >daemon; exec sleep 1000' >/dev/null 2>&1 & \
                      until [ -s daemon ]; do sleep 0.01; done";

#[test]
fn a_daemon_is_left_alone_and_does_not_keep_the_lock() {
    let env = TestEnv::new();
    env.finish(&mut env.run(["--name", "x", "--", "sh", "-c", DAEMON])).silently(0);
    let daemon: i32 = env.await_line("daemon").parse().expect("a pid");
    assert!(process::is_alive(daemon), "an ordinary end must not touch a daemon");
    env.assert_free("x");
    let left: Vec<i32> = env.command_processes().iter().map(|p| p.pid).collect();
    assert_eq!(left, [daemon]);
}

#[test]
fn daemon_holding_the_streams_does_not_keep_dlock() {
    let env = TestEnv::new();
    let script = "sleep 1000 & echo $! >daemon";
    env.finish(&mut env.run(["--name", "x", "--", "sh", "-c", script])).silently(0);
    assert!(process::is_alive(env.await_line("daemon").parse().expect("a pid")));
    env.assert_free("x");
}

/// Starts a run whose command leaves a daemon and exits 5. Returns it and the daemon once only the daemon is left.
fn whole_tree(env: &TestEnv) -> (Running, i32) {
    let script = format!("{DAEMON}; exit 5");
    let running = env.start(&mut env.run(["--name", "x", "--whole-tree", "--", "sh", "-c", &script]));
    let daemon: i32 = env.await_line("daemon").parse().expect("a pid");
    let keeper = running.keeper();
    until_true("the end of the command", || process::children(keeper).iter().all(|p| p.pid == daemon));
    (running, daemon)
}

#[test]
fn with_whole_tree_a_daemon_keeps_the_lock_until_it_ends() {
    let env = TestEnv::new();
    let (mut running, daemon) = whole_tree(&env);
    env.assert_busy("x");
    assert!(!running.has_ended());
    process::signal(daemon, Signal::KILL);
    running.finish().silently(5);
    env.assert_free("x");
}

#[test]
fn with_whole_tree_an_ending_signal_ends_the_daemon() {
    let env = TestEnv::new();
    let (running, daemon) = whole_tree(&env);
    running.signal(Signal::TERM);
    assert_eq!(running.finish().err, "");
    assert!(!process::is_alive(daemon));
    env.assert_free("x");
}
