//! etcd: authentication tokens that expire, compaction, and leases.

use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::Signal;

use crate::etcd_faults::locks_at;
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
fn expired_authentication_token_is_replaced() {
    let etcd = Etcd::with(&["--auth-token-ttl".to_owned(), "2".to_owned()]);
    etcd.guard("se:cret", &["locks/", "\u{1}"]);
    let env = locks_at(etcd.endpoint());
    // Longer than an authentication token lasts: the renewals and the release need new ones.
    let mut command = env.run(["--name", "x", "--ttl", "6s", "--", "sleep", "6"]);
    command.env("DLOCK_USER", "ci").env("DLOCK_PASSWORD", "se:cret");
    env.finish(&mut command).silently(0);
}

#[test]
fn holder_survives_the_compaction_of_its_watched_keys() {
    let etcd = Etcd::start();
    let env = env(etcd.endpoint());
    let proxied = Proxy::to(etcd.server().port());
    let mut held = env.dlock(["run", "--endpoint", &format!("http://127.0.0.1:{}", proxied.port())]);
    held.args(["--name", "x", "--ttl", "18s", "--", "sh", "-c", "echo up >up; read _ <gate"]);
    let gate = env.gate("gate");
    let running = env.start(&mut held);
    env.await_line("up");
    proxied.set(Conduct::Refuse);
    for n in 0..5 {
        etcd.ask(&["put", "other", &n.to_string()]);
    }
    etcd.ask(&["compact", &etcd.revision("other")]);
    let before = proxied.made();
    proxied.set(Conduct::Pass);
    until_true("a new connection", || proxied.made() > before);
    env.await_renewals("x", 1);
    gate.open();
    let finished = running.finish();
    assert_eq!(finished.code(), Some(0), "{}", finished.err);
    env.assert_free("x");
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
