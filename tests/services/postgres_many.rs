//! More than one PostgreSQL, poolers, notifications, and connections.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::postgres::{env_at, env_on, start};
use crate::servers::Site as _;
use crate::servers::postgres::{self, Postgres};
use crate::servers::{Server, free_port, shared_folder};
use crate::site::looked;
use crate::support::process::is_alive;
use crate::support::wait::{let_pass, until_true};
use crate::support::within;

#[test]
fn a_standby_is_passed_over_and_followed_when_it_takes_over() {
    let primary = start();
    let standby = primary.standby();
    let alone = env_on(&standby);
    let refused = alone.finish(&mut alone.run(["--try", "--name", "x", "--", "true"]));
    refused.failed(69, &["is read-only"]);
    let both =
        format!("postgres://postgres@127.0.0.1:{},127.0.0.1:{}/postgres", standby.port(), primary.port());
    let env = env_at(both);
    let said = env.finish(&mut env.verb("doctor", [] as [&str; 0])).silently(0).text();
    let note =
        said.lines().find(|line| line.contains(&standby.port().to_string()) && line.contains("note: "));
    assert!(note.is_some_and(|note| note.contains("it is read-only (it is a standby)")), "{said}");
    let holder = env.held(&["--name", "x", "--ttl", "30s", "-q"]);
    let waiter = env.start(&mut env.run(["-q", "--name", "x", "--ttl", "6s", "--", "true"]));
    env.await_waiters("x", 1);
    let copied = || standby.sql("SELECT count(*) FROM dlock_claim") == "2";
    until_true("the standby has both claims", copied);
    primary.down();
    assert_eq!(standby.sql("SELECT pg_promote()"), "t");
    assert!(is_alive(holder.command()), "a failover ended the command");
    env.await_waiters("x", 1);
    assert_eq!(holder.release().code(), Some(0));
    assert_eq!(waiter.finish().code(), Some(0));
    env.assert_free("x");
}

/// Starts a server with room for ten clients.
fn small() -> Postgres {
    postgres::start_with(&["max_connections=10", "superuser_reserved_connections=0", "max_wal_senders=0"])
}

#[test]
fn waiters_leave_connections_to_others_where_few_are_left() {
    let server = small();
    let env = env_on(&server);
    let holder = env.held(&["--name", "x", "--ttl", "6s", "-q"]);
    let run =
        || env.start(&mut env.run(["-q", "--name", "x", "--ttl", "6s", "--", "sh", "-c", "echo >> done"]));
    let waiters: Vec<_> = (0..15).map(|_| run()).collect();
    // As many waiters have arrived as there are connections, and each has renewed once.
    let_pass(Duration::from_secs(5));
    for _ in 0..10 {
        // The query fails if the server has no room for it.
        let clients = server.sql("SELECT count(*) FROM pg_stat_activity WHERE datid IS NOT NULL");
        assert!(clients.parse::<u32>().is_ok_and(|clients| clients <= 10), "{clients}");
        let_pass(Duration::from_millis(200));
    }
    env.await_waiters("x", waiters.len());
    server.restart();
    let_pass(Duration::from_secs(7));
    assert!(is_alive(holder.command()), "a restart ended the command: {}", holder.err_so_far());
    assert_eq!(holder.release().code(), Some(0));
    for waiter in waiters {
        assert_eq!(waiter.finish_within(Duration::from_secs(60)).code(), Some(0));
    }
    assert_eq!(env.read("done").lines().count(), 15);
    env.assert_free("x");
}

#[test]
fn observer_sleeps_before_and_after_the_tables_exist() {
    let server = start();
    let env = env_on(&server);
    let watch = env.start(&mut env.verb("watch", ["x", "--json"]));
    let sleeps = || {
        let latest = "SELECT max(query_start) < clock_timestamp() - interval '1500 ms' FROM pg_stat_activity";
        server.sql(&format!("{latest} WHERE application_name = 'dlock'")) == "t"
    };
    until_true("the first look", || watch.out_so_far().lines().count() == 1);
    until_true("an observer that sleeps without tables", sleeps);
    let holder = env.held(&["--quiet", "--name", "x", "--ttl", "30s"]);
    until_true("the holder", || watch.out_so_far().contains(holder.claim()));
    until_true("an observer that sleeps while the lock is held", sleeps);
    holder.release().silently(0);
    watch.signal(Signal::INT);
    watch.finish();
}

/// A pooler that gives each transaction one of two connections.
pub(super) fn pooler(server: &Postgres) -> Server {
    let (folder, port) = (shared_folder("pgbouncer"), free_port());
    let settings = format!(
        "[databases]\npostgres = host=127.0.0.1 port={} user=postgres\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
         listen_port = {port}\nauth_type = any\npool_mode = transaction\ndefault_pool_size = 2\nunix_socket_dir =\n",
        server.port()
    );
    let file = folder.join("pgbouncer.ini");
    fs::write(&file, settings).expect("writes");
    Server::start(folder, port, move || {
        // pgbouncer refuses to run as root.
        let mut command: Command = postgres::as_role("pgbouncer".as_ref());
        command.arg(&file);
        command
    })
}

