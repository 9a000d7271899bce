//! Each way to fail: dlock prints one line, exits with one status and leaves nothing behind.

use std::time::Duration;

use crate::support::{TestEnv, within};

#[test]
fn try_on_a_held_lock_exits_75_at_once() {
    let env = TestEnv::new();
    let holder = env.held(&["--name", "x", "--label", "the one"]);
    for wait in [&["-n"][..], &["--try"], &["-w", "0"], &["--wait", "0s"]] {
        let mut command = env.run(["--name", "x"]);
        let ended = env.finish(command.args(wait).args(["--", "touch", "started"]));
        ended.failed(75, &["x", "held by", &holder.command_pid(), "\"the one\""]);
        assert_eq!(env.waiters("x"), 0);
    }
    assert!(!env.exists("started"));
    holder.release().silently(0);
    env.assert_free("x");
}

#[test]
fn elapsed_wait_exits_75() {
    let env = TestEnv::new();
    let holder = env.held(&["--name", "x", "--label", "the one"]);
    let ended = env.finish(&mut env.run(["--name", "x", "-w", "2s", "--", "touch", "started"]));
    assert!(ended.took >= Duration::from_secs(2), "{:?}", ended.took);
    within(ended.took, Duration::from_secs(3));
    assert_eq!((ended.code(), ended.text().as_str()), (Some(75), ""), "{}", ended.err);
    // A line when the wait begins, and one when it ends.
    let lines: Vec<&str> = ended.err.lines().collect();
    let tells =
        |line: &&str| line.starts_with("dlock: ") && line.contains("held by") && line.contains("\"the one\"");
    assert!(lines.len() == 2 && lines.iter().all(tells), "{}", ended.err);
    assert!(lines[0].starts_with("dlock: waiting for x ("), "{}", ended.err);
    assert_eq!(env.waiters("x"), 0);
    holder.release().silently(0);
    env.assert_free("x");
    assert!(!env.exists("started"));
}

#[test]
fn the_busy_code_can_be_chosen() {
    let env = TestEnv::new();
    let holder = env.held(&["--name", "x"]);
    for code in [1, 75, 255] {
        let chosen = code.to_string();
        let ended = env.finish(&mut env.run(["--name", "x", "-n", "-E", &chosen, "--", "true"]));
        ended.failed(code, &["x"]);
    }
    // With `-E 0` a busy lock is no failure. dlock prints nothing, so that cron sends no mail. With `-v` it prints a
    // line.
    env.finish(&mut env.run(["--name", "x", "-n", "-E", "0", "--", "true"])).silently(0);
    let told = env.finish(&mut env.run(["--name", "x", "-n", "-E", "0", "-v", "--", "true"]));
    assert!(told.code() == Some(0) && told.err.contains("held by"), "{}", told.err);
    let quiet = env.finish(&mut env.run(["--name", "x", "-n", "-q", "--", "true"]));
    quiet.silently(75);
    holder.release().silently(0);
}

#[test]
fn quiet_and_the_busy_code_concern_a_busy_lock_alone() {
    let env = TestEnv::new();
    env.finish(&mut env.run(["-q", "-E", "0", "--name", "x", "--", "no-such-command"]))
        .failed(127, &["no-such-command"]);
    env.finish(&mut env.run(["-q", "-E", "3", "--name", "", "--", "true"])).failed(64, &["name"]);
}

#[test]
fn unwritable_report_is_found_before_the_lock_request() {
    let env = TestEnv::new();
    let holder = env.held(&["--name", "x"]);
    for option in ["--report", "--metrics-file"] {
        for (place, word) in [("/no/such/folder/file", "/no/such/folder/file"), (".", "is a directory")] {
            let mut command = env.run(["--name", "x", option, place, "--", "touch", "started"]);
            env.finish(&mut command).failed(73, &[word]);
        }
    }
    assert!(!env.exists("started"));
    holder.release().silently(0);
}

#[test]
fn relative_report_in_a_removed_directory_is_a_usage_error() {
    let env = TestEnv::new();
    for option in ["--report", "--metrics-file"] {
        let name = format!("dlock-test-{}.json", std::process::id());
        let script = format!("mkdir gone; cd gone; rmdir ../gone; run --name x {option} {name} -- true");
        let ended = env.finish(&mut env.bash(&script));
        let elsewhere = std::path::Path::new("/").join(&name);
        assert!(std::fs::remove_file(elsewhere).is_err(), "it was written to the root");
        ended.failed(64, &[option, "the working directory is gone", "name the whole path"]);
    }
}

#[test]
fn one_file_for_report_and_metrics_is_a_usage_error() {
    let env = TestEnv::new();
    let mut command = env.run(["--name", "x", "--report", "f", "--metrics-file", "./f", "--", "true"]);
    env.finish(&mut command).failed(64, &["--report", "--metrics-file", "the same file"]);
    assert!(!env.exists("f"));
    let mut command =
        env.run(["--name", "x", "--report", "/dev/null", "--metrics-file", "/dev/null", "--", "true"]);
    env.finish(&mut command).silently(0);
}

#[test]
fn exceeded_max_run_exits_124() {
    let env = TestEnv::new();
    let ended = env.finish(&mut env.run(["--name", "x", "--max-run", "300ms", "--", "sleep", "1000"]));
    assert!(ended.took.as_millis() >= 300, "{:?}", ended.took);
    ended.failed(124, &["300ms"]);
    env.assert_free("x");
    env.await_no_process();
    // The time spent waiting does not count. A command that ends in time keeps its exit status.
    env.finish(&mut env.run(["--name", "x", "--max-run", "1h", "--", "sh", "-c", "exit 5"])).silently(5);
}
