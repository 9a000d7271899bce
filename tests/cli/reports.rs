//! The report and the metrics of each outcome.

use std::process::Command;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{TestEnv, process};

#[track_caller]
fn report(env: &TestEnv, expected: &Value) -> Value {
    let report: Value = serde_json::from_str(&env.read("report")).expect("one JSON object");
    for key in "backend claim error exit_code held_ms lock mode outcome signal token waited_ms".split(' ') {
        assert!(report.get(key).is_some(), "no {key} in {report}");
    }
    for (key, value) in expected.as_object().expect("an object") {
        assert_eq!(&report[key], value, "{key} in {report}");
    }
    report
}

#[test]
fn report_of_a_wait_ended_beside_a_stopped_keeper() {
    let env = TestEnv::new();
    let holder = env.held(&["--name", "x"]);
    let waiter = env.start(&mut env.run(["-q", "--name", "x", "--report", "report", "--", "true"]));
    env.await_waiters("x", 1);
    process::signal(waiter.keeper(), Signal::STOP);
    waiter.signal(Signal::TERM);
    assert_eq!(waiter.finish().signal(), Some(15));
    report(&env, &json!({"outcome": "signal", "exit_code": null, "signal": "SIGTERM", "claim": null}));
    holder.release().silently(0);
}

/// Runs with `--report` and compares the fields that `expected` has.
#[track_caller]
fn reported(env: &TestEnv, words: &[&str], expected: &Value) -> Value {
    let mut command = env.run(["--report", "report"]);
    env.finish(command.args(words));
    report(env, expected)
}

#[test]
fn report_of_a_run() {
    let env = TestEnv::new();
    let expected = json!({"outcome": "ran", "exit_code": 7, "signal": null, "lock": "x", "backend": env.service().backend,
                          "mode": "exclusive", "error": null});
    let report = reported(&env, &["--name", "x", "--", "sh", "-c", "sleep 0.05; exit 7"], &expected);
    assert!(report["held_ms"].as_u64().is_some_and(|held| held >= 50), "{report}");
    assert!(report["waited_ms"].is_u64() && report["claim"].is_string(), "{report}");
    let token = report["token"].as_str().expect("a decimal string");
    assert!(token.parse::<u64>().is_ok_and(|t| t > 0), "{report}");
}

#[test]
fn report_of_a_run_ended_from_outside() {
    for (by, expected) in [
        ("USR1", json!({"outcome": "ran", "exit_code": null, "signal": "SIGUSR1"})),
        ("TERM", json!({"exit_code": null, "signal": "SIGTERM"})),
        ("break", json!({"outcome": "broken", "exit_code": 76})),
        ("a dead keeper", json!({"outcome": "lost", "exit_code": 76})),
    ] {
        let env = TestEnv::new();
        let holder = env.held(&["--name", "x", "--report", "report"]);
        match by {
            "USR1" => holder.running.signal(Signal::USR1),
            "TERM" => holder.running.signal(Signal::TERM),
            "break" => drop(env.finish(&mut env.verb("break", ["x", "--yes"])).silently(0)),
            _ => process::signal(holder.running.keeper(), Signal::KILL),
        }
        holder.running.finish();
        let report = report(&env, &expected);
        assert_eq!(report["error"].is_string(), expected["exit_code"] == 76, "{by}: {report}");
    }
}

#[test]
fn report_of_a_stopped_wait() {
    let env = TestEnv::new();
    let holder = env.held(&["--name", "x"]);
    let running = env.start(&mut env.run(["--report", "report", "--name", "x", "--", "true"]));
    env.await_waiters("x", 1);
    running.signal(Signal::TERM);
    running.finish();
    report(&env, &json!({"outcome": "signal", "signal": "SIGTERM"}));
    holder.release().silently(0);
}

#[test]
fn report_of_busy_and_timeout() {
    let env = TestEnv::new();
    let holder = env.held(&["--name", "x"]);
    let expected = json!({"outcome": "busy", "exit_code": 75, "token": null});
    let busy = reported(&env, &["-n", "--name", "x", "--", "true"], &expected);
    assert!(busy["error"].is_string(), "{busy}");
    reported(
        &env,
        &["-n", "-E", "9", "--name", "x", "--", "true"],
        &json!({"outcome": "busy", "exit_code": 9}),
    );
    let expected = json!({"outcome": "timeout", "exit_code": 75});
    let late = reported(&env, &["-w", "2s", "--name", "x", "--", "true"], &expected);
    assert!(late["waited_ms"].as_u64().is_some_and(|waited| waited >= 2_000), "{late}");
    holder.release().silently(0);
}

