//! Endpoints and backends that do not fit together, or that may mean a server or a directory.

use std::fs;

use crate::support::TestEnv;

#[test]
fn a_relative_directory_is_taken_if_it_can_be_nothing_else() {
    let env = TestEnv::new();
    fs::create_dir(env.path("there")).expect("a directory");
    for (words, made) in [
        (&["--endpoint", "there"] as &[&str], "there/x"),
        (&["--endpoint", "./new"], "new/x"),
        (&["--endpoint", "file:scheme"], "scheme/x"),
        (&["--backend", "file", "--endpoint", "said"], "said/x"),
    ] {
        let words = [&["run"] as &[_], words, &["--name", "x", "--", "true"]].concat();
        env.finish(&mut env.dlock(words)).silently(0);
        assert!(env.exists(made), "{made}");
    }
}

#[test]
fn a_relative_directory_in_a_configuration_file_is_refused() {
    let env = TestEnv::new();
    fs::create_dir(env.path("there")).expect("a directory");
    for endpoint in ["./new", "there", "file:new", "a/b", "redis1"] {
        let file = env.write("dlock.toml", &format!("endpoint = {endpoint:?}\n")).display().to_string();
        let words = ["run", "--config", &file, "--name", "x", "--", "touch", "started"];
        env.finish(&mut env.dlock(words)).failed(64, &["the whole path", "dlock.toml:1: endpoint"]);
        assert!(!env.exists("new") && !env.exists("started") && !env.exists("there/x"), "{endpoint}");
    }
}

#[test]
fn a_relative_directory_in_the_environment_is_refused() {
    let env = TestEnv::new();
    fs::create_dir(env.path("there")).expect("a directory");
    for (words, endpoint) in [
        (&["--backend", "file"] as &[&str], "etcd1:2379"),
        (&["--backend", "file"], "there"),
        (&[], "there"),
        (&[], "./new"),
        (&[], "file:new"),
        (&[], "etcd1:2379"),
    ] {
        let words = [&["run"] as &[_], words, &["--name", "x", "--", "touch", "started"]].concat();
        let ended = env.finish(env.dlock(words).env("DLOCK_ENDPOINT", endpoint));
        ended.failed(64, &[endpoint, "the whole path", "see DLOCK_ENDPOINT"]);
        let made = ["new", "started", "there/x", "etcd1:2379"].into_iter().find(|name| env.exists(name));
        assert_eq!(made, None, "{endpoint}");
    }
    // `--backend file` decides that the endpoint is a directory.
    let mut command = env.run(["--backend", "file", "--name", "x", "--", "true"]);
    env.finish(command.env("DLOCK_ENDPOINT", "etcd1:2379")).silently(0);
}
