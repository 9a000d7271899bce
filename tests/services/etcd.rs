//! etcd: logins, servers that fail, limits of a transaction, leases.

use std::io::Write;
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::Signal;

use crate::etcd_faults::locks_at;
use crate::servers::Site as _;
use crate::servers::etcd::Etcd;
use crate::servers::proxy::{Conduct, Proxy};
use crate::support::wait::until_true;
use crate::support::{Service, TestEnv};

pub(crate) fn env(endpoint: String) -> TestEnv {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let prefix = format!("env{}/", NEXT.fetch_add(1, Ordering::Relaxed));
    TestEnv::on(Service { backend: "etcd", endpoint, prefix: Some(prefix) })
}

#[test]
fn users_and_passwords() {
    let etcd = Etcd::with(&["--auth-token-ttl".to_owned(), "2".to_owned()], None);
    etcd.guard("se:cret", &["locks/", "\u{1}"]);
    let env = locks_at(etcd.endpoint());
    let as_ci = |words: &[&str], password: &str| {
        let mut command = env.run(words);
        command.env("DLOCK_USER", "ci").env("DLOCK_PASSWORD", password);
        env.finish(&mut command)
    };
    // Longer than an authentication token lasts: the renewals and the release need new ones.
    as_ci(&["--name", "x", "--ttl", "6s", "--", "sleep", "6"], "se:cret").silently(0);
    let wrong = as_ci(&["--name", "x", "--", "true"], "sesame").failed(77, &["authentication failed"]);
    assert!(!wrong.err.contains("sesame"));
    as_ci(&["--prefix", "secret/", "--name", "x", "--", "true"], "se:cret")
        .failed(77, &["permission denied"]);
}

#[test]
fn holder_survives_the_compaction_of_its_watched_keys() {
    let etcd = Etcd::start();
    let env = env(etcd.endpoint());
    let proxied = Proxy::to(etcd.server().port());
    let mut held = env.dlock(["run", "--endpoint", &format!("http://127.0.0.1:{}", proxied.port())]);
    held.args(["--name", "x", "--ttl", "9s", "--", "sh", "-c", "echo up >up; sleep 4"]);
    let running = env.start(&mut held);
    env.await_line("up");
    proxied.set(Conduct::Refuse);
    for n in 0..20 {
        etcd.ask(&["put", "other", &n.to_string()]);
    }
    etcd.ask(&["compact", &etcd.revision("other")]);
    proxied.set(Conduct::Pass);
    let finished = running.finish();
    assert_eq!(finished.code(), Some(0), "{}", finished.err);
    env.assert_free("x");
}

/// Executes etcdctl's `puts` in one transaction.
fn put_together(etcd: &Etcd, puts: &[String]) {
    let mut putting = etcd.ctl(&["txn"]).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("starts");
    let words = format!("\n{}\n\n\n", puts.join("\n"));
    putting.stdin.take().expect("a pipe").write_all(words.as_bytes()).expect("it reads");
    assert!(putting.wait().expect("ends").success());
}

#[test]
fn waiter_beyond_the_transaction_limit_is_not_superseded() {
    let etcd = Etcd::start();
    let env = env(etcd.endpoint());
    let prefix = env.service().prefix.clone().unwrap_or_default();
    let puts: Vec<String> = (1..=128).map(|n| format!("put {prefix}x/slot/{n} taken")).collect();
    put_together(&etcd, &puts);
    let options = ["--name", "x", "--slots", "128", "--supersede"];
    let older = env.hold(&options);
    env.await_waiters("x", 1);
    let newer = env.finish(env.run(options).args(["--wait", "2s", "--", "true"]));
    assert_eq!(newer.code(), Some(75), "{}", newer.err);
    assert_eq!(env.waiters("x"), 1);
    older.running.signal(Signal::TERM);
    assert_eq!(older.running.finish().signal(), Some(Signal::TERM.as_raw()));
}

#[test]
fn waiter_learns_of_a_leave_request_after_a_server_outage() {
    let etcd = Etcd::start();
    let env = env(etcd.endpoint());
    let proxy = Proxy::to(etcd.server().port());
    let holder = env.held(&["--name", "x"]);
    let far = format!("http://127.0.0.1:{}", proxy.port());
    let waiter = env.start(&mut env.dlock(["run", "--endpoint", &far, "--name", "x", "--", "true"]));
    env.await_waiters("x", 1);
    proxy.set(Conduct::Refuse);
    let status = env.status("x");
    let claim = status["waiters"][0]["claim"].as_str().expect("a claim").to_owned();
    let breaking = env.start(&mut env.verb("break", ["x", "--yes", "--claim", &claim]));
    let notes = format!("{}\u{1}k/", env.service().prefix.clone().expect("a prefix"));
    until_true("a note", || !etcd.ask(&["get", "--prefix", "--keys-only", &notes]).trim().is_empty());
    proxy.set(Conduct::Pass);
    let ended = waiter.finish();
    assert!(ended.code() == Some(75) && ended.err.contains("was broken by"), "{}", ended.err);
    assert_eq!(breaking.finish().code(), Some(0));
    holder.release().silently(0);
}

#[test]
fn record_of_a_newer_dlock_is_another_kind() {
    let etcd = Etcd::start();
    let env = env(etcd.endpoint());
    let prefix = env.service().prefix.clone().unwrap_or_default();
    let record = format!(
        r#"{{"dlock":2,"claim":"{}","mode":"upgradable","ttl_ms":4000,"holder":{{"host":"h9","pid":4,"user":"u","command":"c"}}}}"#,
        "7".repeat(32)
    );
    let record = format!("put {prefix}x\u{1}n/5/1 {record:?}");
    put_together(&etcd, &[format!("put {prefix}x/slot/1 \"\""), record]);
    let before = etcd.requests();
    let refused = env.finish(&mut env.run(["--try", "--name", "x", "--", "true"]));
    refused.failed(64, &["u@h9 pid 4 (c) uses x as a lock with 5 slots"]);
    assert!(
        etcd.ask(&["get", "--prefix", "--keys-only", &format!("{prefix}x/")]).trim()
            == format!("{prefix}x/slot/1")
    );
    let requests = etcd.requests() - before;
    assert!(requests < 20, "{requests}");
}

#[test]
fn ended_runs_leave_no_lease() {
    let etcd = Etcd::start();
    let env = env(etcd.endpoint());
    for words in
        [&["--name", "x"][..], &["--name", "x", "--slots", "2"], &["--name", "x", "--name", "y", "-s"]]
    {
        for code in [0, 3] {
            let command = ["-c".to_owned(), format!("exit {code}")];
            env.finish(env.run(words).args(command)).silently(code);
        }
    }
    let holder = env.held(&["-q", "--name", "x", "--supersede"]);
    let older = env.hold(&["-q", "--name", "x", "--supersede"]);
    env.await_waiters("x", 1);
    let newer = env.hold(&["-q", "--name", "x", "--supersede"]);
    assert_eq!(older.running.finish().code(), Some(75));
    assert_eq!(env.finish(&mut env.run(["-q", "-n", "--name", "x", "--", "true"])).code(), Some(75));
    newer.running.signal(Signal::TERM);
    newer.running.finish();
    env.finish(&mut env.verb("break", ["x", "--all", "--yes"])).silently(0);
    assert_eq!(holder.running.finish().code(), Some(76));
    assert_eq!(etcd.ask(&["lease", "list"]), "found 0 leases\n");
}
