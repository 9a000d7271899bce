//! Properties of a lock directory that other backends do not have.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;

use rustix::process::{Pid, Resource, Rlimit, prlimit};

use crate::acquire::{pair, script};
use crate::support::process::is_alive;
use crate::support::wait::until_true;
use crate::support::{TestEnv, until};

/// A uid that no user of this machine has.
pub(super) const UID: u32 = 54_871;

/// Returns `dlock` as a user that owns nothing here. Returns `None` if the test's user cannot become another user.
pub(super) fn as_nobody(env: &TestEnv, words: &[&str]) -> Option<Command> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can become another user");
        return None;
    }
    // Other users may be unable to enter the directory of the program.
    let dlock = env.path("dlock");
    if !dlock.exists() {
        // `cp` copies, in a process of its own. A child forked meanwhile by another test would keep a file of this
        // process open for writing.
        env.finish(env.command("cp").arg(crate::support::test_env::dlock()).arg(&dlock)).silently(0);
        fs::set_permissions(&dlock, fs::Permissions::from_mode(0o755)).expect("for all users");
        fs::set_permissions(env.root(), fs::Permissions::from_mode(0o755)).expect("for all users");
    }
    let mut command = env.command("setpriv");
    command.args(["--reuid", &UID.to_string(), "--regid", &UID.to_string(), "--clear-groups", "--"]);
    command.arg(dlock).args(words);
    Some(command)
}

#[test]
fn unwritable_directory_is_an_error() {
    let env = TestEnv::new();
    let locks = env.locks().display().to_string();
    fs::set_permissions(env.locks(), fs::Permissions::from_mode(0o755)).expect("a closed directory");
    let words = ["run", "--endpoint", &locks, "--name", "x", "--", "true"];
    let Some(mut command) = as_nobody(&env, &words) else { return };
    env.finish(&mut command).failed(73, &[&locks]);
    env.assert_free("x");
}

#[test]
fn default_directory_must_be_private_and_no_link() {
    let default = format!("/var/tmp/dlock-{UID}");
    let env = TestEnv::new();
    let words = ["run", "--name", "x", "--", "id", "-u"];
    let Some(mut command) = as_nobody(&env, &words) else { return };
    let _ = fs::remove_dir_all(&default);
    // `status` prints where `run` would create the directory, and does not create it.
    let mut status = as_nobody(&env, &["status", "x"]).expect("another user");
    let looked = env.finish(&mut status).silently(0).text();
    assert_eq!(looked, format!("x: free (file {default}, which does not exist yet)\n"));
    assert!(!fs::exists(&default).expect("an answer"), "{default} is in the way");
    symlink(env.path("locks"), &default).expect("a link");
    let mut refused = vec![env.finish(&mut command)];
    fs::remove_file(&default).expect("the link is still there");
    fs::write(&default, "").expect("a file");
    refused.push(env.finish(&mut command));
    fs::remove_file(&default).expect("the file is still there");
    fs::create_dir(&default).expect("a directory of root's");
    fs::set_permissions(&default, fs::Permissions::from_mode(0o777)).expect("an open directory");
    refused.push(env.finish(&mut command));
    fs::remove_dir_all(&default).expect("the directory is still there");
    // If nothing is in the way, dlock creates the directory for this user alone.
    let made = env.finish(&mut command);
    let bits = fs::metadata(&default).map(|m| m.permissions().mode() & 0o777);
    for mode in [0o755, 0o770, 0o777, 0o1777] {
        fs::set_permissions(&default, fs::Permissions::from_mode(mode)).expect("the user's directory");
        refused.push(env.finish(&mut command));
    }
    let _ = fs::remove_dir_all(&default);
    for refused in refused {
        refused.failed(73, &[&default]);
    }
    assert_eq!((made.code(), made.text()), (Some(0), format!("{UID}\n")), "{}", made.err);
    assert_eq!(bits.expect("a directory"), 0o700);
}

#[test]
fn users_share_a_lock_through_a_shared_directory() {
    let env = TestEnv::new();
    fs::set_permissions(env.locks(), fs::Permissions::from_mode(0o1777)).expect("an open directory");
    let locks = env.locks().display().to_string();
    // Each of the two users can lock the file, no matter which one created it.
    for (name, root_is_first) in [("x", true), ("y", false)] {
        let words = ["run", "--endpoint", &locks, "-n", "--name", name, "--", "true"];
        let Some(mut command) = as_nobody(&env, &words) else { return };
        if !root_is_first {
            env.finish(&mut command).silently(0);
        }
        let holder = env.held(&["--name", name]);
        env.finish(&mut command).failed(75, &["held by"]);
        holder.release().silently(0);
        env.finish(&mut command).silently(0);
    }
    env.assert_free("x");
}

