//! Reports and metrics in a sticky directory: all users may create files, and only the owner may replace one.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};

use crate::directory::{UID, as_nobody};
use crate::support::TestEnv;

/// Creates a directory with the permissions of /tmp.
fn for_all_users(env: &TestEnv) {
    fs::create_dir(env.path("tmp")).expect("a directory");
    fs::set_permissions(env.path("tmp"), fs::Permissions::from_mode(0o1777)).expect("for all users");
    fs::set_permissions(env.locks(), fs::Permissions::from_mode(0o777)).expect("for all users");
}

#[test]
fn foreign_report_in_a_sticky_directory_exits_73_early() {
    let env = TestEnv::new();
    for_all_users(&env);
    let (locks, path) = (env.locks().display().to_string(), env.path("tmp/r"));
    let shown = path.display().to_string();
    env.write("tmp/r", "old");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).expect("for all users");
    for option in ["--report", "--metrics-file"] {
        let words =
            ["run", "--endpoint", &locks, "--name", "x", option, &shown, "--", "touch", "tmp/started"];
        let Some(mut command) = as_nobody(&env, &words) else { return };
        env.finish(&mut command).failed(73, &[&shown, "not permitted"]);
        assert!(!env.exists("tmp/started"));
    }
    assert_eq!(env.read("tmp/r"), "old");
    // A new file, dlock's own file, and a foreign file in dlock's own directory.
    let words = ["run", "--endpoint", &locks, "--name", "x", "--report", &shown, "--", "true"];
    let mut run = as_nobody(&env, &words).expect("another user");
    fs::remove_file(&path).expect("own file");
    env.finish(&mut run).silently(0);
    env.finish(&mut run).silently(0);
    chown(&path, Some(UID + 1), None).expect("root");
    chown(env.path("tmp"), Some(UID), None).expect("root");
    env.finish(&mut run).silently(0);
    assert_eq!(fs::metadata(&path).expect("there").uid(), UID);
    // Root may replace any file.
    chown(env.path("tmp"), Some(UID + 1), None).expect("root");
    env.finish(&mut env.run(["--name", "x", "--report", &shown, "--", "true"])).silently(0);
    assert_eq!(fs::metadata(&path).expect("there").uid(), 0);
}
