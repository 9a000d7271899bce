//! A waiter that the service refuses to admit again after its connection broke. The decision is the same for every
//! service; these three differ in the way to connect again.

use std::time::{Duration, Instant};

use crate::causes::scene::Kind;
use crate::causes::secure::admit;
use crate::servers::etcd::{Etcd, metrics};
use crate::servers::{postgres, redis};
use crate::support::{Service, TestEnv, within};

const TTL: Duration = Duration::from_secs(9);

/// A service that admits `ci` with the password `right`. `refuse` locks the user out and closes all connections.
/// `logins` counts the later logins.
struct Guarded {
    endpoint: String,
    refuse: Box<dyn FnOnce()>,
    logins: Box<dyn Fn() -> usize>,
}

fn redis() -> Guarded {
    let server = redis::start_with(&["--appendonly", "no"]);
    let (port, endpoint) = (server.port(), redis::address(&server));
    redis::raw(port, &["ACL", "SETUSER", "ci", "on", ">right", "~*", "&*", "+@all"]);
    let refuse = move || {
        redis::raw(port, &["ACL", "SETUSER", "ci", "resetpass", ">other"]);
        redis::raw(port, &["CONFIG", "RESETSTAT"]);
        redis::raw(port, &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    };
    let logins = move || {
        let info = redis::raw(server.port(), &["INFO", "stats"]);
        let line = info.lines().find_map(|line| line.strip_prefix("total_connections_received:"));
        line.and_then(|count| count.trim().parse().ok()).expect("a count")
    };
    Guarded { endpoint, refuse: Box::new(refuse), logins: Box::new(logins) }
}

fn postgres() -> Guarded {
    let server = std::rc::Rc::new(postgres::start());
    server.sql("CREATE ROLE ci LOGIN PASSWORD 'right'");
    server.sql("GRANT CREATE ON SCHEMA public TO PUBLIC");
    admit(&server, "host all ci 127.0.0.1/32 scram-sha-256");
    let endpoint = format!("postgres://127.0.0.1:{}/postgres", server.port());
    let told = server.clone();
    let refuse = move || {
        told.sql("ALTER ROLE ci PASSWORD 'other'");
        told.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'ci'");
    };
    // Each attempt is a line of the server's log.
    let logins = move || server.server().log().matches("password authentication failed").count();
    Guarded { endpoint, refuse: Box::new(refuse), logins: Box::new(logins) }
}

fn etcd() -> Guarded {
    let etcd = Etcd::start();
    etcd.guard("right", &[""]);
    let etcd = std::rc::Rc::new(etcd);
    let (endpoint, told) = (etcd.endpoint(), etcd.clone());
    let refuse = move || {
        told.ask(&["--user", "root:admin", "user", "delete", "ci"]);
        told.server().restart();
    };
    let logins = move || {
        let said = metrics(etcd.server().port());
        let refused = |line: &&str| line.contains("Authenticate") && line.contains("InvalidArgument");
        let lines = said.lines().filter(|line| line.starts_with("grpc_server_handled_total"));
        let counts =
            lines.filter(refused).filter_map(|line| line.split(' ').next_back()?.parse::<usize>().ok());
        counts.sum()
    };
    Guarded { endpoint, refuse: Box::new(refuse), logins: Box::new(logins) }
}

/// Expects that a waiter exits 77 when its place is lost, that it reports no holder, and that it does not retry for
/// ever.
#[track_caller]
fn ends_with_the_refusal(kind: Kind, guarded: Guarded) {
    if let Some(missing) = kind.missing() {
        panic!("{missing}; tests/run installs it");
    }
    let service = Service { backend: kind.backend(), endpoint: guarded.endpoint, prefix: None };
    let env = TestEnv::on(service).with_variables(vec![
        ("DLOCK_USER", "ci".to_owned()),
        ("DLOCK_PASSWORD", "right".to_owned()),
        ("DLOCK_TTL", "9s".to_owned()),
    ]);
    let holder = env.start(&mut env.run(["--name", "x", "--", "sh", "-c", "echo > held; sleep 60"]));
    env.await_line("held");
    let ways: [&[&str]; 4] = [
        &["run", "--name", "x", "--", "true"],
        &["run", "--name", "x", "--wait", "60s", "--", "true"],
        &["run", "--name", "x", "--once-per", "1h", "--", "true"],
        &["elect", "--name", "x", "--forever", "--", "true"],
    ];
    let waiters = ways.map(|words| env.start(&mut env.verb(words[0], &words[1..])));
    env.await_waiters("x", waiters.len());
    let refused = Instant::now();
    (guarded.refuse)();
    let begun = Instant::now();
    for (waiter, words) in waiters.into_iter().zip(ways) {
        let ended = waiter.finish_within(TTL * 3);
        assert_eq!(ended.code(), Some(77), "{words:?}: {}", ended.err);
        assert!(!ended.err.contains("gave up"), "{}", ended.err);
    }
    within(begun.elapsed(), TTL + Duration::from_secs(1));
    assert_eq!(holder.finish().code(), Some(76));
    // Four waiters and one holder, each with some ten attempts within a TTL.
    let lasted = refused.elapsed();
    let logins = u32::try_from((guarded.logins)()).expect("few");
    assert!(logins >= 5 && TTL * logins <= lasted * 100, "{logins} logins within {lasted:?}");
}

#[test]
fn on_etcd() {
    ends_with_the_refusal(Kind::Etcd, etcd());
}

#[test]
fn on_redis() {
    ends_with_the_refusal(Kind::Redis, redis());
}

#[test]
fn on_postgres() {
    ends_with_the_refusal(Kind::Postgres, postgres());
}
