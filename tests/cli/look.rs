//! `status`, `list`, `watch` and the other commands that only read.

use std::os::unix::process::ExitStatusExt as _;

use rustix::process::Signal;
use serde_json::Value;

use crate::support::running::finish_all;
use crate::support::test_env::release_all;
use crate::support::unread::{Kind, Unread};
use crate::support::wait::{until, until_true};
use crate::support::{TestEnv, process};

#[test]
fn status_names_holders_and_waiters_in_order() {
    let env = TestEnv::new();
    let holder = env.held(&["--name", "x", "--label", "the first"]);
    let waiters: Vec<_> = ["w1", "w2", "w3"]
        .iter()
        .enumerate()
        .map(|(at, label)| {
            let waiter = env.start(&mut env.run(["-q", "--name", "x", "--label", label, "--", "true"]));
            env.await_waiters("x", at + 1);
            waiter
        })
        .collect();
    let status = env.status("x");
    assert_eq!((&status["lock"], &status["backend"]), (&"x".into(), &env.service().backend.into()));
    let held = &status["holders"][0];
    assert_eq!(held["claim"], holder.claim());
    assert_eq!(held["token"], holder.token().to_string());
    assert_eq!(held["label"], "the first");
    assert_eq!(held["mode"], "exclusive");
    assert_eq!(held["pid"], holder.running.pid());
    assert_eq!(held["command"], "sh");
    assert_eq!(held["foreign"], false);
    assert!(held["slot"].is_null());
    let since = held["since"].as_str().expect("a time");
    assert!(since.ends_with('Z') && since.contains('T'), "{since}");
    let labels: Vec<_> =
        status["waiters"].as_array().expect("waiters").iter().map(|w| w["label"].clone()).collect();
    assert_eq!(labels, ["w1", "w2", "w3"]);
    let ahead: Vec<_> =
        status["waiters"].as_array().expect("waiters").iter().map(|w| w["ahead"].clone()).collect();
    assert_eq!(ahead, [1, 2, 3]);
    let table = env.finish(&mut env.verb("status", ["x"])).silently(0).text();
    let places: Vec<_> =
        ["the first", "w1", "w2", "w3"].iter().map(|l| table.find(l).expect("a row")).collect();
    assert!(places.is_sorted(), "{table}");
    assert!(!table.contains('\x1b'), "colour without a terminal");
    holder.release().silently(0);
    finish_all(waiters);
}

#[test]
fn nothing_secret_and_nothing_harmful_is_shown() {
    let env = TestEnv::new();
    let gate = env.gate("gate");
    for label in ["evil \x1b[2J", "bell\x07", "two\nlines"] {
        env.finish(&mut env.run(["--name", "x", "--label", label, "--", "true"])).failed(64, &["label"]);
    }
    let label = "a 'quoted' \"label\" \u{202e}right to left";
    let words = ["--name", "x", "--label", label, "--", "sh", "-c", "echo up >ready; read _ <gate", "s3cr3t"];
    let running = env.start(&mut env.run(words));
    env.await_line("ready");
    let table = env.finish(&mut env.verb("status", ["x"])).silently(0).text();
    assert!(!table.contains('\u{202e}') && !table.contains("s3cr3t"), "{table:?}");
    let json = env.status("x");
    assert!(!json.to_string().contains("s3cr3t"));
    assert_eq!(json["holders"][0]["label"], label);
    let busy = env.finish(&mut env.run(["-n", "--name", "x", "--", "true"])).failed(75, &[]);
    assert!(!busy.err.contains('\u{202e}') && !busy.err.contains("s3cr3t"), "{:?}", busy.err);
    gate.open();
    running.finish().silently(0);
}

#[test]
fn status_can_answer_with_its_exit_status() {
    let env = TestEnv::new();
    let status = |words: &[&str]| env.finish(env.verb("status", ["--exit-code"]).args(words));
    status(&["a"]).silently(0);
    status(&[]);
    let holder = env.held(&["--name", "b"]);
    for words in [&["b"][..], &["a", "b"], &["b", "a", "--json"], &["--name", "b"], &[]] {
        let ended = status(words).silently(75);
        assert!(!ended.text().is_empty(), "{words:?}");
    }
    status(&["a"]).silently(0);
    env.finish(&mut env.verb("status", ["b"])).silently(0);
    holder.release().silently(0);
}

#[test]
fn a_name_may_be_given_as_run_takes_it() {
    let env = TestEnv::new();
    let holder = env.held(&["--name", "x", "--label", "the one"]);
    for words in [&["status", "--name", "x"][..], &["status"]] {
        let shown = env.finish(&mut env.verb(words[0], &words[1..])).silently(0).text();
        assert!(shown.starts_with("x: held (") && shown.contains("the one"), "{shown}");
    }
    env.finish(&mut env.verb("watch", ["x", "--name", "x"])).failed(64, &["--name"]);
    env.finish(&mut env.verb("watch", [] as [&str; 0])).failed(64, &["NAME"]);
    let asked = env.finish(&mut env.verb("break", ["--name", "x", "--yes"])).silently(0).text();
    assert!(asked.starts_with("asked ") && asked.contains("\"the one\"") && asked.ends_with(" to leave x\n"));
    assert_eq!(holder.running.finish().code(), Some(76));
}

