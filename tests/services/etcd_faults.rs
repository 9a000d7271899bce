//! etcd: one bad server among several, users and tokens.

use std::process::Command;

use crate::servers::etcd::{Etcd, signing};
use crate::support::wait::until_true;
use crate::support::{Service, TestEnv};

pub(super) fn locks_at(endpoint: String) -> TestEnv {
    TestEnv::on(Service { backend: "etcd", endpoint, prefix: Some("locks/".to_owned()) })
}

fn as_ci(mut command: Command) -> Command {
    command.env("DLOCK_USER", "ci").env("DLOCK_PASSWORD", "secret");
    command
}

#[test]
fn user_changes_end_no_command_with_a_signed_token() {
    let env = TestEnv::new();
    let etcd = Etcd::with(&signing(env.root()));
    etcd.guard("secret", &["locks/"]);
    let env = locks_at(etcd.endpoint());
    let script = |up: &str| format!("echo up >{up}; sleep 7");
    let held = |name: &str| {
        let mut command = as_ci(env.run(["--name", name, "--ttl", "5s", "--", "sh", "-c"]));
        let running = env.start(command.arg(script(name)));
        env.await_line(name);
        running
    };
    let (holder, other) = (held("x"), held("y"));
    let mut waiter = as_ci(env.run(["-q", "--name", "x", "--ttl", "5s", "--", "true"]));
    let waiter = env.start(&mut waiter);
    let as_root = |words: &[&str]| {
        let output = etcd.ctl(words).args(["--user", "root:admin"]).output().expect("etcdctl runs");
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    };
    for words in [
        &["user", "add", "somebody:else"] as &[&str],
        &["role", "add", "more"],
        &["user", "grant-role", "ci", "more"],
    ] {
        as_root(words);
    }
    for running in [holder, other, waiter] {
        let ended = running.finish();
        assert_eq!(ended.code(), Some(0), "{}", ended.err);
    }
    let mut free = as_ci(env.verb("status", ["--json", "x"]));
    assert!(env.finish(&mut free).text().contains(r#""holders":[]"#));
}

#[test]
fn missing_right_is_named() {
    // `etcdctl lock x` needs this prefix.
    let etcd = Etcd::start();
    etcd.guard("secret", &["x/"]);
    let env =
        TestEnv::on(Service { backend: "etcd", endpoint: etcd.endpoint(), prefix: Some(String::new()) });
    let mut command = as_ci(env.run(["--name", "x", "--", "true"]));
    env.finish(&mut command).failed(77, &["permission denied", "dlock man etcd"]);
}

#[test]
fn a_nested_run_needs_no_right_to_the_queues_of_others() {
    let etcd = Etcd::start();
    etcd.guard("secret", &["a/", "a\u{1}", "\u{1}"]);
    let env =
        TestEnv::on(Service { backend: "etcd", endpoint: etcd.endpoint(), prefix: Some(String::new()) });
    let start = |names: &[&str], script: &str| {
        let mut command = env.run(names);
        command.args(["--", "sh", "-c", script]);
        env.start(command.env("DLOCK_USER", "root").env("DLOCK_PASSWORD", "admin"))
    };
    let entries = |name: &str| {
        let words = ["--user", "root:admin", "get", "--prefix", "--keys-only", &format!("{name}/")];
        etcd.ask(&words).split_whitespace().count()
    };
    let gate = env.gate("gate");
    let holder = start(&["--name", "a", "--name", "b"], "echo up >up; read _ <gate");
    env.await_line("up");
    let nested = r#""$dlock" run --endpoint "$locks" -v"#;
    let others = start(&["--name", "c"], &format!("{nested} --name b -- true"));
    until_true("a waiter", || others.err_so_far().contains("waiting for b"));
    let as_ci = format!("DLOCK_USER=ci DLOCK_PASSWORD=secret {nested} --name a --wait 8s -- true");
    let own = start(&["--name", "d"], &format!("{as_ci}; echo $? >code"));
    until_true("its entry", || entries("a") == 2 || env.exists("code"));
    assert!(!env.exists("code"), "{}", own.err_so_far());
    let ended = own.finish();
    assert_eq!(env.read("code"), "75\n", "{}", ended.err);
    assert_eq!(entries("a"), 1);
    gate.open();
    for ended in [holder.finish(), others.finish()] {
        assert_eq!(ended.code(), Some(0), "{}", ended.err);
    }
}

#[test]
fn waiter_without_write_permission_warns_at_its_turn() {
    let etcd = Etcd::start();
    etcd.guard("secret", &["locks/"]);
    let env = locks_at(etcd.endpoint());
    let gate = env.gate("gate");
    let mut command = env.run(["--name", "x", "--", "sh", "-c", "echo up >up; read _ <gate"]);
    let holder = env.start(command.env("DLOCK_USER", "root").env("DLOCK_PASSWORD", "admin"));
    env.await_line("up");
    let waiter = env.start(&mut as_ci(env.run(["--name", "x", "--", "true"])));
    until_true("a waiter", || waiter.err_so_far().contains("waiting for x"));
    let may = |what| {
        etcd.ask(&["--user", "root:admin", "role", "grant-permission", "--prefix", "own", what, "locks/"]);
    };
    may("read");
    gate.open();
    assert_eq!(holder.finish().code(), Some(0));
    until_true("word of the trouble", || {
        let said = waiter.err_so_far();
        said.contains("cannot follow the queue of x (etcd)") && said.contains("permission denied")
    });
    may("readwrite");
    assert_eq!(waiter.finish().code(), Some(0));
}
