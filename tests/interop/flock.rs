//! dlock and flock(1) exclude each other, holding and waiting, exclusive and shared.

use std::os::unix::fs::MetadataExt;
use std::process::Command;

use crate::support::gate::Gate;
use crate::support::running::finish_all;
use crate::support::wait::until_true;
use crate::support::{Running, TestEnv, process};

/// Returns the file that dlock locks for the name x.
fn file(env: &TestEnv) -> String {
    file_of(env, "x")
}

fn file_of(env: &TestEnv, name: &str) -> String {
    env.locks().join(name).display().to_string()
}

fn flock(env: &TestEnv, words: &[&str]) -> Command {
    let mut command = env.command("flock");
    command.args(words);
    command
}

/// Starts a flock(1) with `options` whose command runs, and returns the gate at which the command waits.
fn held_by_flock(env: &TestEnv, options: &[&str]) -> (Running, Gate) {
    name_held_by_flock(env, "x", options)
}

fn name_held_by_flock(env: &TestEnv, name: &str, options: &[&str]) -> (Running, Gate) {
    let gate = env.gate(&format!("{name}.gate"));
    let mut command = flock(env, options);
    let script = format!("echo up >{name}.up; read _ <{name}.gate");
    command.args([&file_of(env, name), "sh", "-c", &script]);
    let running = env.start(&mut command);
    env.await_line(&format!("{name}.up"));
    (running, gate)
}

/// Waits until a process waits for the lock file of `name`.
fn await_waiting_thread(env: &TestEnv, name: &str) {
    let inode = std::fs::metadata(file_of(env, name)).expect("a lock file").ino();
    let file = format!(":{inode} ");
    until_true("a thread that waits for the file", || {
        let locks = std::fs::read_to_string("/proc/locks").expect("the kernel's locks");
        locks.lines().any(|line| line.contains("->") && line.contains(&file))
    });
}

/// Starts a flock(1) that waits: it is blocked in the system call.
fn waiting_flock(env: &TestEnv, options: &[&str], script: &str) -> Running {
    let mut command = flock(env, options);
    let running = env.start(command.args([&file(env), "sh", "-c", script]));
    until_true("a flock that waits", || {
        let waits = std::fs::read_to_string(format!("/proc/{}/syscall", running.pid())).unwrap_or_default();
        waits.starts_with(&format!("{SYS_FLOCK} ")) || {
            // If that file is not readable: asleep without a child.
            process::look(running.pid()).is_some_and(|p| p.name == "flock" && p.state == 'S')
                && process::children(running.pid()).is_empty()
        }
    });
    running
}

#[cfg(target_arch = "x86_64")]
const SYS_FLOCK: u32 = 73;
#[cfg(not(target_arch = "x86_64"))]
const SYS_FLOCK: u32 = 32;

#[test]
fn a_hold_of_dlock_keeps_flock_out() {
    let env = TestEnv::new();
    let table = [("-x", &["-x", "-s"][..], &[][..]), ("-s", &["-x"], &["-s"]), ("--slots=2", &["-x"], &[])];
    for (mode, locked_out, let_in) in table {
        let holder = env.held(&["--name", "x", mode]);
        for option in locked_out {
            env.finish(&mut flock(&env, &["-n", option, &file(&env), "true"])).silently(1);
        }
        for option in let_in {
            env.finish(&mut flock(&env, &["-n", option, &file(&env), "true"])).silently(0);
        }
        holder.release().silently(0);
        env.finish(&mut flock(&env, &["-n", &file(&env), "true"])).silently(0);
    }
}

#[test]
fn a_hold_of_flock_keeps_dlock_out() {
    let table =
        [("-x", "-x", 75), ("-x", "-s", 75), ("-x", "--slots=2", 75), ("-s", "-x", 75), ("-s", "-s", 0)];
    for (option, mode, code) in table {
        let env = TestEnv::new();
        env.assert_free("x");
        let (running, gate) = held_by_flock(&env, &[option]);
        let ended = env.finish(&mut env.run(["-n", "--name", "x", mode, "--", "true"]));
        assert_eq!(ended.code(), Some(code), "flock {option}, dlock {mode}: {}", ended.err);
        gate.open();
        running.finish().silently(0);
        env.assert_free("x");
    }
}

#[test]
fn dlock_waits_for_flock_and_starts_after_it() {
    for mode in ["-x", "-s"] {
        let env = TestEnv::new();
        env.assert_free("x");
        let (running, gate) = held_by_flock(&env, &[]);
        let waiter =
            env.start(&mut env.run(["-q", "--name", "x", mode, "--", "sh", "-c", "[ -e over ] && exit 7"]));
        env.await_waiters("x", 1);
        env.write("over", "");
        gate.open();
        running.finish().silently(0);
        waiter.finish().silently(7);
        env.assert_free("x");
    }
}

