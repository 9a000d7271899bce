//! Lock files that other programs plant, remove or make fail.

use std::fs;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::Signal;

use crate::support::process::{self, is_alive};
use crate::support::wait::until_true;
use crate::support::{TestEnv, within};

fn plant_fifo(env: &TestEnv, name: &str) {
    mknodat(CWD, env.locks().join(name), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a FIFO");
}

#[test]
fn planted_fifo_blocks_no_command() {
    let env = TestEnv::new();
    plant_fifo(&env, ".x.queue");
    plant_fifo(&env, "y");
    assert!(env.finish(&mut env.verb::<&str>("list", [])).code() == Some(0));
    env.finish(&mut env.verb("status", ["x"])).failed(73, &[".x.queue", "FIFO"]);
    for name in ["x", "y"] {
        env.finish(&mut env.run(["--name", name, "--", "touch", "started"])).failed(73, &["FIFO"]);
    }
    assert!(!env.exists("started"));
    // A nested run that waits scans every queue for a cycle.
    let holder = env.held(&["--name", "b"]);
    let script = r#"exec "$dlock" run --endpoint "$locks" --name b -n -- true"#;
    env.finish(&mut env.run(["--name", "a", "--", "sh", "-c", script])).failed(75, &["b"]);
    holder.release().silently(0);
}

#[test]
fn a_planted_mark_is_not_waited_for() {
    let env = TestEnv::new();
    plant_fifo(&env, "trap");
    let script = r#"DLOCK_HELD=$(printf %s "$DLOCK_HELD" | sed "s#/proc/[0-9]*/fd/[0-9]*#$locks/trap#")
        exec "$dlock" run --endpoint "$locks" --name x --wait 300ms -- true"#;
    let ended = env.finish(&mut env.run(["--name", "x", "--", "sh", "-c", script]));
    assert_eq!(ended.code(), Some(75), "{}", ended.err);
}

#[test]
fn removed_lock_file_ends_the_command_at_once() {
    for file in ["x", ".x.queue"] {
        let env = TestEnv::new();
        let holder = env.held(&["--name", "x", "--grace", "1h"]);
        // The removal may come before the hold is settled, or after.
        fs::remove_file(env.locks().join(file)).expect("a lock file");
        let begun = Instant::now();
        until_true("the end of the command", || !is_alive(holder.command()));
        within(begun.elapsed(), Duration::from_millis(500));
        assert!(begun.elapsed() < Duration::from_secs(9), "a renewal told it");
        holder.running.finish().failed(76, &["removed or replaced"]);
    }
}

#[test]
fn a_mount_over_the_path_ends_the_command_at_the_next_renewal() {
    let env = TestEnv::new();
    let script = r#"
        mkdir -p over/locks app/locks
        "$dlock" run --endpoint app/locks --name x --ttl 6s --grace 0 -- sleep 60 & front=$!
        until read -r keeper _ </proc/$front/task/$front/children; ls -l /proc/$keeper/fd 2>/dev/null | grep -q inotify; do
            kill -0 $front || exit 98; sleep 0.02
        done
        mount --bind over app || { kill $front; exit 99; }
        touch mounted; wait $front"#;
    let mut running = env.start(env.command("unshare").args(["--mount", "bash", "-c", script]));
    until_true("a mount, or a refusal", || env.exists("mounted") || running.has_ended());
    if !env.exists("mounted") {
        let refused = running.finish();
        assert!(refused.code() != Some(98), "{}", refused.err);
        return eprintln!("skipped: no mount may be made here: {}", refused.err);
    }
    let begun = Instant::now();
    let ended = running.finish();
    within(begun.elapsed(), Duration::from_secs(2));
    ended.failed(76, &["removed or replaced"]);
}

#[test]
fn without_inotify_the_next_renewal_looks_and_verbosity_says_so() {
    let env = TestEnv::new();
    let script = r#"echo 0 >/proc/sys/user/max_inotify_instances || exit 99
        exec "$dlock" run --endpoint "$locks" --name x --ttl 6s -v -- sh -c 'echo $$ >pid; sleep 60'"#;
    let running = env.start(env.command("unshare").args(["--user", "--map-root-user", "bash", "-c", script]));
    let mut running = running;
    until_true("a start, or a refusal", || env.exists("pid") || running.has_ended());
    if !env.exists("pid") {
        return eprintln!("skipped: no user namespace may be made here: {}", running.finish().err);
    }
    env.await_line("pid");
    until_true("a word about inotify", || running.err_so_far().contains("inotify"));
    fs::remove_file(env.locks().join("x")).expect("a lock file");
    let begun = Instant::now();
    let ended = running.finish();
    within(begun.elapsed(), Duration::from_secs(2));
    assert!(ended.code() == Some(76) && ended.err.contains("removed or replaced"), "{}", ended.err);
}

#[test]
fn full_file_system_serves_waiters_and_refuses_newcomers() {
    let env = TestEnv::new();
    let script = r#"
        mkdir small && mount -t tmpfs -o size=32k,nr_inodes=64 none small || exit 99
        run() { "$dlock" run --endpoint small "$@"; }
        run --name x -- sh -c 'echo up >ready; until [ -e full ]; do sleep 0.02; done' & first=$!
        until [ -e ready ]; do sleep 0.02; done
        run --name x -- touch second & second=$!
        until "$dlock" status --endpoint small --json x | grep -q '"waiters":\[{'; do sleep 0.02; done
        cat /dev/zero >small/filler 2>/dev/null
        run --name "$(printf 'y%.0s' $(seq 150))" -- touch newcomer; code=$?
        touch full; wait $first && wait $second || code=1
        rm small/filler; run --name x -n -- true || code=2
        umount small; exit $code"#;
    let ended = env.finish(env.command("unshare").args(["--mount", "bash", "-c", script]));
    if ended.code() == Some(99) {
        return eprintln!("skipped: no mount may be made here: {}", ended.err);
    }
    assert_eq!(ended.code(), Some(73), "{}", ended.err);
    assert!(ended.err.contains("small/") && ended.err.contains("make room"), "{}", ended.err);
    assert!(env.exists("second") && !env.exists("newcomer"), "{}", ended.err);
}

#[test]
fn descriptor_kept_by_an_agent_is_traced_to_its_process() {
    let env = TestEnv::new();
    // The agent has left the tree that the kernel kills with the keeper.
    let script = "(setsid sleep 1000 & echo $! >agent); echo up >up; exec sleep 1000";
    let running = env.start(&mut env.run(["--name", "x", "--", "sh", "-c", script]));
    env.await_line("up");
    let agent: i32 = env.await_line("agent").parse().expect("a pid");
    let keeper = running.keeper();
    if !process::kill_at_once(&[keeper, running.pid()]) {
        process::signal(agent, Signal::KILL);
        return;
    }
    until_true("the end of all but the agent", || !is_alive(keeper) && !is_alive(running.pid()));
    until_true("the end of the command", || env.status("x")["holders"][0]["pid"] == agent);
    let named = agent.to_string();
    env.finish(&mut env.run(["-n", "--name", "x", "--", "true"])).failed(75, &[&named]);
    env.finish(&mut env.verb("break", ["x", "--yes", "--force"])).failed(64, &[&named]);
    process::signal(agent, Signal::KILL);
    until_true("a free lock", || env.holders("x") == 0);
    env.assert_free("x");
}