#[test]
fn list_shows_a_lock_with_an_unreadable_queue() {
    let env = TestEnv::new();
    fs::set_permissions(env.locks(), fs::Permissions::from_mode(0o777)).expect("an open directory");
    let locks = env.locks().display().to_string();
    let Some(mut list) = as_nobody(&env, &["list", "--endpoint", &locks, "--json"]) else { return };
    for file in ["evil", ".evil.queue"] {
        fs::write(env.locks().join(file), "").expect("a file");
        fs::set_permissions(env.locks().join(file), fs::Permissions::from_mode(0o600))
            .expect("a closed file");
    }
    let evil = fs::File::open(env.locks().join("evil")).expect("root may");
    evil.lock().expect("free");
    let holder = env.held(&["--name", "deploy"]);
    let listed = env.finish(&mut list).silently(0).text();
    for name in ["deploy", "evil"] {
        assert!(listed.contains(&format!("\"lock\":\"{name}\"")), "{listed}");
    }
    holder.release().silently(0);
}

#[test]
fn too_few_descriptors_is_71() {
    // The limits go from too few for the front, through too few for the keeper or the start, to enough.
    let mut refused = 0;
    for limit in 4..32 {
        let env = TestEnv::new();
        let script =
            format!(r#"ulimit -n {limit}; exec "$dlock" run --endpoint "$locks" --name x -- touch started"#);
        let finished = env.finish(&mut env.bash(&script));
        if finished.code() == Some(0) {
            assert!(env.exists("started"));
            continue;
        }
        refused += 1;
        let said = finished.failed(71, &[]).err;
        // The wording of glibc and of musl.
        let reasons = ["too many open files", "no file descriptors available"];
        let told = said.to_lowercase();
        assert!(reasons.iter().any(|reason| told.contains(reason)), "{said}");
        assert!(!env.exists("started"), "limit {limit}");
        env.await_no_process();
        env.assert_free("x");
    }
    assert!(refused > 3 && refused < 27, "{refused} limits were too low");
}

#[test]
fn too_little_memory_is_71() {
    let env = TestEnv::new();
    let mut refused = 0;
    for limit in (5000..36_000).rev().step_by(100) {
        let script = format!(r#"ulimit -v {limit}; exec "$dlock" run --endpoint "$locks" --name x -- true"#);
        let finished = env.finish(&mut env.bash(&script));
        // The loader and the C library fail in their own ways: it exits with 127, and the library aborts.
        match finished.code() {
            Some(127) => break,
            None => continue,
            _ => {}
        }
        if finished.code() != Some(0) {
            refused += 1;
            let said = finished.failed(71, &[]).err.to_lowercase();
            assert!(said.contains("memory"), "limit {limit}: {said}");
        }
        env.await_no_process();
    }
    assert!(refused > 3, "{refused} limits were too low");
    env.assert_free("x");
}

#[test]
fn front_ends_a_tree_hidden_from_the_keeper() {
    let env = TestEnv::new();
    let gate = env.gate("gate");
    let text = r#"eval "$(dlock acquire --name x --for-pid $$)" || exit
        setsid sleep 1000 & echo $! >worker; read _ <gate"#;
    let running = env.start(&mut script(&env, text));
    let worker: i32 = env.await_line("worker").parse().expect("a pid");
    let (_, keeper) = pair(&env);
    let none = Rlimit { current: Some(3), maximum: Some(3) };
    prlimit(Pid::from_raw(keeper.pid), Resource::Nofile, none).expect("a limit");
    gate.open();
    assert_eq!(running.finish().code(), Some(0));
    assert!(is_alive(worker));
    fs::remove_file(env.locks().join("x")).expect("the lock is lost");
    until_true("the end of the rest", || !is_alive(worker));
    env.await_no_process();
}

#[test]
fn queue_under_a_foreign_guard_is_no_busy_lock() {
    // `flock` stands for another dlock that was stopped while it changed the queue.
    let env = TestEnv::new();
    env.finish(&mut env.run(["--name", "x", "--", "true"])).silently(0);
    for wait in [&["--wait", "1s"][..], &["--try", "--ttl", "3s"]] {
        let script = format!(
            r#"flock "$locks/.x.queue" sh -c '"$dlock" run --endpoint "$locks" --name x {} -- touch started'"#,
            wait.join(" ")
        );
        env.finish(&mut env.bash(&script)).failed(69, &["x", "stopped"]);
        assert!(!env.exists("started"));
    }
    env.assert_free("x");
}

#[test]
fn a_token_outlives_the_counters_loss() {
    let env = TestEnv::new();
    let holder = env.held(&["--name", "x"]);
    let before = holder.token();
    holder.release().silently(0);
    for entry in std::fs::read_dir(env.locks()).expect("lock files").flatten() {
        if entry.file_type().expect("a type").is_file() && entry.file_name() != "x" {
            std::fs::remove_file(entry.path()).expect("a file beside the lock");
        }
    }
    let holder = env.held(&["--name", "x"]);
    assert!(holder.token() > before, "{} after {before}", holder.token());
    holder.release().silently(0);
}

#[test]
fn living_hold_is_not_removed_by_force_and_its_process_is_named() {
    for mode in ["--exclusive", "--shared", "--slots=1"] {
        let env = TestEnv::new();
        let holder = env.held(&["--name", "x", mode]);
        let mut command = env.verb("break", ["x", "--yes", "--force"]);
        env.finish(&mut command).failed(64, &[&format!("process {}", holder.command_pid())]);
        assert_eq!(env.holders("x"), 1);
        holder.release().silently(0);
    }
}

#[test]
fn status_creates_no_directory_and_shows_it_as_unused() {
    let env = TestEnv::new();
    for place in ["none", "a/b/c"] {
        let path = env.path(place).display().to_string();
        let look = |words: &[&str]| env.finish(env.dlock(words).args(["--endpoint", &path]));
        let status = look(&["status", "x"]).silently(0).text();
        assert_eq!(status, format!("x: free (file {path}, which does not exist yet)\n"));
        look(&["status", "x", "--exit-code"]).silently(0);
        look(&["list", "--json"]).silently(0);
        let list = look(&["list"]);
        assert_eq!((list.code(), list.text().as_str()), (Some(0), ""), "{}", list.err);
        list.said_one_line(&["no lock is held or waited for", &path, "which does not exist yet"]);
        look(&["list", "-q"]).silently(0);
        let doctor = look(&["doctor"]).silently(0).text();
        assert!(doctor.contains(&path) && doctor.contains("the directory does not exist yet"), "{doctor}");
        look(&["break", "x", "--all", "--yes"]).failed(76, &["neither held nor waited for", &path]);
        assert!(!env.path(place).exists() && !env.path("a").exists(), "looking made {path}");
    }
}

#[test]
fn doctor_shows_a_directory_with_a_space_in_one_row() {
    let env = TestEnv::new();
    let path = env.path("my locks").display().to_string();
    let text = env.finish(&mut env.dlock(["doctor", "--endpoint", &path])).silently(0).text();
    assert!(text.lines().any(|line| line.starts_with("  endpoint") && line.contains(&path)), "{text}");
}

#[test]
fn doctor_names_one_remedy_for_an_unwritable_directory() {
    let env = TestEnv::new();
    let locks = env.locks().display().to_string();
    fs::set_permissions(env.locks(), fs::Permissions::from_mode(0o755)).expect("a closed directory");
    let Some(mut command) = as_nobody(&env, &["doctor", "--endpoint", &locks]) else { return };
    let text = env.finish(&mut command).silently(0).text();
    let warning = text.lines().find(|line| line.contains("warning: cannot write to")).expect("a warning");
    assert_eq!(warning.matches("; ").count(), 1, "{warning}");
}

#[test]
fn directory_below_a_missing_one_is_an_error_with_a_remedy() {
    let env = TestEnv::new();
    let path = env.path("a/b").display().to_string();
    let words = ["run", "--endpoint", &path, "--name", "x", "--", "true"];
    env.finish(&mut env.dlock(words)).failed(73, &[&path, "mkdir -p"]);
}

#[test]
fn watch_of_a_missing_directory_sees_its_creation() {
    let env = TestEnv::new();
    let path = env.path("later").display().to_string();
    let watch = env.start(&mut env.dlock(["watch", "x", "--json", "--endpoint", &path]));
    let holders = |count: usize| {
        until(&format!("a queue with {count} holders"), || {
            let text = watch.out_so_far();
            let last: serde_json::Value = serde_json::from_str(text.lines().last()?).ok()?;
            (last["holders"].as_array()?.len() == count).then_some(())
        });
    };
    holders(0);
    assert!(!env.path("later").exists(), "watching made it");
    let gate = env.gate("gate");
    let script = "echo up >ready; read _ <gate";
    let words = ["run", "--endpoint", &path, "--name", "x", "--", "sh", "-c", script];
    let holder = env.start(&mut env.dlock(words));
    env.await_line("ready");
    holders(1);
    gate.open();
    holder.finish().silently(0);
    holders(0);
    watch.signal(rustix::process::Signal::INT);
    watch.finish();
}

#[test]
fn non_directory_endpoint_is_an_error_and_not_called_free() {
    let env = TestEnv::new();
    env.write("file", "");
    symlink("/nowhere/at/all", env.path("link")).expect("a link");
    for place in ["file", "link", "file/below"] {
        let path = env.path(place).display().to_string();
        env.finish(&mut env.dlock(["status", "x", "--endpoint", &path])).failed(73, &[&path]);
        let words = ["run", "--endpoint", &path, "--name", "x", "--", "touch", "started"];
        env.finish(&mut env.dlock(words)).failed(73, &[&path]);
    }
    assert!(!env.exists("started"));
}