#[test]
fn unwritable_output_exits_73() {
    let env = TestEnv::new();
    for verb in ["status x", "list --json", "doctor", "--help"] {
        for (to, why) in [(">/dev/full", "No space left"), (">&-", "Bad file descriptor")] {
            let script = format!(r#"export DLOCK_ENDPOINT="$locks"; "$dlock" {verb} {to}"#);
            env.finish(&mut env.bash(&script)).failed(73, &["standard output", why]);
        }
    }
}

#[test]
fn list_shows_held_and_awaited_locks_by_prefix() {
    let env = TestEnv::new();
    env.assert_free("idle");
    let holders: Vec<_> =
        ["deploy/a", "deploy/b", "deploy web", "other"].iter().map(|n| env.held(&["--name", n])).collect();
    let names = |arguments: &[&str]| {
        let listed = env.finish(env.verb("list", ["--json"]).args(arguments)).silently(0);
        let listed: Value = serde_json::from_slice(&listed.out).expect("JSON");
        let locks = listed["locks"].as_array().expect("locks").iter();
        let mut names: Vec<String> = locks.map(|l| l["lock"].as_str().expect("a name").to_owned()).collect();
        names.sort();
        names
    };
    assert_eq!(names(&[""]), names(&[]));
    assert_eq!(names(&[]), ["deploy web", "deploy/a", "deploy/b", "other"]);
    assert_eq!(names(&["deploy/"]), ["deploy/a", "deploy/b"]);
    assert_eq!(names(&["deploy "]), ["deploy web"]);
    assert_eq!(names(&["none"]), [""; 0]);
    let table = env.finish(&mut env.verb("list", ["deploy"])).silently(0).text();
    assert!(table.contains("deploy/a") && table.contains("deploy/b") && !table.contains("other"), "{table}");
    release_all(holders);
}

#[test]
fn watch_shows_each_change_until_it_is_interrupted() {
    let env = TestEnv::new();
    let watch = env.start(&mut env.verb("watch", ["x", "--json"]));
    let holders = |count: usize| {
        until(&format!("a queue with {count} holders"), || {
            let text = watch.out_so_far();
            let last: Value = serde_json::from_str(text.lines().last()?).ok()?;
            (last["holders"].as_array()?.len() == count).then_some(())
        });
    };
    holders(0);
    let holder = env.held(&["--name", "x"]);
    holders(1);
    holder.release().silently(0);
    holders(0);
    watch.signal(Signal::INT);
    let ended = watch.finish();
    assert_eq!((ended.signal(), ended.err.as_str()), (Some(2), ""));
}

#[test]
fn unread_watch_ends_by_a_signal() {
    let env = TestEnv::new();
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let unread = Unread::full(Kind::Pipe);
        let mut command = env.verb("watch", ["x", "--json"]);
        let mut watch = command.stdout(unread.writer()).spawn().expect("a program that starts");
        let pid = i32::try_from(watch.id()).expect("small");
        until_true("a handler", || has_handler(pid, signal));
        process::signal(pid, signal);
        let status = until("the end of dlock", || watch.try_wait().expect("a child to wait for"));
        assert_eq!(status.signal(), Some(signal.as_raw()));
    }
}

/// Returns whether the process has a handler for `signal`.
fn has_handler(pid: i32, signal: Signal) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default();
    caught & (1 << (signal.as_raw() - 1)) != 0
}

#[test]
fn closed_reader_is_no_error() {
    let env = TestEnv::new();
    let holders: Vec<_> = (0..5).map(|n| env.held(&["--name", &format!("lock-{n}")])).collect();
    let script = r#""$dlock" list --endpoint "$locks" | true; "$dlock" --help | head -n 1 >/dev/null; echo "${PIPESTATUS[0]}""#;
    let ended = env.finish(&mut env.bash(script));
    assert_eq!(ended.err, "");
    release_all(holders);
}

#[test]
fn doctor_refuses_an_invalid_duration() {
    let env = TestEnv::new();
    for (variable, option) in [("DLOCK_TTL", "ttl"), ("DLOCK_GRACE", "grace")] {
        let told = env.finish(env.verb("doctor", [] as [&str; 0]).env(variable, "abc"));
        assert_eq!(told.code(), Some(64), "{}", told.err);
        assert!(told.err.contains(variable), "{}", told.err);
        let line = told.text().lines().any(|line| line.contains(option) && line.contains("abc"));
        assert!(line, "{}", told.text());
    }
}

#[test]
fn doctor_shows_value_sources_and_contacts_the_service() {
    let env = TestEnv::new();
    let told = env.finish(env.verb("doctor", ["--json"]).env("DLOCK_GRACE", "2s")).silently(0);
    let object: Value = serde_json::from_str(&told.text()).expect("an object");
    let grace = object["settings"].as_array().expect("a list").iter().find(|s| s["option"] == "grace");
    let grace = grace.map(|setting| (setting["value"].as_str(), setting["source"].as_str()));
    assert_eq!(grace, Some((Some("2s"), Some("DLOCK_GRACE"))), "{object}");
    assert_eq!((&object["backend"], &object["error"]), (&env.service().backend.into(), &Value::Null));
    assert!(object["server"].as_str().is_some_and(|server| !server.is_empty()), "{object}");
    assert!(object["round_trip_ms"].as_f64().is_some_and(|ms| ms > 0.0), "{object}");
    let table = env.finish(&mut env.verb("doctor", [] as [&str; 0])).silently(0).text();
    assert!(table.contains("configuration\n") && table.contains("service\n"), "{table}");
}
