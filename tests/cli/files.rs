//! Lock files that other programs plant, remove or make fail.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::Signal;

use crate::support::process::{self, is_alive};
use crate::support::wait::{let_pass, until_true};
use crate::support::{TestEnv, within};

/// A kind of file, and a way to make one.
type Plant = (&'static str, fn(&Path));

#[test]
fn planted_file_blocks_no_command() {
    let plants: [Plant; 4] = [
        ("a FIFO", |path| mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a FIFO")),
        ("a socket", |path| drop(UnixListener::bind(path).expect("a socket"))),
        ("a directory", |path| fs::create_dir(path).expect("a directory")),
        ("a symbolic link", |path| symlink("/proc/self/status", path).expect("a link")),
    ];
    for (what, plant) in plants {
        let env = TestEnv::new();
        for file in [".x.queue", "y", ".z.fifo"] {
            plant(&env.locks().join(file));
        }
        env.finish(&mut env.verb("list", ["-q"])).silently(0);
        env.finish(&mut env.verb("status", ["x"])).failed(73, &[".x.queue", what]);
        for name in ["x", "y"] {
            env.finish(&mut env.run(["--name", name, "--", "touch", "started"])).failed(73, &[what]);
        }
        assert!(!env.exists("started"));
        let holder = env.held(&["--name", "z"]);
        let waiter = env.start(&mut env.run(["-q", "--name", "z", "--", "true"]));
        env.await_waiters("z", 1);
        // A nested run that waits scans every queue for a cycle.
        let script = r#"exec "$dlock" run --endpoint "$locks" --name z -n -- true"#;
        env.finish(&mut env.run(["--name", "a", "--", "sh", "-c", script])).failed(75, &["z"]);
        holder.release().silently(0);
        waiter.finish().silently(0);
    }
}

#[test]
fn a_planted_mark_is_not_waited_for() {
    let env = TestEnv::new();
    let trap = env.locks().join("trap");
    mknodat(CWD, &trap, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a FIFO");
    let script = r#"DLOCK_HELD=$(printf %s "$DLOCK_HELD" | sed "s#/proc/[0-9]*/fd/[0-9]*#$locks/trap#")
        exec "$dlock" run --endpoint "$locks" --name x --wait 300ms -- true"#;
    let ended = env.finish(&mut env.run(["--name", "x", "--", "sh", "-c", script]));
    assert_eq!(ended.code(), Some(75), "{}", ended.err);
}

/// A way to lose a file of the lock directory.
type Loss = fn(&Path, &str);

const LOSSES: [Loss; 3] = [
    |at, file| fs::remove_file(at.join(file)).expect("removed"),
    |at, file| fs::rename(at.join(file), at.join("moved")).expect("moved"),
    |at, file| {
        fs::write(at.join("other"), "").expect("written");
        fs::rename(at.join("other"), at.join(file)).expect("replaced");
    },
];

/// Ways to lose the directory.
const LOSSES_OF_ALL: [Loss; 2] = [
    |at, _| fs::remove_dir_all(at).expect("removed"),
    |at, _| {
        fs::rename(at, at.with_extension("away")).expect("moved");
        fs::create_dir(at).expect("another one");
    },
];

#[test]
fn lost_lock_file_ends_the_command_at_once() {
    let files = ["x", ".x.queue", ".x.slot.1"];
    let of_files = LOSSES.iter().flat_map(|lose| files.map(|file| (lose, file)));
    for (lose, file) in of_files.chain(LOSSES_OF_ALL.iter().map(|lose| (lose, "directory"))) {
        for is_settled in [false, true] {
            let env = TestEnv::new();
            let holder = env.held(&["--name", "x", "--slots", "1", "--grace", "1h"]);
            if is_settled {
                let_pass(Duration::from_millis(400));
            }
            lose(&env.locks(), file);
            let begun = Instant::now();
            until_true("the end of the command", || !is_alive(holder.command()));
            within(begun.elapsed(), Duration::from_millis(500));
            assert!(begun.elapsed() < Duration::from_secs(9), "a renewal told it: {file}");
            let ended = holder.running.finish();
            let lines: Vec<&str> = ended.err.lines().collect();
            let told = lines.last().is_some_and(|line| line.contains("removed or replaced"));
            assert!(ended.code() == Some(76) && told, "{:?}: {}", ended.status, ended.err);
            // A directory that is replaced may be seen out of reach before.
            assert!(lines.len() == 1 || file == "directory", "{}", ended.err);
        }
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