#[test]
fn behind_a_pooler_one_looks_instead_of_listening() {
    let server = postgres::start_with(&["fsync=on", "log_statement=all"]);
    let pooler = pooler(&server);
    let env = env_at(format!("postgres://postgres@127.0.0.1:{}/postgres", pooler.port()));
    let holder = env.held(&["--name", "x", "--ttl", "10m"]);
    let mut waiters = Vec::new();
    for n in 0..5 {
        waiters.push(env.hold(&["-q", "--name", "x", "--ttl", "10m"]));
        env.await_waiters("x", n + 1);
    }
    assert!(holder.release().code() == Some(0));
    for mut waiter in waiters {
        // The next renewal is minutes away.
        waiter.await_start();
        waiter.release();
    }
    let said = looked(&env);
    assert!(said.contains("pooler") && said.contains("500 ms"), "{said}");
    assert!(!server.server().log().contains("LISTEN"), "a shared session must be left as it is");
    env.assert_free("x");
}

#[test]
fn lost_wake_up_delays_to_the_next_renewal_at_most() {
    let server = start();
    let env = env_on(&server);
    let holder = env.held(&["--name", "x", "--ttl", "10m"]);
    let mut waiter = env.hold(&["-q", "--name", "x", "--ttl", "9s"]);
    env.await_waiters("x", 1);
    let begun = Instant::now();
    // A row that is removed by hand causes no notification.
    server.lose(env.service(), "x", holder.claim());
    waiter.await_start();
    within(begun.elapsed(), Duration::from_secs(3));
    waiter.release();
    holder.let_go();
    holder.running.finish();
}

/// Channels have no owners: every client that can connect may send every message.
#[test]
fn messages_of_strangers_start_nothing_and_end_nothing() {
    let server = postgres::start_with(&["fsync=on", "log_statement=all"]);
    server.sql("CREATE ROLE stranger LOGIN");
    let env = env_on(&server);
    let holder = env.held(&["--name", "x", "--ttl", "10m"]);
    let mut waiter = env.hold(&["-q", "--name", "x", "--ttl", "10m"]);
    env.await_waiters("x", 1);
    let logged = |text: &str| server.server().log().matches(text).count();
    until_true("both listen", || logged("LISTEN \"") > 1);
    // `status` shows claims and tokens to every user.
    let shown = || {
        let status = env.status("x");
        ["holders", "waiters"]
            .map(|list| (status[list][0]["claim"].clone(), status[list][0]["token"].clone()))
    };
    let (before, token) = (shown(), holder.token());
    let [own, next] = before.each_ref().map(|(claim, _)| claim.as_str().expect("a claim"));
    let tokens = [token, token + 1].map(|n| n.to_string());
    let grant = format!("{next} {}", token + 1);
    let texts = ["", "x", "released", &tokens[0], &tokens[1], own, next, &grant];
    let channels = [own, next].into_iter();
    let sent =
        channels.flat_map(|claim| texts.map(|text| format!("NOTIFY \"dlock_c_{claim}\", '{text}';\n")));
    let script = env.write("messages.sql", &sent.collect::<String>());
    let read = logged("SELECT m.seq");
    let mut psql = env.command("psql");
    psql.arg(format!("postgres://stranger@127.0.0.1:{}/postgres", server.port())).args(["-Xqf"]).arg(script);
    env.finish(&mut psql).silently(0);
    until_true("the messages were heard", || logged("SELECT m.seq") > read);
    let_pass(Duration::from_millis(500));
    assert!(!waiter.has_started(), "a stranger gave the lock away");
    assert!(is_alive(holder.command()), "a stranger took the lock away");
    assert_eq!(shown(), before);
    holder.release().silently(0);
    waiter.await_start();
    assert!(waiter.token() > token, "{} after {token}", waiter.token());
    waiter.release().silently(0);
    env.assert_free("x");
}

#[test]
fn commits_without_standby_take_two_connections_each() {
    let server = start();
    let env = env_on(&server);
    let run =
        |words: &[&str]| env.start(&mut env.run([&["--name", "x", "--ttl", "6s", "--"], words].concat()));
    let holder = run(&["sh", "-c", "touch held; sleep 60"]);
    until_true("the lock is held", || env.exists("held"));
    let waiters: Vec<_> = (0..5).map(|_| run(&["true"])).collect();
    env.await_waiters("x", waiters.len());
    server.sql("ALTER SYSTEM SET synchronous_standby_names = 'ghost'");
    assert_eq!(server.sql("SELECT pg_reload_conf()"), "t");
    assert_eq!(holder.finish().code(), Some(76));
    let_pass(Duration::from_secs(6));
    let count = |of: &str| -> usize {
        let count = server.sql(&format!("SELECT count(*) FROM pg_stat_activity WHERE {of}"));
        count.parse().expect("a number")
    };
    // A request that is given up is cancelled, and its connection is used again or replaced. The server may not have
    // ended the one before yet.
    until_true("two connections each", || count("application_name = 'dlock'") <= 2 * waiters.len());
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
