//! dlock as process 1 of a container.

use std::process::Command;

use rustix::process::Signal;

use crate::support::wait::until;
use crate::support::{Running, TestEnv, process};

/// Returns `dlock run` with these words as process 1 of a new PID namespace. If that is not permitted, prints the
/// reason and returns `None`.
fn as_init(env: &TestEnv, words: &[&str]) -> Option<Command> {
    const ALONE: [&str; 4] = ["--pid", "--fork", "--mount-proc", "--kill-child"];
    let probe = env.finish(env.command("unshare").args(ALONE).arg("true"));
    if !probe.status.success() {
        eprintln!("skipped: no PID namespace may be made here: {}", probe.err.trim());
        return None;
    }
    let mut command = env.command("unshare");
    // A container's runtime gives process 1 a session.
    command.args(ALONE).args(["setsid", crate::support::test_env::dlock(), "run", "--endpoint"]);
    command.arg(env.locks()).args(words);
    Some(command)
}

/// Starts process 1 with the shell `script` as its command, and waits for `ready`; `None` as in [`as_init`].
fn started(env: &TestEnv, script: &str) -> Option<Running> {
    let running = env.start(&mut as_init(env, &["--name", "x", "--", "sh", "-c", script])?);
    env.await_line("ready");
    Some(running)
}

/// Returns the PID of the namespace's process 1 outside of the namespace.
fn outer_pid(unshare: &Running) -> i32 {
    until("process 1 of the namespace", || {
        process::children(unshare.pid()).into_iter().find(|p| p.name == "dlock").map(|p| p.pid)
    })
}

#[test]
fn session_and_group_outside_the_namespace_are_tolerated() {
    // Both are 0 as seen from within.
    let env = TestEnv::new();
    let Some(probe) = as_init(&env, &["--name", "x", "--", "sh", "-c", "exit 5"]) else { return };
    let mut command = env.command("unshare");
    let prefix = ["--default-signal", "setsid", "unshare"];
    command.args(probe.get_args().filter(|word| !prefix.iter().any(|p| word == p)));
    env.finish(&mut command).silently(5);
}

#[test]
fn process_1_exits_with_128_plus_the_signal_number() {
    let env = TestEnv::new();
    for signal in [1, 2, 6, 9, 10, 11, 15, 34] {
        let script = format!("ulimit -c 0; kill -{signal} $$");
        let Some(mut command) = as_init(&env, &["--name", "x", "--", "bash", "-c", &script]) else { return };
        env.finish(&mut command).silently(128 + signal);
    }
    env.assert_free("x");
}

#[test]
fn process_1_replaces_another_with_the_same_host_and_pid() {
    let env = TestEnv::new();
    let words = |script| ["--replace", "--name", "x", "--grace", "0", "--", "sh", "-c", script];
    let Some(mut command) = as_init(&env, &words("echo up >ready; exec sleep 1000")) else { return };
    let older = env.start(&mut command);
    env.await_line("ready");
    let Some(mut command) = as_init(&env, &words("exit 6")) else { return };
    assert_eq!(env.finish(&mut command).code(), Some(6));
    older.finish().failed(76, &["replaced under x by"]);
    env.assert_free("x");
}

#[test]
fn a_signal_from_outside_reaches_the_command() {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let env = TestEnv::new();
        let Some(running) = started(&env, "echo up >ready; exec sleep 1000") else { return };
        process::signal(outer_pid(&running), signal);
        running.finish().silently(128 + signal.as_raw());
        env.assert_free("x");
        env.await_no_process();
    }
}

#[test]
fn orphans_are_reaped() {
    let env = TestEnv::new();
    // The namespace's process table has no zombie left, although all processes became orphans.
    let script = r#"
        for i in 1 2 3 4 5 6 7 8; do (setsid sh -c 'true &' &); done
        i=0
        # Not by the exit status of grep: a process that ends meanwhile is an error for it.
        while grep -l "^State:.Z" /proc/[0-9]*/status 2>/dev/null >zombies; [ -s zombies ] && [ $i -lt 2000 ]; do
            i=$((i + 1)); sleep 0.01
        done
        cat zombies"#;
    let Some(mut command) = as_init(&env, &["--name", "x", "--", "bash", "-c", script]) else { return };
    let ended = env.finish(&mut command).silently(0);
    assert_eq!(ended.text(), "");
}

#[test]
fn holds_inside_and_outside_exclude_and_show_each_other() {
    let env = TestEnv::new();
    let gate = env.gate("gate");
    let words = ["--name", "x", "--label", "within", "--", "sh", "-c", "echo up >ready; read _ <gate"];
    let Some(mut command) = as_init(&env, &words) else { return };
    let running = env.start(&mut command);
    env.await_line("ready");
    env.assert_busy("x");
    assert_eq!(env.status("x")["holders"][0]["label"], "within");
    // A waiter outside gets the lock when the hold inside ends.
    let waiter = env.start(&mut env.run(["--name", "x", "--", "true"]));
    env.await_waiters("x", 1);
    gate.open();
    running.finish().silently(0);
    assert_eq!(waiter.finish().code(), Some(0));
    // And the other way round.
    let holder = env.held(&["--name", "x"]);
    let Some(mut command) = as_init(&env, &["-n", "--name", "x", "--", "true"]) else { return };
    env.finish(&mut command).failed(75, &["x"]);
    holder.release().silently(0);
    env.assert_free("x");
}