#[test]
fn report_of_skipped_max_run_and_error() {
    let env = TestEnv::new();
    env.finish(&mut env.run(["--name", "x", "--once-per", "1h", "--", "true"])).silently(0);
    let expected = json!({"outcome": "skipped", "exit_code": 0});
    reported(&env, &["--name", "x", "--once-per", "1h", "--", "true"], &expected);
    let expected = json!({"outcome": "max-run", "exit_code": 124});
    reported(&env, &["--name", "x", "--max-run", "100ms", "--", "sleep", "1000"], &expected);
    let expected = json!({"outcome": "error", "exit_code": 127});
    let report = reported(&env, &["--name", "x", "--", "no-such-command"], &expected);
    assert!(report["error"].as_str().is_some_and(|e| e.contains("no-such-command")), "{report}");
}

#[test]
fn report_of_superseded_and_deadlock() {
    let env = TestEnv::new();
    let holder = env.held(&["--name", "x"]);
    let older = env.start(&mut env.run(["--report", "report", "--supersede", "--name", "x", "--", "true"]));
    env.await_waiters("x", 1);
    let newer = env.start(&mut env.run(["-q", "--supersede", "--name", "x", "--", "true"]));
    assert_eq!(older.finish().code(), Some(75));
    report(&env, &json!({"outcome": "superseded"}));
    holder.release().silently(0);
    newer.finish().silently(0);
    let script = r#""$dlock" run --endpoint "$locks" --no-nest --report report --name x -- true"#;
    env.finish(&mut env.run(["--name", "x", "--", "sh", "-c", script]));
    report(&env, &json!({"outcome": "deadlock"}));
}

#[test]
fn report_of_several_names() {
    let env = TestEnv::new();
    let expected = json!({"lock": ["b", "a"], "outcome": "ran"});
    let report = reported(&env, &["--name", "b", "--name", "a", "--", "true"], &expected);
    assert_eq!(report["token"].as_array().map(Vec::len), Some(2), "{report}");
    assert_eq!(report["claim"].as_array().map(Vec::len), Some(2), "{report}");
}

#[test]
fn report_failure_after_the_run_is_one_line_and_keeps_status() {
    let env = TestEnv::new();
    let script = r"mkdir sub; run --report sub/report --name x -- sh -c 'rm -rf sub; exit 6'";
    env.finish(&mut env.bash(script)).failed(6, &["report"]);
}

#[test]
fn a_report_to_standard_output_comes_after_the_commands() {
    for path in ["/dev/stdout", "/dev/fd/1"] {
        let env = TestEnv::new();
        let script = format!("run --name x --report {path} -- echo hi | cat");
        let finished = env.finish(&mut env.bash(&script));
        assert_eq!(finished.code(), Some(0), "{}", finished.err);
        let text = finished.text();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert_eq!(lines[0], "hi");
        assert!(lines[1].starts_with(r#"{"outcome":"ran","exit_code":0"#), "{}", lines[1]);
    }
}

#[test]
fn verbose_tells_each_step_to_the_release() {
    let env = TestEnv::new();
    let told = |command: &mut Command| {
        let ended = env.finish(command);
        assert_eq!(ended.code(), Some(0), "{}", ended.err);
        ended.err
    };
    let err = told(&mut env.run(["-v", "--name", "x", "--", "true"]));
    let steps = ["acquired x (", "started the command under x, pid ", "the command exited 0 after "];
    let at: Vec<_> =
        steps.iter().map(|step| err.find(step).unwrap_or_else(|| panic!("{step}: {err}"))).collect();
    assert!(at.is_sorted() && err.ends_with(" under x\n"), "{err}");
    let inner = r#""$dlock" run -v --endpoint "$locks" --name x -- true"#;
    let err = told(env.run(["-q", "--name", "x", "--", "sh", "-c"]).arg(inner));
    assert!(err.contains("running under the enclosing hold of x"), "{err}");
}
