//! Stopping a tree without the system's help: no /proc, the /proc of another namespace, few descriptors; and processes
//! that dlock must leave alone.

use rustix::process::{Signal, geteuid};

use crate::support::process::{is_alive, is_stopped};
use crate::support::scene::Scene;
use crate::support::wait::until_true;
use crate::support::{Running, TestEnv, process};

/// Hides /proc and runs dlock with the rest of the words.
const WITHOUT_PROC: &str =
    r#"mount -t tmpfs none /proc && exec "$dlock" run --endpoint "$locks" --name x "$@""#;

/// A script for `sh -c`. It writes its PID and has a child in its process group.
const IN_ITS_GROUP: &str = "trap '' TERM; sleep 1000 & echo $! >member; echo $$ >pid; wait; wait";

/// Has trees in other sessions that keep forking, and is killed meanwhile.
const FORKING: &str = r#"
fork='i=0; while [ $i -lt 400 ]; do sleep 1000 & i=$((i + 1)); [ $i = 40 ] && echo up >>up; done; wait'
for tree in 1 2 3 4; do setsid sh -c "$fork" & done
until [ "$(grep -c up up 2>/dev/null)" = 4 ]; do sleep 0.01; done
kill -KILL $$"#;

/// Starts a child, and logs when it sees the child stopped. Both ignore SIGTERM.
const WATCHING: &str = r#"
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = os.fork()
if child == 0:
    while True:
        time.sleep(1000)
