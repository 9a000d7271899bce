//! Requests that a server does not answer: how many connections they take, and what dlock prints about them.

use std::thread;
use std::time::Duration;

use rustix::process::Signal;

use crate::causes::ports;
use crate::servers::proxy::{Conduct, Proxy};
use crate::servers::{mariadb, redis};
use crate::support::wait::{let_pass, until_true};
use crate::support::{Service, TestEnv};
use crate::{mysql, postgres};

#[test]
fn commits_without_standby_take_two_connections_each() {
    let server = postgres::start();
    let env = postgres::env_on(&server);
    let run =
        |words: &[&str]| env.start(&mut env.run([&["--name", "x", "--ttl", "6s", "--"], words].concat()));
    let holder = run(&["sh", "-c", "touch held; sleep 60"]);
    until_true("the lock is held", || env.exists("held"));
    let waiters: Vec<_> = (0..5).map(|_| run(&["true"])).collect();
    env.await_waiters("x", waiters.len());
    server.sql("ALTER SYSTEM SET synchronous_standby_names = 'ghost'");
    assert_eq!(server.sql("SELECT pg_reload_conf()"), "t");
    let why = "commits wait for a synchronous standby (synchronous_standby_names)";
    until_true("the reason", || holder.err_so_far().contains(why));
    assert_eq!(holder.finish().code(), Some(76));
    let_pass(Duration::from_secs(6));
    let count = |of: &str| -> usize {
        let count = server.sql(&format!("SELECT count(*) FROM pg_stat_activity WHERE {of}"));
        count.parse().expect("a number")
    };
    let connections = count("application_name = 'dlock'");
    // A request that is given up is cancelled, and its connection is used again or replaced.
    assert!(connections <= 2 * waiters.len(), "{connections} connections");
    for waiter in &waiters {
        waiter.signal(Signal::TERM);
    }
    let processes = waiters.len() + 1;
    for waiter in waiters {
        waiter.finish();
    }
    // The last one of the holder and of each waiter. All others were cancelled when they were given up.
    let left = count("wait_event = 'SyncRep'");
    assert!(left <= processes, "{left} requests of ended processes");
}

/// Expects that `dlock run` fails with `words` while `other` keeps the tables locked. `has_begun` returns whether they
/// are.
fn locked(env: &TestEnv, other: impl FnOnce() + Send, has_begun: impl Fn() -> bool, words: &[&str]) {
    env.finish(&mut env.run(["--name", "x", "--", "true"])).silently(0);
    thread::scope(|scope| {
        let other = scope.spawn(other);
        until_true("the tables are locked", has_begun);
        let run = env.run(["--try", "--ttl", "12s", "--name", "x", "--", "true"]);
        env.finish(&mut { run }).failed(69, words);
        other.join().expect("it gets its lock");
    });
}

#[test]
fn postgres_locked_tables_name_the_session() {
    let server = postgres::start();
    let lock = || {
        server.sql("LOCK TABLE dlock_claim IN ACCESS EXCLUSIVE MODE; SELECT pg_sleep(6)");
    };
    let has_begun =
        || server.sql("SELECT count(*) FROM pg_locks WHERE mode = 'AccessExclusiveLock' AND granted") == "1";
    let words = ["does not answer in time: process ", "(psql, user postgres) has locked what dlock needs"];
    locked(&postgres::env_on(&server), lock, has_begun, &words);
}

#[test]
fn mysql_locked_tables_are_named() {
    let server = mariadb::start();
    for (statement, words) in [
        ("LOCK TABLES dlock_claim READ", "a statement is in the state \"Waiting for table metadata lock\""),
        ("FLUSH TABLES WITH READ LOCK", "a statement is in the state \"Waiting for "),
    ] {
        let lock = || {
            mariadb::ask(&server, &format!("USE {}; {statement}; SELECT SLEEP(6)", mariadb::DATABASE));
        };
        let sleeps = "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE STATE = 'User sleep'";
        let has_begun = || mariadb::ask(&server, sleeps).trim() == "1";
        locked(&mysql::env_on(&server), lock, has_begun, &["does not answer in time: ", words]);
    }
}

#[test]
fn unanswered_logins_raise_no_doubt_about_the_port() {
    let (_listener, port) = ports::silent();
    for (backend, scheme) in
        [("etcd", "etcd"), ("redis", "redis"), ("postgres", "postgres"), ("memcached", "memcached")]
    {
        let endpoint = format!("{scheme}://127.0.0.1:{port}");
        let env = TestEnv::on(Service { backend, endpoint, prefix: None });
        let mut run = env.run(["--try", "--ttl", "12s", "--name", "x", "--", "true"]);
        let run = run.env("DLOCK_USER", "ci").env("DLOCK_PASSWORD", "secret");
        let said = env
            .finish(run)
            .failed(69, &["accepts connections but does not answer in time: the login was sent"]);
        assert!(!said.err.contains("right port"), "{backend}: {}", said.err);
    }
}

/// A run whose login the server at `port` answers, and none of its requests, nor anything else from then on.
fn mute_after_login(backend: &'static str, port: u16, address: impl Fn(u16) -> String, user: Option<&str>) {
    let relay = Proxy::to(port);
    relay.set(Conduct::MuteFrom("muted"));
    let env = TestEnv::on(Service { backend, endpoint: address(relay.port()), prefix: None });
    let mut run = env.run(["--try", "--ttl", "12s", "--name", "muted", "--", "true"]);
    if let Some(user) = user {
        run.env("DLOCK_USER", user).env("DLOCK_PASSWORD", "secret");
    }
    let said = env.finish(&mut run).failed(69, &["does not answer in time: the request was sent "]);
    assert!(!said.err.contains("right port"), "{backend}: {}", said.err);
    assert_eq!(relay.conduct(), Conduct::Mute, "{backend}");
}

#[test]
fn answered_login_raises_no_doubt_about_the_port() {
    let server = redis::start();
    assert_eq!(redis::raw(server.port(), &["CONFIG", "SET", "requirepass", "secret"]), "+OK\r\n");
    mute_after_login("redis", server.port(), |port| format!("redis://127.0.0.1:{port}"), Some("default"));
    mute_after_login("mysql", mariadb::start().port(), mariadb::address_at, None);
    let server = postgres::start();
    let address = |port| format!("postgres://postgres@127.0.0.1:{port}/postgres");
    mute_after_login("postgres", server.port(), address, None);
}
