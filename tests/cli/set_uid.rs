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

/// Starts the script with a /proc that is mounted with `hidepid`. Returns `None` if the test cannot mount one.
fn start(env: &TestEnv, hidepid: u32) -> Option<Running> {
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
    let user = format!("exec setsid setpriv --reuid {UID} --regid {UID} --clear-groups sh script");
    let mut command = env.command("unshare");
    let mut running = env.start(command.args(["--mount", "sh", "-c", &format!("{mount}; {user}")]));
    until_true("a child, or a refusal", || env.exists("shared/child") || running.has_ended());
    if !env.exists("shared/child") {
        eprintln!("skipped: no /proc may be mounted here: {}", running.finish().err);
        return None;
    }
    Some(running)
}

#[test]
fn a_set_uid_child_of_a_killed_script_keeps_the_lock() {
    for hidepid in [0, 1, 2] {
        let env = TestEnv::new();
        let Some(running) = start(&env, hidepid) else { return };
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
        let Some(running) = start(&env, hidepid) else { return };
        let child = env.await_line("shared/child").parse().expect("a pid");
        process::signal(child, Signal::KILL);
        assert_eq!(running.finish().code(), Some(0));
        until_true("a free lock", || env.holders("x") == 0);
        env.await_no_process();
    }
}