log = os.open("seen", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
def look(number, frame):
    pid, status = os.waitpid(child, os.WNOHANG | os.WUNTRACED)
    os.write(log, b"stopped\n" if pid and os.WIFSTOPPED(status) else b"nothing\n")
signal.signal(signal.SIGCHLD, look)
os.write(log, b"up\n")
while True:
    time.sleep(1000)
"#;

fn without_proc(env: &TestEnv, words: &[&str]) -> std::process::Command {
    let mut command = env.command("unshare");
    command.args(["--mount", "sh", "-c", WITHOUT_PROC, "sh"]).args(words);
    command
}

fn pid_in(env: &TestEnv, name: &str) -> i32 {
    env.await_line(name).parse().expect("a pid")
}

#[test]
fn without_proc_max_run_ends_the_command_and_its_group() {
    let env = TestEnv::new();
    let words = ["--max-run", "200ms", "--grace", "0", "--", "sh", "-c", IN_ITS_GROUP];
    let running = env.start(&mut without_proc(&env, &words));
    let members = [pid_in(&env, "pid"), pid_in(&env, "member")];
    running.finish().failed(124, &["--max-run"]);
    assert!(members.iter().all(|pid| !is_alive(*pid)));
    env.assert_free("x");
}

#[test]
fn without_proc_a_killed_keeper_ends_the_command_and_its_group() {
    let env = TestEnv::new();
    let running = env.start(&mut without_proc(&env, &["--", "sh", "-c", IN_ITS_GROUP]));
    let (command, member) = (pid_in(&env, "pid"), pid_in(&env, "member"));
    let keeper = process::look(command).expect("a command").parent;
    process::signal(keeper, Signal::KILL);
    // The keeper may have died before it reported the start. dlock then knows only "was stopped while starting, or
    // never started".
    running.finish().failed(76, &["was stopped"]);
    assert!(!is_alive(command) && !is_alive(member));
    env.assert_free("x");
}

#[test]
fn without_proc_the_lock_is_held_until_all_have_ended() {
    let env = TestEnv::new();
    let script = "setsid sh -c 'echo $$ >away; exec sleep 1000' & echo $$ >pid; wait";
    let mut words = vec!["--max-run", "200ms", "--grace", "0", "--", "sh", "-c"];
    words.push(script);
    let running = env.start(&mut without_proc(&env, &words));
    let (command, away) = (pid_in(&env, "pid"), pid_in(&env, "away"));
    until_true("the end of the command", || !is_alive(command));
    let told =
        || running.err_so_far().contains("cannot verify that all processes of the command have exited");
    until_true("word of what is not known", told);
    env.assert_busy("x");
    process::signal(away, Signal::KILL);
    let ended = running.finish();
    assert_eq!(ended.code(), Some(124), "{}", ended.err);
    env.assert_free("x");
}

#[test]
fn with_another_namespaces_proc_only_the_own_command_is_ended() {
    // In the outer namespace the low PIDs belong to strangers with children. In the inner one dlock and its command
    // have the same numbers, and see the outer /proc.
    let env = TestEnv::new();
    let script = r#"
        for i in 1 2 3 4 5 6; do (tail -f /dev/null & wait) & done
        until [ "$(pgrep -c tail)" = 6 ]; do :; done
        unshare --pid --fork "$dlock" run --endpoint "$locks" --name x --max-run 200ms --grace 0 -- \
            sh -c 'trap "" TERM; sleep 1001 & wait; wait'
        echo "$? $(pgrep -c tail) $(pgrep -c sleep)"
        exec kill -KILL -1"#;
    let mut command = env.command("unshare");
    command.args(["--pid", "--fork", "--mount-proc", "--kill-child", "bash", "-c", script]);
    let ended = env.finish(&mut command);
    assert_eq!(ended.text(), "124 6 0\n", "{}", ended.err);
    env.assert_free("x");
}

#[test]
fn children_started_before_exec_are_not_killed() {
    let env = TestEnv::new();
    let script = r#"sleep 1000 & echo $! >stranger
        exec "$dlock" run --endpoint "$locks" --name x -- sh -c 'setsid sleep 1000 & echo $! >pid; wait'"#;
    let running = env.start(&mut env.bash(script));
    let (stranger, member) = (pid_in(&env, "stranger"), pid_in(&env, "pid"));
    let keeper = running.keeper();
    process::await_started(keeper);
    process::signal(keeper, Signal::KILL);
    running.finish().failed(76, &["the command was stopped"]);
    assert!(!is_alive(member) && is_alive(stranger));
    env.assert_free("x");
    process::signal(stranger, Signal::KILL);
}

#[test]
fn stopped_front_and_killed_keeper_leave_no_process() {
    let scene = Scene::new(&[]);
    let keeper = scene.running.keeper();
    scene.running.signal(Signal::STOP);
    until_true("a stopped front", || is_stopped(scene.running.pid()));
    process::signal(keeper, Signal::KILL);
    scene.await_tree_gone();
    scene.conclude().failed(76, &["the command was stopped"]);
}

#[test]
fn front_stopped_before_the_start_leaves_no_process() {
    let env = TestEnv::new();
    let holder = env.held(&["--name", "x"]);
    let script = "setsid sleep 1000 & echo $! >member; wait";
    let waiter = env.start(&mut env.run(["-q", "--name", "x", "--", "sh", "-c", script]));
    env.await_waiters("x", 1);
    waiter.signal(Signal::STOP);
    until_true("a stopped front", || is_stopped(waiter.pid()));
    holder.release().silently(0);
    let member = pid_in(&env, "member");
    process::signal(waiter.keeper(), Signal::KILL);
    assert_eq!(waiter.finish().code(), Some(76));
    assert!(!is_alive(member));
    env.assert_free("x");
}

#[test]
fn command_killed_while_stopped_ends_dlock() {
    let env = TestEnv::new();
    let (mut terminal, command) = crate::support::terminal::running(&env, "", "exec sleep 1000");
    terminal.ctrl_z();
    terminal.expect_prompt();
    until_true("a stopped command", || is_stopped(command));
    process::signal(command, Signal::KILL);
    until_true("a free lock", || env.holders("x") == 0);
    assert!(terminal.command("wait %1; echo $?").contains("137"));
}

#[test]
fn script_without_interpreter_line_takes_very_many_arguments() {
    use std::os::unix::fs::PermissionsExt as _;
    let env = TestEnv::new();
    let script = env.write("script", "echo $#\n");
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).expect("a mode");
    let mut command = env.run(["--name", "x", "--"]);
    command.arg(&script).args(std::iter::repeat_n("a", 120_000));
    assert_eq!(env.finish(&mut command).silently(0).text(), "120000\n");
}

