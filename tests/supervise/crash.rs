//! Killing and stopping dlock's own processes: no orphan stays, and no other command starts before the tree is gone.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::support::scene::Scene;
use crate::support::wait::until_true;
use crate::support::{TestEnv, process, quiet, within};

/// Far shorter than a lease of the usual length.
const AT_ONCE: Duration = Duration::from_millis(200);

#[test]
fn a_killed_process_takes_the_whole_tree_with_it_at_once() {
    let _alone = quiet::measuring();
    for keeper in [false, true] {
        let scene = Scene::new(&[]);
        let victim = if keeper { scene.running.keeper() } else { scene.running.pid() };
        let begun = Instant::now();
        process::signal(victim, Signal::KILL);
        let took = scene.await_tree_gone() - begun;
        within(took, AT_ONCE);
        let ended = scene.conclude();
        if keeper {
            ended.failed(76, &["the command was stopped"]);
        } else {
            assert_eq!(ended.signal(), Some(9));
        }
    }
}

#[test]
fn rest_of_an_externally_killed_command_is_ended_first() {
    let scene = Scene::new(&["--grace", "100ms"]);
    let command = process::children(scene.running.keeper()).first().expect("a command").pid;
    process::signal(command, Signal::KILL);
    let ended = scene.conclude();
    assert_eq!((ended.signal(), ended.err.as_str()), (Some(9), ""));
}

#[test]
fn broken_run_exits_76_even_if_keeper_dies_while_stopping() {
    let env = TestEnv::new();
    let script = "(trap '' TERM; echo up >deaf; exec sleep 1000) & until [ -s deaf ]; do sleep 0.01; done; \
                  echo $$ >pid; wait";
    let running = env.start(&mut env.run(["--name", "x", "--grace", "1h", "--", "sh", "-c", script]));
    let command = env.await_line("pid").parse().expect("a pid");
    let keeper = running.keeper();
    let breaking = env.start(&mut env.verb("break", ["x", "--all", "--yes"]));
    until_true("a reaped command", || process::look(command).is_none());
    process::signal(keeper, Signal::KILL);
    running.finish().failed(76, &["the command was stopped"]);
    breaking.finish();
    env.await_no_process();
    env.assert_free("x");
}

#[test]
fn killed_keeper_of_a_whole_tree_is_a_loss_after_the_command() {
    let env = TestEnv::new();
    let script = "setsid sleep 1000 & echo $$ >pid";
    let running = env.start(&mut env.run(["--name", "x", "--whole-tree", "--", "sh", "-c", script]));
    let command = env.await_line("pid").parse().expect("a pid");
    until_true("a reaped command", || process::look(command).is_none());
    process::signal(running.keeper(), Signal::KILL);
    running.finish().failed(76, &["the command was stopped"]);
    env.await_no_process();
    env.assert_free("x");
}

#[test]
fn tree_of_a_thousand_is_gone_before_the_next_run() {
    let env = TestEnv::new();
    // Each process of the tree has `all` locked.
    let script = "exec 9>all; flock -s 9; mkfifo never; trap '' TERM; i=0; while [ $i -lt 10 ]; do
        (j=0; while [ $j -lt 100 ]; do (read -r line <never) & j=$((j + 1)); done
            echo >>groups; read -r line <never) &
        i=$((i + 1)); done
        until [ \"$(wc -l 2>/dev/null <groups)\" = 10 ]; do sleep 0.01; done; echo up >ready; wait";
    for victim in ["front", "keeper", "none"] {
        let running =
            env.start(&mut env.run(["--name", "x", "--grace", "100ms", "--", "dash", "-c", script]));
        env.await_line("ready");
        match victim {
            "front" => process::signal(running.pid(), Signal::KILL),
            "keeper" => process::signal(running.keeper(), Signal::KILL),
            _ => running.signal(Signal::TERM),
        }
        env.finish(&mut env.run(["-q", "--name", "x", "--", "flock", "-n", "all", "true"])).silently(0);
        running.finish();
        for name in ["all", "never", "groups", "ready"] {
            std::fs::remove_file(env.path(name)).expect("a file of the command");
        }
    }
}

#[test]
fn constantly_forking_tree_is_ended_completely() {
    let env = TestEnv::new();
    let script = r"
        breed() { while :; do (sleep 0.02 & sleep 0.01); done; }
        breed & breed & (setsid sh -c 'while :; do (sleep 0.02 &) ; sleep 0.01; done' &)
        echo up >ready; wait";
    for victim in ["front", "keeper"] {
        let running = env.start(&mut env.run(["--name", "x", "--", "bash", "-c", script]));
        env.await_line("ready");
        std::fs::remove_file(env.path("ready")).expect("a ready file");
        let pid = if victim == "front" { running.pid() } else { running.keeper() };
        process::signal(pid, Signal::KILL);
        running.finish();
        env.await_no_process();
        env.assert_free("x");
    }
}

#[test]
fn hanging_start_is_ended_before_the_lease_expires() {
    // The keeper waits for the exec of the command. The front guards meanwhile, although the keeper has not reported
    // the start. strace delays the exec for longer than the lease.
    let env = TestEnv::new();
    let script = r#"exec strace -f -qq -o trace -e trace=execve -e inject=execve:delay_enter=5000000:when=1 \
        "$dlock" run --endpoint "$locks" --name x --ttl 1s -- /usr/bin/touch started"#;
    let finished = env.finish(&mut env.bash(script));
    if finished.err.contains("ptrace") || finished.err.contains("PTRACE") {
        return eprintln!("skipped: strace may not trace here: {}", finished.err.trim());
    }
    assert_eq!(finished.code(), Some(76), "{}", finished.err);
    assert!(!env.exists("started"), "the command started after its lease had run out");
    env.assert_free("x");
}
