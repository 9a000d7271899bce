//! Locks of a script that acquires and releases them itself: `acquire --for-pid` and `release`.

use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::support::process::{self, Process, is_alive, is_stopped};
use crate::support::scripts::{Overlap, Tree};
use crate::support::wait::until_true;
use crate::support::{Running, TestEnv, quiet, within};

/// Returns a command that runs `text` in bash; its locks are in the test's service.
pub(crate) fn script(env: &TestEnv, text: &str) -> Command {
    let mut command = env.command("bash");
    let prelude = r#"export DLOCK_ENDPOINT="$locks"; dlock() { command "$dlock" "$@"; }"#;
    command.args(["-c", &format!("{prelude}\n{text}")]);
    command
}

/// Returns the two dlock processes that hold a lock for `script`: the front and its keeper.
pub(crate) fn pair(env: &TestEnv) -> (Process, Process) {
    let all = env.processes();
    let keeper = all.iter().find(|process| process.name == "lease-keeper").expect("a keeper").clone();
    let front = all.into_iter().find(|process| process.pid == keeper.parent).expect("a front");
    (front, keeper)
}

#[test]
fn released_lock_is_free_and_the_script_continues() {
    let env = TestEnv::new();
    let gate = env.gate("gate");
    let text = "eval \"$(dlock acquire --name x --for-pid $$)\" || exit; dlock release; echo $? >first; \
                dlock release 2>second; echo $? >>second; sleep 1000 & echo $! >daemon; echo up >up; \
                read _ <gate; exit 5";
    let running = env.start(&mut script(&env, text));
    env.await_line("up");
    assert_eq!(env.read("first"), "0\n");
    let second = env.read("second");
    assert!(second.starts_with("dlock: claim ") && second.ends_with("\n76\n"), "{second}");
    env.assert_free("x");
    until_true("the end of dlock's processes", || env.processes().iter().all(|p| p.name != "lease-keeper"));
    gate.open();
    assert_eq!(running.finish().code(), Some(5));
    // The script had released its locks before.
    let daemon = env.await_line("daemon").parse().expect("a pid");
    assert!(is_alive(daemon), "a process started without the lock is not part of it");
}

#[test]
fn rest_of_a_script_is_ended_before_the_next_one_starts() {
    let env = TestEnv::new();
    let (tree, words) = Tree::words(&env, "tree");
    let words: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
    let text = format!(
        "eval \"$(dlock acquire --name x --for-pid $$ --grace 200ms)\" || exit; {} & \
         until [ -s tree.tree ]; do sleep 0.01; done; echo up >up; read _ <gate; exit 5",
        words.join(" ")
    );
    let gate = env.gate("gate");
    let running = env.start(&mut script(&env, &text));
    let members = tree.await_grown(&env);
    env.await_line("up");
    let (overlap, words) = Overlap::words(&env, &members);
    let waiter = env.start(env.run(["-q", "--name", "x", "--"]).args(words));
    env.await_waiters("x", 1);
    gate.open();
    assert_eq!(running.finish().code(), Some(5));
    assert_eq!(waiter.finish().code(), Some(0));
    overlap.assert_none(&env);
    env.assert_free("x");
    env.await_no_process();
}

#[test]
fn subshells_of_another_run_of_a_script_are_outside_its_tree() {
    let env = TestEnv::new();
    let text = "[ $who = first ] || { (while :; do sleep 0.01; done) & echo $! >subshell; }; \
                eval \"$(dlock acquire --name x --for-pid $$ --grace 0)\" || exit; echo up >up.$who; read _ <gate";
    let gate = env.gate("gate");
    let first = env.start(script(&env, text).env("who", "first"));
    env.await_line("up.first");
    let second = env.start(script(&env, text).env("who", "second"));
    env.await_waiters("x", 1);
    let subshell = env.await_line("subshell").parse().expect("a pid");
    first.signal(Signal::KILL);
    env.await_line("up.second");
    assert!(is_alive(subshell));
    gate.open();
    assert_eq!(second.finish().code(), Some(0));
    assert_eq!(first.finish().signal(), Some(9));
    process::signal(subshell, Signal::KILL);
    env.await_no_process();
}

#[test]
fn dying_process_with_open_files_delays_release() {
    // The kernel frees the memory of a dying process, including its environment, before it closes the files.
    const HUGE: &str = "import fcntl, os, sys, time
file = open(sys.argv[1], 'w')
fcntl.flock(file, fcntl.LOCK_EX)
memory = b'x' * (256 << 20)
open(sys.argv[2], 'w').write('up\\n')
time.sleep(1000)";
    let env = TestEnv::new();
    let python = TestEnv::python();
    env.write("huge.py", HUGE);
    let text = format!(
        "eval \"$(dlock acquire --name x --for-pid $$ --grace 0)\" || exit; \
         sleep 1000 & (setsid {python} huge.py file up.huge &); until [ -s up.huge ]; do sleep 0.01; done; echo up >up; read _ <gate; exit 5",
    );
    let gate = env.gate("gate");
    let running = env.start(&mut script(&env, &text));
    env.await_line("up");
    let waiter = env.start(&mut env.run(["-q", "--name", "x", "--", "flock", "-n", "file", "true"]));
    env.await_waiters("x", 1);
    gate.open();
    assert_eq!(running.finish().code(), Some(5));
    assert_eq!(waiter.finish().code(), Some(0), "the killed process still had its files");
    env.await_no_process();
}

