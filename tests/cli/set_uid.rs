//! A script that starts a set-uid program. An unprivileged dlock may not read its memory and environment.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};

use rustix::process::Signal;

use crate::directory::{UID, as_nobody};
use crate::support::process::{self, is_alive};
use crate::support::wait::until_true;
use crate::support::{Running, TestEnv};

/// Acquires a lock and starts the set-uid program in the background, in the place of `sudo`.
const SCRIPT: &str = r#"claim=$(./dlock acquire --endpoint "$locks" --name x --grace 0 --for-pid $$) || exit
    eval "$claim"; ./set-uid 1000 & echo $! >shared/child; wait"#;

/// Starts the script in a session of its own.
const ALONE: &str = "exec $as_user sh script";

/// Starts the script in a session of root. Another process of root in that session is not of the script's tree, and
/// becomes the script's user when the gate is opened.
const BESIDE: &str = r"mkfifo shared/gate; $as_user sh script & script=$!
    until [ -s shared/child ]; do sleep 0.05; done
    (read word <shared/gate; exec $as_user sleep 1000) & echo $! >shared/other; echo $script >shared/script; wait";

/// Starts `session` as root, leading a session, with a /proc that is mounted with `hidepid`. Returns `None` if the
/// test cannot mount one.
fn start(env: &TestEnv, hidepid: u32, session: &str) -> Option<Running> {
    as_nobody(env, &[])?;
    fs::create_dir_all(env.path("shared")).expect("a directory");
    for folder in [env.path("shared"), env.locks()] {
        fs::set_permissions(folder, fs::Permissions::from_mode(0o1777)).expect("for all users");
    }
    let program = env.path("set-uid");
    env.finish(env.command("cp").args(["/bin/sleep", "set-uid"])).silently(0);
    chown(&program, Some(UID + 1), None).expect("another user's");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).expect("a set-uid program");
    env.write("script", SCRIPT);
    let mount =
        format!("mount -t proc -o hidepid={hidepid} none /proc || exit 99; cd {}", env.root().display());
    let session = format!("as_user='setpriv --reuid {UID} --regid {UID} --clear-groups'; {session}");
    let mut command = env.command("unshare");
    command.args(["--mount", "sh", "-c", &format!("{mount}; exec sh -c \"$0\""), &session]);
    let mut running = env.start(&mut command);
    until_true("a child, or a refusal", || env.exists("shared/child") || running.has_ended());
    if !env.exists("shared/child") {
        let refused = running.finish();
        assert_ne!(refused.code(), Some(0), "{}", refused.err);
        eprintln!("skipped: no /proc may be mounted here: {}", refused.err);
        return None;
    }
    Some(running)
}

#[test]
fn a_set_uid_child_of_a_killed_script_keeps_the_lock() {
    for hidepid in [0, 1, 2] {
        let env = TestEnv::new();
        let Some(running) = start(&env, hidepid, ALONE) else { return };
        let child = env.await_line("shared/child").parse().expect("a pid");
        running.signal(Signal::KILL);
        assert_eq!(running.finish().signal(), Some(9));
        crate::support::wait::let_pass(std::time::Duration::from_millis(500));
        assert!(is_alive(child), "it belongs to another user, and may be none of the tree");
        env.assert_busy("x");
        process::signal(child, Signal::KILL);
        until_true("a free lock", || env.holders("x") == 0);
        env.await_no_process();
    }
}

#[test]
fn where_proc_hides_others_a_lock_is_released_at_once() {
    for hidepid in [1, 2] {
        let env = TestEnv::new();
        let Some(running) = start(&env, hidepid, ALONE) else { return };
        let child = env.await_line("shared/child").parse().expect("a pid");
        process::signal(child, Signal::KILL);
        assert_eq!(running.finish().code(), Some(0));
        until_true("a free lock", || env.holders("x") == 0);
        env.await_no_process();
    }
}

#[test]
fn a_hidden_process_keeps_the_lock_until_its_origin_is_known() {
    for (hidepid, opens) in [(2, true), (1, true), (2, false)] {
        if !opens && !has_parents_of_hidden() {
            continue;
        }
        let env = TestEnv::new();
        let Some(running) = start(&env, hidepid, BESIDE) else { return };
        let [script, other, child] = ["script", "other", "child"]
            .map(|name| env.await_line(&format!("shared/{name}")).parse::<i32>().expect("a pid"));
        for killed in [script, child] {
            process::signal(killed, Signal::KILL);
        }
        if opens {
            crate::support::wait::let_pass(std::time::Duration::from_millis(500));
            fs::write(env.path("shared/gate"), "go\n").expect("a gate");
        }
        until_true("a free lock", || env.holders("x") == 0);
        assert!(is_alive(other), "it belongs to no tree");
        process::signal(other, Signal::KILL);
        running.finish().silently(0);
        env.await_no_process();
    }
}

/// Returns whether this kernel tells the parent of a process that /proc hides: Linux 6.13.
fn has_parents_of_hidden() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").expect("a release");
    let mut numbers = release.split('.').map(|number| number.parse::<u32>().unwrap_or(0));
    (numbers.next(), numbers.next()) >= (Some(6), Some(13))
}