#[test]
fn flock_waits_for_dlock_and_starts_after_it() {
    for option in ["-x", "-s"] {
        let env = TestEnv::new();
        let holder = env.held(&["--name", "x"]);
        let waiting = waiting_flock(&env, &[option], "echo ran >>log; exit 7");
        assert_eq!(env.read("log"), "");
        holder.release().silently(0);
        waiting.finish().silently(7);
        assert_eq!(env.read("log"), "ran\n");
        env.assert_free("x");
    }
}

#[test]
fn the_descriptor_style_of_scripts_excludes_and_is_excluded() {
    let env = TestEnv::new();
    let gate = env.gate("gate");
    let script = r#"exec 9>"$locks/x"; flock 9; echo up >ready; read _ <gate; flock -u 9; echo off >off; read _ <gate"#;
    env.assert_free("x");
    let running = env.start(&mut env.bash(script));
    env.await_line("ready");
    env.assert_busy("x");
    gate.open();
    env.await_line("off");
    // The lock is released, though the file is still open.
    env.assert_free("x");
    gate.open();
    running.finish().silently(0);
    let holder = env.held(&["--name", "x"]);
    env.finish(&mut env.bash(r#"exec 9>"$locks/x"; flock -w 0.2 9"#)).silently(1);
    holder.release().silently(0);
}

#[test]
fn names_are_files_as_documented() {
    let env = TestEnv::new();
    for (name, file) in
        [("plain-1.2_3", "plain-1.2_3"), ("a/b c", "a%2Fb%20c"), (".hidden", "%2Ehidden"), ("ü", "%C3%BC")]
    {
        let holder = env.held(&["--name", name]);
        let path = env.locks().join(file).display().to_string();
        assert!(env.locks().join(file).exists(), "{name} is no {file}");
        env.finish(&mut flock(&env, &["-n", &path, "true"])).silently(1);
        holder.release().silently(0);
    }
}

#[test]
fn under_flock_an_unprotected_counter_and_dlock_lose_no_update() {
    let env = TestEnv::new();
    env.write("counter", "0\n");
    let script = "read n <counter; sleep 0.001; echo $((n + 1)) >counter";
    let running: Vec<_> = (0..60)
        .map(|n| {
            let mut command = if n % 2 == 0 {
                let mut command = env.command("flock");
                command.args([&file(&env), "sh", "-c", script]);
                command
            } else {
                env.run(["-q", "--name", "x", "--", "sh", "-c", script])
            };
            env.start(&mut command)
        })
        .collect();
    finish_all(running);
    assert_eq!(env.read("counter"), "60\n");
    env.assert_free("x");
}

/// A client of flock(1) that has one file and asks for the other would otherwise wait for dlock, which waits for it.
#[test]
fn while_dlock_waits_for_one_file_the_others_are_free() {
    for mode in ["-x", "-s", "--slots=1"] {
        let env = TestEnv::new();
        let (at_b, b_gate) = name_held_by_flock(&env, "b", &[]);
        let options = ["-q", mode, "--name", "a", "--name", "b", "--wait", "20", "--", "sh", "-c", "exit 7"];
        let waiter = env.start(&mut env.run(options));
        await_waiting_thread(&env, "b");
        let (at_a, a_gate) = name_held_by_flock(&env, "a", &["-n"]);
        b_gate.open();
        at_b.finish().silently(0);
        // dlock has got b, and has found that a is not free.
        await_waiting_thread(&env, "a");
        for _ in 0..20 {
            env.finish(&mut flock(&env, &["-n", &file_of(&env, "b"), "true"])).silently(0);
        }
        let status = env.status("b");
        assert_eq!(status["holders"][0]["foreign"], false, "{status}");
        a_gate.open();
        at_a.finish().silently(0);
        waiter.finish().silently(7);
        env.assert_free("a");
        env.assert_free("b");
    }
}

/// Only a process that has a flock can release it.
#[test]
fn hold_of_flock_is_unbreakable_and_its_process_is_named() {
    let env = TestEnv::new();
    env.assert_free("x");
    let (running, gate) = held_by_flock(&env, &["--no-fork"]);
    let status = env.status("x");
    assert_eq!(status["holders"][0]["foreign"], true, "{status}");
    let claim =
        status["holders"][0]["claim"].as_str().unwrap_or_else(|| panic!("a claim in {status}")).to_owned();
    let pid = format!("process {}", running.pid());
    for options in [&[] as &[&str], &["--all"], &["--claim", &claim]] {
        let mut command = env.verb("break", ["x", "--yes"]);
        env.finish(command.args(options)).failed(64, &["another client", &pid]);
        let mut command = env.verb("break", ["x", "--yes", "--force"]);
        env.finish(command.args(options)).failed(64, &[&pid, &file(&env), "flock"]);
    }
    env.assert_busy("x");
    gate.open();
    running.finish().silently(0);
    env.finish(&mut env.verb("break", ["x", "--yes", "--force", "--claim", &claim])).failed(76, &[]);
    env.assert_free("x");
}