#[test]
fn killed_dlock_process_ends_the_script_and_its_tree() {
    let _alone = quiet::measuring();
    for victim in ["front", "keeper"] {
        let env = TestEnv::new();
        let (tree, words) = Tree::words(&env, "tree");
        let words: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
        // Half of the tree is older than the lock and has no claim in its environment.
        let text = format!(
            "sleep 1000 & eval \"$(dlock acquire --name x --for-pid $$)\" || exit; {} & wait",
            words.join(" ")
        );
        let running = env.start(&mut script(&env, &text));
        let members = tree.await_grown(&env);
        let (front, keeper) = pair(&env);
        let begun = Instant::now();
        process::signal(if victim == "front" { front.pid } else { keeper.pid }, Signal::KILL);
        until_true("the end of the tree", || members.iter().all(|p| !is_alive(p.pid)));
        assert_eq!(running.finish().signal(), Some(9), "{victim}");
        within(begun.elapsed(), Duration::from_millis(500));
        env.await_no_process();
        env.assert_free("x");
    }
}

#[test]
fn release_of_a_foreign_or_wrong_claim_exits_76() {
    let env = TestEnv::new();
    let holder = env.held(&["--name", "x"]);
    let gate = env.gate("gate");
    let text =
        "eval \"$(dlock acquire --name y --for-pid $$)\" || exit; echo \"$DLOCK_CLAIM\" >claim; read _ <gate";
    let running = env.start(&mut script(&env, text));
    let claim = env.await_line("claim");
    for verb in ["release", "renew"] {
        let asked = |claim: &str, name: &str| env.finish(&mut env.verb(verb, [claim, "--name", name]));
        asked(holder.claim(), "x").failed(76, &["not taken by dlock acquire"]);
        asked("0123456789abcdef", "y").failed(76, &["0123456789abcdef"]);
        asked(&claim, "x").failed(76, &[&claim]);
        asked("0123", "y").failed(64, &["CLAIM"]);
    }
    env.finish(&mut env.verb("renew", [&claim[..8], "--name", "y"])).silently(0);
    // The entry is that of the script.
    let entry = env.status("y")["holders"][0].clone();
    assert_eq!((&entry["pid"], &entry["command"]), (&running.pid().into(), &"bash".into()));
    assert_eq!((env.holders("x"), env.holders("y")), (1, 1));
    // `release` also takes the first digits of the claim, and works from outside the script.
    env.finish(&mut env.verb("release", [&claim[..8], "--name", "y"])).silently(0);
    env.assert_free("y");
    gate.open();
    assert_eq!(running.finish().code(), Some(0));
    holder.release().silently(0);
}

#[test]
fn several_names_are_one_claim() {
    // memcached cannot change several items in one step.
    let Some(env) = Some(TestEnv::new()).filter(|env| env.service().backend != "memcached") else { return };
    let text = "claim=$(dlock acquire --name x --name \"it's\\\\y\" --for-pid $$) || exit; eval \"$claim\"; \
                echo \"$DLOCK_NAMES\" >names; dlock status \"it's\\\\y\" --exit-code >held; echo $? >>held; \
                dlock release && echo released >up";
    let running = env.start(&mut script(&env, text));
    env.await_line("up");
    assert_eq!(running.finish().code(), Some(0));
    assert_eq!(env.read("names"), "x\nit's\\y\n");
    assert!(env.read("held").ends_with("\n75\n"), "{}", env.read("held"));
    env.assert_free("x");
    env.assert_free("it's\\y");
}

#[test]
fn names_of_an_earlier_claim_are_not_those_of_this_one() {
    // memcached cannot change several items in one step.
    let Some(env) = Some(TestEnv::new()).filter(|env| env.service().backend != "memcached") else { return };
    let text = "export DLOCK_NAMES=earlier; dlock acquire --name x --name y --format env --for-pid $$ >new || exit; \
                while read -r line; do export \"$line\"; done <new; dlock renew && dlock release";
    env.finish(&mut script(&env, text)).silently(0);
}

