//! Passwords, certificates and keys that cannot be used: dlock prints one line and exits 64 before it connects.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::Value;

use crate::support::TestEnv;

/// Writes a file with these permissions in the test's directory.
fn file(env: &TestEnv, name: &str, text: &str, mode: u32) -> String {
    let path = env.write(name, text);
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("own file");
    path.display().to_string()
}

#[track_caller]
fn refused(env: &TestEnv, options: &[&str], words: &[&str]) {
    let mut command = env.dlock(["run", "--backend", "etcd", "--name", "x"]);
    let ended = env.finish(command.args(options).args(["--", "touch", "started"]));
    assert!(!ended.err.contains("hunter2"), "{}", ended.err);
    ended.failed(64, words);
    assert!(!env.exists("started"));
}

#[test]
fn unusable_files_are_refused_with_the_remedy() {
    let env = TestEnv::new();
    let secret = |name: &str, text: &str| file(&env, name, text, 0o600);
    let certificate = secret("cert", "-----BEGIN CERTIFICATE-----\n");
    let encrypted = secret("encrypted", "-----BEGIN ENCRYPTED PRIVATE KEY-----\nhunter2\n");
    let older = secret("older", "-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n");
    let (text, blank) = (secret("text", "hunter2\n"), secret("blank", "\nhunter2\n"));
    for (options, words) in [
        (&["--cert", "c"] as &[&str], &["--cert", "pass --key FILE"] as &[&str]),
        (&["--key", "k"], &["--key", "pass --cert FILE"]),
        (&["--cert", &certificate, "--key", &encrypted], &["passphrase", "openssl pkey -in"]),
        (&["--cert", &certificate, "--key", &older], &["passphrase", "openssl pkey -in"]),
        (&["--cert", &certificate, "--key", &certificate], &["--key", "no private key"]),
        (&["--cacert", "nowhere.pem"], &["--cacert", "nowhere.pem", "cannot be read"]),
        (&["--cacert", "/"], &["--cacert", "cannot be read"]),
        (&["--cacert", "/dev/zero"], &["--cacert", "longer than a mebibyte"]),
        (&["--cacert", &text], &["--cacert", "not a PEM file"]),
        (&["--user", "u", "--password-file", "nowhere"], &["--password-file", "cannot be read"]),
        (&["--user", "u", "--password-file", &blank], &["--password-file", "no password in its first line"]),
    ] {
        refused(&env, options, words);
    }
}

/// Passwords whose separators are not percent-encoded or come in another place, with the backend to name.
const SEPARATED: [(&str, &str); 8] = [
    ("redis", "u:hun/ter2@127.0.0.1:1"),
    ("redis", "redis+sentinel://u:hun,ter2@127.0.0.1:1,127.0.0.1:2/m"),
    ("etcd", "u:hun://ter2@127.0.0.1:1"),
    ("memcached", "memcached://u:hun#ter2@127.0.0.1:1"),
    ("postgres", "postgres://u:hun?ter2@127.0.0.1:1/d"),
    ("mysql", "mysql://u:hun?x=ter2@127.0.0.1:1/d"),
    ("zk", "zk://u:hun/ter2@127.0.0.1:1"),
    ("etcd", "http://127.0.0.1:1?password=hunter2"),
];

#[track_caller]
fn unprinted(endpoint: &str, text: &str) {
    assert!(!text.contains("hun") && !text.contains("ter2"), "{endpoint}: {text}");
}

#[test]
fn a_password_in_an_address_is_shown_by_nothing() {
    let env = TestEnv::new();
    for (backend, endpoint) in SEPARATED {
        for words in [&["doctor"][..], &["doctor", "--json"], &["list"]] {
            // If no backend is named, an address without a scheme could mean a directory.
            for backend in [backend, ""] {
                let mut command = env.dlock(words.iter().copied());
                let ended = env.finish(command.env("DLOCK_BACKEND", backend).env("DLOCK_ENDPOINT", endpoint));
                unprinted(endpoint, &format!("{}{}", ended.err, ended.text()));
                assert_ne!(ended.code(), Some(0), "{endpoint}");
            }
        }
    }
}

