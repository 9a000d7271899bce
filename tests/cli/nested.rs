//! Runs inside runs, and waits that would never end.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::support::process::{self, is_alive, is_stopped, look};
use crate::support::scripts::Overlap;
use crate::support::wait::{let_pass, until_true};
use crate::support::{TestEnv, within};

const RUN: &str = r#""$dlock" run --endpoint "$locks""#;

/// Runs a script under the lock x; `RUN` in it is replaced by a call of dlock.
#[track_caller]
fn under_x(env: &TestEnv, options: &[&str], script: &str) -> crate::support::Finished {
    let script = script.replace("RUN", RUN);
    let mut command = env.run(["--name", "x"]);
    env.finish(command.args(options).args(["--", "bash", "-c", &script]))
}

/// Waits until only nested runs are left of the command below `keeper`.
#[track_caller]
fn await_no_command(keeper: i32) {
    until_true("the end of the outer command", || {
        process::children(keeper).iter().all(|p| p.name == "dlock")
    });
}

#[test]
fn a_nested_run_shares_the_hold_and_its_token() {
    let env = TestEnv::new();
    let script =
        r#"a=$DLOCK_TOKEN; b=$(RUN --name x -- sh -c 'echo $DLOCK_TOKEN'); [ "$a" = "$b" ] && exit 8"#;
    under_x(&env, &[], script).silently(8);
    let script = r#"RUN -n --name x -- bash -c 'RUN -n --name x -- sh -c "exit 9"'"#;
    under_x(&env, &[], script).silently(9);
    env.assert_free("x");
}

#[test]
fn run_blocked_by_its_own_ancestor_is_refused_at_once() {
    let env = TestEnv::new();
    let begun = Instant::now();
    // sudo, su and `env -i` remove the variable, too.
    let ended = under_x(&env, &[], "env -u DLOCK_HELD RUN --name x -- touch started");
    within(begun.elapsed(), Duration::from_secs(2));
    ended.failed(75, &["waiting for x would never end", "--preserve-env=DLOCK_HELD"]);
    assert!(!env.exists("started"));
    let text = format!(
        "c=$(\"$dlock\" acquire --endpoint \"$locks\" --name x --for-pid $$) || exit; eval \"$c\"; \
                        env -u DLOCK_HELD {RUN} --name x -- touch started"
    );
    let begun = Instant::now();
    env.finish(env.command("bash").args(["-c", &text])).failed(75, &["--preserve-env=DLOCK_HELD"]);
    within(begun.elapsed(), Duration::from_secs(2));
    assert!(!env.exists("started"));
    env.await_no_process();
    env.assert_free("x");
}

#[test]
fn a_weaker_mode_nests_under_a_stronger_one() {
    let env = TestEnv::new();
    under_x(&env, &[], "RUN -n -s --name x -- sh -c 'exit 9'").silently(9);
    under_x(&env, &["-s"], "RUN -n -s --name x -- sh -c 'exit 9'").silently(9);
}

#[test]
fn a_background_nested_run_keeps_the_hold_beyond_its_parent() {
    let env = TestEnv::new();
    let gate = env.gate("gate");
    let script = "RUN --name x -- sh -c 'echo up >ready; read _ <gate' >/dev/null 2>&1 & \
                  until [ -s ready ]; do sleep 0.01; done; exit 4";
    let script = script.replace("RUN", RUN);
    let mut outer = env.start(&mut env.run(["--name", "x", "--", "bash", "-c", &script]));
    env.await_line("ready");
    let keeper = outer.keeper();
    await_no_command(keeper);
    env.assert_busy("x");
    assert!(!outer.has_ended());
    gate.open();
    outer.finish().silently(4);
    env.assert_free("x");
}

/// Starts a nested run whose parent is this test, so that it is outside the tree of its outer run.
fn nested_elsewhere(env: &TestEnv) -> crate::support::Running {
    let mut nested = env.run(["--name", "x", "--", "sh", "-c", "echo up >ready; read _ <gate"]);
    let nested = env.start(nested.env("DLOCK_HELD", env.await_line("held")));
    env.await_line("ready");
    nested
}

#[test]
fn outside_nested_run_keeps_the_hold_of_an_ended_outer_run() {
    for (command_ends_first, signal) in [(false, Signal::TERM), (true, Signal::TERM), (true, Signal::KILL)] {
        let env = TestEnv::new();
        let (gate, own_gate) = (env.gate("gate"), env.gate("own.gate"));
        let script = r#"echo "$DLOCK_HELD" >held; read _ <own.gate; exit 4"#;
        let mut outer = env.start(&mut env.run(["--name", "x", "--", "bash", "-c", script]));
        let nested = nested_elsewhere(&env);
        let keeper = outer.keeper();
        if command_ends_first {
            own_gate.open();
            await_no_command(keeper);
        }
        outer.signal(signal);
        if signal == Signal::TERM {
            await_no_command(keeper);
            assert!(!outer.has_ended());
        } else {
            until_true("the end of the front", || outer.has_ended());
        }
        env.assert_busy("x");
        gate.open();
        nested.finish().silently(0);
        let ended = outer.finish();
        if signal == Signal::TERM {
            let wanted = if command_ends_first { (Some(4), None) } else { (None, Some(15)) };
            assert_eq!((ended.code(), ended.signal()), wanted, "{}", ended.err);
            assert_eq!(ended.err, "dlock: x stays locked until the nested runs have exited\n");
        }
        env.await_no_process();
        env.assert_free("x");
    }
}