#[test]
fn sigterm_reaches_children_forked_during_a_stop() {
    let env = TestEnv::new();
    // A process without a signal would keep the lock for the grace period.
    let ended = env.finish(&mut env.run(["--name", "x", "--grace", "1h", "--", "sh", "-c", FORKING]));
    assert_eq!(ended.signal(), Some(9), "{}", ended.err);
    env.await_no_process();
    env.assert_free("x");
}

#[test]
fn cleanup_started_on_sigterm_is_left_to_finish() {
    let env = TestEnv::new();
    // A shell's child that has not yet executed its program would take SIGTERM with the shell's trap and lose it.
    let script = r#"
        setsid sh -c 'trap "sh cleanup; exit" TERM; sh -c "echo up >up; exec sleep 1000" & while :; do wait $!; done' &
        until [ -s up ]; do sleep 0.01; done
        kill -KILL $$"#;
    env.write("cleanup", "trap 'echo told >told' TERM; sleep 0.3; echo done >done");
    let ended = env.finish(&mut env.run(["--name", "x", "--grace", "1h", "--", "sh", "-c", script]));
    assert_eq!((ended.signal(), env.await_line("done").as_str()), (Some(9), "done"), "{}", ended.err);
    assert!(!env.path("told").exists());
}

#[test]
fn no_parent_sees_a_child_stopped_during_termination() {
    let env = TestEnv::new();
    let script = r#"python3 -c "$1" & until [ -s seen ]; do sleep 0.01; done; kill -KILL $$"#;
    let words = ["--name", "x", "--grace", "300ms", "--", "sh", "-c", script, "sh", WATCHING];
    let ended = env.finish(&mut env.run(words));
    assert_eq!(ended.signal(), Some(9), "{}", ended.err);
    let seen = std::fs::read_to_string(env.path("seen")).expect("a log");
    // The child was stopped, and it continued before its parent could check.
    assert!(seen.contains("nothing") && !seen.contains("stopped"), "{seen}");
}

/// Starts a command of another user, which a root cannot kill that may not kill others' processes, as in a container.
fn unkillable(env: &TestEnv, options: &[&str]) -> Running {
    let other = ["setpriv", "--reuid", "65534", "--clear-groups", "sh", "-c", "sleep 4; :"];
    let run = env.run([&["--name", "x"], options, &["--"], &other].concat());
    let mut command = env.command("setpriv");
    command.arg("--bounding-set=-kill,-sys_ptrace").args(run.get_args().skip(2));
    env.start(&mut command)
}

#[test]
fn front_keeps_the_lock_under_unkillable_processes() {
    if !geteuid().is_root() {
        return;
    }
    let env = TestEnv::new();
    let running = unkillable(&env, &[]);
    let keeper = running.keeper();
    until_true("a command of another user", || {
        process::children(keeper).iter().any(|command| command.name == "sh")
    });
    process::signal(keeper, Signal::KILL);
    until_true("the processes' names", || running.err_so_far().contains("cannot kill process"));
    let waiter = env.start(&mut env.run(["-q", "--name", "x", "--", "true"]));
    env.await_waiters("x", 1);
    running.finish().failed(76, &["dlock keeps the lock on x and cannot end until they exit"]);
    waiter.finish().silently(0);
}

#[test]
fn root_without_cap_kill_keeps_the_lock_and_names_cap_kill() {
    if !geteuid().is_root() {
        return;
    }
    let env = TestEnv::new();
    let running = unkillable(&env, &["--max-run", "200ms", "--grace", "0"]);
    until_true("the processes' names", || running.err_so_far().contains("cannot kill process"));
    assert_eq!(env.finish(&mut env.run(["-n", "--name", "x", "--", "true"])).code(), Some(75));
    let ended = running.finish();
    assert_eq!(ended.code(), Some(124), "{}", ended.err);
    for words in ["dlock keeps the lock on x and cannot end until they exit", "give dlock CAP_KILL"] {
        assert!(ended.err.contains(words), "{}", ended.err);
    }
    env.assert_free("x");
}
