//! Endpoints and backends that do not fit together, or that may mean a server or a directory.

use std::fs;

use crate::support::TestEnv;

#[test]
fn a_bare_host_name_is_not_taken_for_a_directory() {
    let env = TestEnv::new();
    for endpoint in ["redis1", "etcd-0:2379", "db"] {
        let words = ["run", "--endpoint", endpoint, "--name", "x", "--", "touch", "started"];
        let directory = format!("./{endpoint}");
        env.finish(&mut env.dlock(words)).failed(64, &["could be a server or a directory", &directory]);
        assert!(!env.exists(endpoint) && !env.exists("started"), "{endpoint}");
    }
    let sentence =
        "redis1 could be a server or a directory: write redis://redis1, or the whole path of the directory";
    let mut command = env.dlock(["status", "x"]);
    env.finish(command.env("DLOCK_ENDPOINT", "redis1")).failed(64, &[sentence, "see DLOCK_ENDPOINT"]);
}

#[test]
fn a_line_end_behind_a_setting_makes_no_other_lock() {
    let env = TestEnv::new();
    let holder = env.held(&["--name", "x"]);
    for end in ["\n", "\r", "\r\n"] {
        let endpoint = format!("{}{end}", env.locks().display());
        let mut command = env.dlock(["run", "--try", "--name", "x", "--", "touch", "started"]);
        env.finish(command.env("DLOCK_ENDPOINT", &endpoint)).failed(75, &["x"]);
        let words = ["run", "--endpoint", &endpoint, "--try", "--name", "x", "--", "touch", "started"];
        env.finish(&mut env.dlock(words)).failed(75, &["x"]);
    }
    assert!(!env.exists("started"));
    holder.release().silently(0);
}

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

#[test]
fn unknown_backend_error_lists_the_available_ones() {
    let env = TestEnv::new();
    let mut command = env.dlock(["status", "--backend", "consul", "x"]);
    let ended = env.finish(command.env("DLOCK_ENDPOINT", "redis://h"));
    let ended = ended.failed(64, &["\"consul\"", "file, etcd, redis, zk, mysql, postgres and memcached"]);
    assert!(!ended.err.contains("DLOCK_ENDPOINT"), "{}", ended.err);
}

#[test]
fn a_directory_for_another_backend_is_said_to_be_one() {
    let env = TestEnv::new();
    let locks = env.locks().display().to_string();
    let mut command = env.dlock(["status", "--backend", "redis", "x"]);
    let sentence = format!("{locks} is a directory");
    env.finish(command.env("DLOCK_ENDPOINT", &locks)).failed(64, &[&sentence, "redis", "see DLOCK_ENDPOINT"]);
}

#[test]
fn endpoints_of_two_services_are_refused() {
    let env = TestEnv::new();
    for endpoints in [&["redis://a,http://b"] as &[_], &["redis://a", "http://b"]] {
        let endpoints = endpoints.iter().flat_map(|endpoint| ["--endpoint", endpoint]);
        let words: Vec<&str> = ["status"].into_iter().chain(endpoints).chain(["x"]).collect();
        env.finish(&mut env.dlock(words)).failed(64, &["endpoints of two services", "redis", "etcd"]);
    }
}