#[test]
fn the_weightier_layer_says_the_password_or_its_file() {
    let env = TestEnv::new();
    let secret = |name: &str| file(&env, name, "hunter2\n", 0o600);
    let (flag, variable, key) = (secret("flag"), secret("variable"), secret("key"));
    let config = env.path("config.toml").display().to_string();
    let both = format!("password = 'hunter2'\npassword-file = '{key}'\n");
    let at_top = format!("password = 'hunter2'\n[profile.p]\npassword-file = '{key}'\n");
    // The flag, the two variables, the config file, and the password that wins with the source that it comes from.
    for (given, password, variable, text, option, from) in [
        (flag.as_str(), "", "", "password = 'hunter2'", "password-file", "--password-file"),
        (&flag, "hunter2", "", "", "password-file", "--password-file"),
        ("", "", variable.as_str(), "password = 'hunter2'", "password-file", "DLOCK_PASSWORD_FILE"),
        ("", "hunter2", &variable, "", "password", "DLOCK_PASSWORD"),
        ("", "hunter2", "", &format!("password-file = '{key}'"), "password", "DLOCK_PASSWORD"),
        ("", "", "", &both, "password", ":1: password"),
        ("", "", "", &at_top, "password-file", ":3: password-file of profile p"),
    ] {
        file(&env, "config.toml", text, 0o600);
        let mut command =
            env.dlock(["doctor", "--json", "--endpoint", "redis://127.0.0.1:1", "--config", &config]);
        if !given.is_empty() {
            command.args(["--password-file", given]);
        }
        if text.contains("profile") {
            command.args(["--profile", "p"]);
        }
        command.env("DLOCK_PASSWORD", password).env("DLOCK_PASSWORD_FILE", variable);
        let ended = env.finish(&mut command);
        assert_eq!(ended.code(), Some(69), "{}", ended.err);
        let findings: Value = serde_json::from_str(&ended.text()).expect("one JSON object");
        let settings = findings["settings"].as_array().expect("a list");
        let about =
            settings.iter().filter(|s| s["option"].as_str().is_some_and(|o| o.starts_with("password")));
        let said: Vec<_> = about.map(|s| (s["option"].as_str(), s["source"].as_str())).collect();
        assert!(
            matches!(said[..], [(Some(o), Some(source))] if o == option && source.ends_with(from)),
            "{said:?} and not {option} from {from}"
        );
    }
    // dlock reads the password file.
    let mut command = env.dlock(["list", "--endpoint", "redis://127.0.0.1:1", "--password-file", "nowhere"]);
    env.finish(command.env("DLOCK_PASSWORD", "hunter2"))
        .failed(64, &["--password-file", "nowhere", "cannot be read"]);
}

#[test]
fn credentials_for_no_service_do_not_lock_on_this_host_alone() {
    let env = TestEnv::new();
    let mut command = env.dlock(["run", "--user", "u", "--name", "x", "--", "touch", "started"]);
    env.finish(&mut command).failed(64, &["no service", "--backend"]);
    assert!(!env.exists("started"));
}

#[test]
fn unused_flag_of_a_backend_is_refused() {
    let env = TestEnv::new();
    let password = file(&env, "password", "hunter2\n", 0o600);
    let locks = env.locks().display().to_string();
    for (backend, endpoint, options, word) in [
        ("file", locks.as_str(), &["--user", "u", "--password-file", &password] as &[&str], "--user"),
        ("file", &locks, &["--cacert", "nowhere.pem"], "--cacert"),
        ("etcd", "http://127.0.0.1:1", &["--zk-layout", "kazoo"], "--zk-layout"),
        ("redis", "redis://127.0.0.1:1", &["--allow-network-fs"], "--allow-network-fs"),
    ] {
        // The backend is named, or it follows from the address.
        for named in [&["--backend", backend][..], &[]] {
            let mut command = env.dlock(["run", "--try", "--name", "x", "--endpoint", endpoint]);
            let ended = env.finish(command.args(named).args(options).args(["--", "touch", "started"]));
            assert!(!ended.err.contains("hunter2"), "{}", ended.err);
            ended.failed(64, &[word, backend, "no use"]);
            assert!(!env.exists("started"));
        }
    }
}

#[test]
fn settings_for_other_services_are_ignored() {
    let env = TestEnv::new();
    let lines =
        ["password-file", "cacert", "cert", "key"].map(|name| format!("{name} = '/nonexistent/{name}'"));
    let config = file(&env, "config.toml", &lines.join("\n"), 0o600);
    let mut command = env.run(["--config", &config, "--backend", "file", "--name", "x", "--", "true"]);
    command.env("DLOCK_USER", "u").env("DLOCK_PASSWORD", "hunter2").env("DLOCK_ZK_LAYOUT", "kazoo");
    env.finish(&mut command).silently(0);
    // Backends that use the files read them, and a missing file never leads to a lock directory.
    for words in [&["--backend", "etcd"] as &[&str], &["--endpoint", "redis://127.0.0.1:1"], &[]] {
        let mut command = env.dlock(["run", "--config", &config, "--name", "x"]);
        let ended = env.finish(command.args(words).args(["--", "touch", "started"]));
        ended.failed(64, &["config.toml", "/nonexistent/", "cannot be read"]);
        assert!(!env.exists("started"));
    }
}