#[test]
fn release_waits_for_nested_runs() {
    let env = TestEnv::new();
    let (gate, inner) = (env.gate("gate"), env.gate("inner"));
    let text = "eval \"$(dlock acquire --name x --for-pid $$)\" || exit; \
                dlock run --name x -- sh -c 'echo up >up; read _ <inner; echo over >order' & \
                until [ -s up ]; do sleep 0.01; done; dlock release; echo released >>order; echo >done; read _ <gate";
    let running = env.start(&mut script(&env, text));
    env.await_line("up");
    let releases = |env: &TestEnv| {
        let asked = |p: &Process| {
            let line = std::fs::read_to_string(format!("/proc/{}/cmdline", p.pid)).unwrap_or_default();
            line.contains("\0release\0")
        };
        env.processes().iter().any(asked)
    };
    until_true("a release", || releases(&env));
    env.assert_busy("x");
    inner.open();
    until_true("the end of the release", || env.exists("done"));
    assert_eq!(env.read("order"), "over\nreleased\n");
    env.assert_free("x");
    gate.open();
    assert_eq!(running.finish().code(), Some(0));
}

#[test]
fn a_second_claim_under_an_own_one_is_refused_at_once() {
    let env = TestEnv::new();
    for first in
        ["eval \"$(dlock acquire --name x --for-pid $$)\"", "_=$(dlock acquire --name x --for-pid $$)"]
    {
        let text =
            format!("{first} || exit; eval \"$(dlock acquire --name x --for-pid $$)\" || exit; echo on >on");
        let ended = env.finish(&mut script(&env, &text));
        assert_eq!(ended.code(), Some(75), "{}", ended.err);
        assert!(!env.exists("on") && ended.err.contains("would never end"), "{}", ended.err);
        env.await_no_process();
        env.assert_free("x");
    }
}

/// Starts an `acquire` that waits for x, for the process `pid`.
fn waiting(env: &TestEnv, pid: i32) -> Running {
    let waiter = env.start(&mut env.verb("acquire", ["-q", "--name", "x", "--for-pid", &pid.to_string()]));
    env.await_waiters("x", 1);
    waiter
}

#[test]
fn interrupted_wait_leaves_the_queue() {
    let env = TestEnv::new();
    let holder = env.held(&["--name", "x"]);
    // The wait ends with a signal that `acquire` can handle, with SIGKILL, and with the process that it waits for.
    for signal in [Signal::TERM, Signal::KILL] {
        let sleeper = env.start(env.command("sleep").arg("1000"));
        let waiter = waiting(&env, sleeper.pid());
        waiter.signal(signal);
        let ended = waiter.finish();
        assert_eq!(ended.signal(), Some(signal.as_raw()));
        assert_eq!(ended.text(), if signal == Signal::TERM { "sh -c 'exit 143'\n" } else { "" });
        env.await_waiters("x", 0);
        assert!(is_alive(sleeper.pid()), "it had no lock to lose");
        let waiter = waiting(&env, sleeper.pid());
        sleeper.signal(Signal::KILL);
        assert_eq!(waiter.finish().signal(), Some(1));
        env.await_waiters("x", 0);
    }
    holder.release().silently(0);
    env.await_no_process();
    env.assert_free("x");
}

#[test]
fn a_suspended_wait_joins_the_queue_again() {
    let env = TestEnv::new();
    let holder = env.held(&["--name", "x"]);
    let gate = env.gate("gate");
    let sleeper = env.start(env.command("sh").args(["-c", "read _ <gate"]));
    let waiter = waiting(&env, sleeper.pid());
    waiter.signal(Signal::TSTP);
    until_true("a stopped wait", || is_stopped(waiter.pid()));
    assert_eq!(env.waiters("x"), 0);
    waiter.signal(Signal::CONT);
    env.await_waiters("x", 1);
    // The same again, but the waiter is killed while it is stopped.
    waiter.signal(Signal::TSTP);
    until_true("a stopped wait", || is_stopped(waiter.pid()));
    waiter.signal(Signal::KILL);
    assert_eq!(waiter.finish().signal(), Some(9));
    gate.open();
    sleeper.finish().silently(0);
    holder.release().silently(0);
    env.await_no_process();
    env.assert_free("x");
}

#[test]
fn script_acquires_repeatedly_and_reads_all_output() {
    let env = TestEnv::new();
    // If a process of dlock kept the pipe of a substitution open, the substitution would not end.
    let text = "for n in 1 2 3 4; do c=$(dlock acquire --name x --for-pid $$ 2>&1) || exit; eval \"$c\"; \
                echo \"${#DLOCK_HELD}\" >>lengths; dlock release || exit; done; \
                eval \"$(dlock acquire --name x --for-pid $$)\" || exit; dlock run --name x -- sh -c 'exit 6'";
    assert_eq!(env.finish(&mut script(&env, text)).code(), Some(6));
    let lengths = env.read("lengths");
    let lengths: Vec<usize> = lengths.lines().map(|line| line.parse().expect("a length")).collect();
    // The lengths vary with the digits of PIDs and of the numbers of descriptors and files.
    assert!(lengths.len() == 4 && lengths[3] < lengths[0] + 40, "{lengths:?}");
    env.await_no_process();
    env.assert_free("x");
}