#[test]
fn outside_nested_run_is_ended_with_the_outer_keeper() {
    let env = TestEnv::new();
    let (_gate, _own_gate) = (env.gate("gate"), env.gate("own.gate"));
    let script = r#"echo "$DLOCK_HELD" >held; read _ <own.gate"#;
    let outer = env.start(&mut env.run(["--name", "x", "--", "bash", "-c", script]));
    let nested = nested_elsewhere(&env);
    let command = process::children(nested.keeper()).first().cloned().expect("a nested command");
    let (overlap, words) = Overlap::words(&env, &[command]);
    let waiter = env.start(env.run(["--name", "x", "--"]).args(words));
    env.await_waiters("x", 1);
    process::signal(outer.keeper(), Signal::KILL);
    outer.finish().failed(76, &["the lease-keeper of dlock died"]);
    nested.finish().failed(76, &["the enclosing run lost it or ended"]);
    assert_eq!(waiter.finish().code(), Some(0));
    overlap.assert_none(&env);
    env.await_no_process();
    env.assert_free("x");
}

#[test]
fn nested_run_may_start_after_the_command_during_the_hold() {
    for options in [&["--whole-tree"][..], &["--hold-at-least", "1h"]] {
        let env = TestEnv::new();
        let gate = env.gate("gate");
        let script = "{ read _ <gate; RUN -n --name x -- true; echo $? >status; } & echo $$ >command; exit 4";
        let script = script.replace("RUN", RUN);
        let mut outer = env.run(["--name", "x"]);
        let outer = env.start(outer.args(options).args(["--", "bash", "-c", &script]));
        let command = env.await_line("command").parse().expect("a pid");
        until_true("the end of the command", || !is_alive(command));
        gate.open();
        assert_eq!(env.await_line("status"), "0", "{options:?}: {}", outer.err_so_far());
        outer.signal(Signal::TERM);
        let ended = outer.finish();
        assert!(matches!((ended.code(), ended.signal()), (Some(4), None)), "{options:?}: {}", ended.err);
        env.assert_free("x");
        env.await_no_process();
    }
}

#[test]
fn nested_run_may_start_after_the_tree_during_the_hold() {
    let env = TestEnv::new();
    let script = r#"echo "$DLOCK_HELD" >held; echo $$ >command"#;
    let options = ["-q", "--name", "x", "--hold-at-least", "1h", "--", "bash", "-c", script];
    let outer = env.start(&mut env.run(options));
    let command = env.await_line("command").parse().expect("a pid");
    until_true("the end of the command", || process::look(command).is_none());
    let mut nested = env.run(["-n", "--name", "x", "--", "true"]);
    env.finish(nested.env("DLOCK_HELD", env.read("held").trim())).silently(0);
    outer.signal(Signal::TERM);
    assert_eq!(outer.finish().code(), Some(0));
    env.assert_free("x");
}

#[test]
fn a_second_slot_is_waited_for_under_an_own_one() {
    let env = TestEnv::new();
    let slots = ["-q", "--name", "x", "--slots", "2"];
    let (up, gate) = (env.path("up"), env.gate("gate"));
    let script =
        format!("echo up >up; read _ <gate; {RUN} --no-nest -q --name x --slots 2 -- sh -c 'exit 9'");
    let outer = env.start(env.run(slots).args(["--", "bash", "-c", &script]));
    until_true("an outer command", || up.exists());
    let other = env.held(&slots);
    gate.open();
    env.await_waiters("x", 1);
    other.release().silently(0);
    assert_eq!(outer.finish().code(), Some(9));
    env.assert_free("x");
}

#[test]
fn nested_run_may_start_while_leftovers_are_ended() {
    let env = TestEnv::new();
    let worker = "trap 'RUN -n --name x -- true; echo $? >status; exit' TERM; echo up >ready; while :; do sleep 0.01; done";
    let worker = env.write("worker", &worker.replace("RUN", RUN));
    let script = format!("setsid bash {} & exec sleep 1000", worker.display());
    let outer = env.start(&mut env.run(["--name", "x", "--grace", "1m", "--", "bash", "-c", &script]));
    env.await_line("ready");
    outer.signal(Signal::TERM);
    assert_eq!(env.await_line("status"), "0", "{}", outer.err_so_far());
    assert_eq!(outer.finish().signal(), Some(15));
    env.assert_free("x");
    env.await_no_process();
}

