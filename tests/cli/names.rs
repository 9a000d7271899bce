//! Unusual names, and several names at once.

use crate::support::TestEnv;

#[test]
fn a_path_as_name_is_a_name_and_says_how_to_lock_the_file() {
    let env = TestEnv::new();
    let path = env.path("x.lock").display().to_string();
    let directory = env.root().display().to_string();
    let ended = env.finish(&mut env.run(["--name", &path, "--", "true"]));
    assert_eq!(ended.code(), Some(0));
    ended.said_one_line(&[&path, &format!("--endpoint {directory} --name x.lock")]);
    env.finish(&mut env.run(["-q", "--name", &path, "--", "true"])).silently(0);
    // The printed command does lock the file.
    let words = ["run", "--endpoint", &directory, "--name", "x.lock", "--", "flock", "-n", &path, "true"];
    env.finish(&mut env.dlock(words)).silently(1);
}

#[test]
fn several_names_and_tokens_come_in_the_order_given() {
    let env = TestEnv::new();
    let script = "echo \"$DLOCK_NAME|$DLOCK_TOKEN\"; echo \"$DLOCK_NAMES\"; echo \"$DLOCK_TOKENS\"";
    let names = ["--name", "c", "--name", "a", "--name", "b"];
    let ended = env.finish(env.run(names).args(["--", "sh", "-c", script])).silently(0);
    let text = ended.text();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!((lines.len(), &lines[1..4]), (7, &["c", "a", "b"][..]), "{text}");
    assert_eq!(lines[0], format!("c|{}", lines[4]));
}

#[test]
fn some_names_of_an_own_hold_are_a_deadlock() {
    let env = TestEnv::new();
    let script = r#""$dlock" run --endpoint "$locks" --name x --name y -- touch started"#;
    let ended = env.finish(&mut env.run(["--name", "x", "--", "sh", "-c", script]));
    ended.failed(75, &["waiting for x and y would never end"]);
    assert!(!env.exists("started"));
    env.assert_free("x");
    env.assert_free("y");
}

#[test]
fn too_many_names_are_refused() {
    let env = TestEnv::new();
    let names: Vec<String> = (0..65).map(|n| format!("--name=lock-{n}")).collect();
    env.finish(env.run(names).args(["--", "touch", "started"])).failed(64, &["65"]);
    assert!(!env.exists("started"));
}
