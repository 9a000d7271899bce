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
fn an_empty_list_of_endpoints_is_refused_as_an_empty_text_is() {
    let env = TestEnv::new();
    for value in ["''", "[]", "['']"] {
        let file = env.write("dlock.toml", &format!("endpoint = {value}\n")).display().to_string();
        let mut command = env.dlock(["run", "--config", &file, "--name", "x", "--", "true"]);
        env.finish(&mut command).failed(64, &["the endpoint is empty", "dlock.toml:1: endpoint"]);
    }
}

#[test]
fn the_source_of_a_misspelt_backend_follows_the_question() {
    let env = TestEnv::new();
    let mut command = env.dlock(["run", "--name", "x", "--", "true"]);
    env.finish(command.env("DLOCK_BACKEND", "rediz"))
        .failed(64, &["; did you mean redis? see DLOCK_BACKEND"]);
}

#[test]
fn a_relative_directory_in_a_shared_setting_is_refused() {
    let env = TestEnv::new();
    fs::create_dir(env.path("there")).expect("a directory");
    for endpoint in ["./new", "there", "file:new", "etcd1:2379"] {
        let file = env.write("dlock.toml", &format!("endpoint = {endpoint:?}\n")).display().to_string();
        let mut by_file = env.dlock(["run", "--config", &file, "--name", "x", "--", "touch", "started"]);
        env.finish(&mut by_file).failed(64, &["the whole path", "dlock.toml:1: endpoint"]);
        let mut by_variable = env.dlock(["run", "--name", "x", "--", "touch", "started"]);
        env.finish(by_variable.env("DLOCK_ENDPOINT", endpoint))
            .failed(64, &[endpoint, "the whole path", "see DLOCK_ENDPOINT"]);
        let made = ["new", "started", "there/x", "etcd1:2379"].into_iter().find(|name| env.exists(name));
        assert_eq!(made, None, "{endpoint}");
    }
}