#[test]
fn a_killed_nested_run_does_not_keep_the_hold() {
    let env = TestEnv::new();
    let script = "RUN --name x -- sh -c 'echo up >ready; exec sleep 1000' & \
                  until [ -s ready ]; do sleep 0.01; done; { kill -9 $!; wait; } 2>/dev/null; exit 4";
    under_x(&env, &[], script).silently(4);
    env.assert_free("x");
}

#[test]
fn daemon_of_an_ended_nested_run_does_not_keep_the_hold() {
    let env = TestEnv::new();
    under_x(&env, &[], "RUN --name x -- sh -c 'setsid sleep 1000 >/dev/null 2>&1 &'; exit 4").silently(4);
    until_true("a daemon", || env.command_processes().iter().any(|process| process.name == "sleep"));
    env.assert_free("x");
}

#[test]
fn living_nested_tree_keeps_the_hold_without_its_keeper() {
    let env = TestEnv::new();
    let nested = "setsid sleep 1000 & echo $! >member; echo $PPID >keeper; wait";
    let script = format!(
        "{RUN} --name x -- sh -c '{nested}' >/dev/null 2>&1 & echo $! >front; \
         until [ -s keeper ]; do sleep 0.01; done; exit 4"
    );
    let outer = env.start(&mut env.run(["--name", "x", "--", "bash", "-c", &script]));
    let pid_in = |file: &str| env.await_line(file).parse::<i32>().expect("a pid");
    let (keeper, member, front) = (pid_in("keeper"), pid_in("member"), pid_in("front"));
    process::await_started(keeper);
    let outer_keeper = outer.keeper();
    await_no_command(outer_keeper);
    let (overlap, words) = Overlap::words(&env, &[look(member).expect("the member")]);
    let waiter = env.start(env.run(["--name", "x", "--"]).args(words));
    env.await_waiters("x", 1);
    // A traced front is held up as a stopped one is. The death of the keeper would wake a stopped one.
    let mut tracer = env.start(env.command("strace").args(["-o", "/dev/null", "-p", &front.to_string()]));
    until_true("a tracer", || tracer.err_so_far().contains("attached") || tracer.has_ended());
    assert!(!tracer.has_ended(), "strace may not trace here: {}", tracer.err_so_far());
    tracer.signal(Signal::STOP);
    until_true("a tracer that holds it up", || is_stopped(tracer.pid()));
    process::signal(keeper, Signal::KILL);
    until_true("the end of the keeper", || !is_alive(keeper));
    // Time in which the waiter would start.
    let_pass(Duration::from_millis(300));
    assert!(is_alive(member), "the front acted");
    assert!(!env.exists("overlap"), "the waiter started");
    tracer.signal(Signal::KILL);
    assert_eq!(waiter.finish().code(), Some(0));
    overlap.assert_none(&env);
    outer.finish().silently(4);
    drop(tracer.finish());
    env.assert_free("x");
}

#[test]
fn outer_holds_are_shared_if_they_cover_all_names() {
    let env = TestEnv::new();
    let script = r#"RUN -n --name y -- sh -c 'echo $DLOCK_TOKEN; RUN -n --name x --name y -- sh -c "echo \$DLOCK_TOKENS"'; echo $DLOCK_TOKEN"#;
    let ended = under_x(&env, &[], script).silently(0);
    let text = ended.text();
    let [y, both, x] = text.lines().collect::<Vec<_>>()[..] else { panic!("{text}") };
    assert_eq!(both, format!("{x} {y}"));
}

#[test]
fn an_ordinary_second_claim_under_the_own_hold_is_a_deadlock() {
    let env = TestEnv::new();
    let ended = under_x(&env, &[], "RUN --no-nest --name x -- touch started");
    assert_eq!((ended.code(), ended.text().as_str()), (Some(75), ""), "{}", ended.err);
    assert!(
        ended.err.lines().last().is_some_and(|l| l.starts_with("dlock: ") && l.contains('x')),
        "{}",
        ended.err
    );
    assert!(!env.exists("started"));
    env.assert_free("x");
    // Shared claims do not wait for each other. A shared hold never becomes exclusive.
    under_x(&env, &["-s"], "RUN --no-nest -s --name x -- true").silently(0);
    under_x(&env, &["-s"], "RUN --name x -- touch started").failed(75, &["waiting for x would never end"]);
    assert!(!env.exists("started"));
}

#[test]
fn a_daemon_of_an_ended_run_asks_for_an_ordinary_claim() {
    let env = TestEnv::new();
    let gate = env.gate("gate");
    let script = format!(
        "setsid bash -c 'read _ <gate; {RUN} -n --name x -- touch started; echo $? >code' >/dev/null 2>&1 &"
    );
    env.finish(&mut env.run(["--name", "x", "--", "bash", "-c", &script])).silently(0);
    let holder = env.held(&["--name", "x"]);
    gate.open();
    assert_eq!(env.await_line("code"), "75");
    assert!(!env.exists("started"));
    holder.release().silently(0);
}
