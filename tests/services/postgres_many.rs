//! More than one PostgreSQL, poolers, and notifications.

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
use crate::support::test_env::Holder;
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
    assert!(is_alive(holder.command()), "a restart ended the command");
    assert_eq!(holder.release().code(), Some(0));
    for waiter in waiters {
        assert_eq!(waiter.finish_within(Duration::from_secs(60)).code(), Some(0));
    }
    assert_eq!(env.read("done").lines().count(), 15);
    env.assert_free("x");
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
    let mut holder = env.held(&["--name", "x", "--ttl", "10m"]);
    let first = env.hold(&["--name", "x", "--ttl", "10m"]);
    env.await_waiters("x", 1);
    let waiters = [first, env.hold(&["--name", "x", "-s"])];
    env.await_waiters("x", 2);
    let listenings = || server.server().log().matches("LISTEN \"").count();
    until_true("every waiter listens", || listenings() >= 3);
    let as_stranger = |statements: &str| {
        let mut psql = env.command("psql");
        psql.args([
            &format!("postgres://stranger@127.0.0.1:{}/postgres", server.port()),
            "-XAtqo",
            "/dev/null",
            "-c",
            statements,
        ]);
        env.finish(&mut psql)
    };
    assert!(as_stranger("SELECT claim FROM dlock_claim").err.contains("permission denied"));
    // The claims that `status` shows to every user, and the token of an older hold.
    let before = env.status("x");
    let entries: Vec<&serde_json::Value> =
        ["holders", "waiters"].iter().flat_map(|list| before[*list].as_array().expect("entries")).collect();
    let claims: Vec<&str> = entries.iter().filter_map(|entry| entry["claim"].as_str()).collect();
    assert_eq!(claims.len(), 3);
    let token = holder.token();
    let mut texts = vec![String::new(), "x".to_owned(), "released".to_owned(), "{\"fence\":9}".to_owned()];
    texts.extend([1, token - 1, token, token + 1, token + 2, token + 3, 999_999].map(|n| n.to_string()));
    texts.extend(claims.iter().map(|claim| (*claim).to_owned()));
    texts.extend(claims.iter().map(|claim| format!("{claim} {}", token + 1)));
    let send = |pause: &str| {
        let channels = claims.iter().map(|claim| format!("dlock_c_{claim}"));
        let sent = channels.flat_map(|channel| {
            texts.iter().map(move |text| format!("NOTIFY \"{channel}\", '{text}'; SELECT pg_sleep({pause});"))
        });
        // Each in a transaction of its own.
        let script = env.write("messages.sql", &sent.collect::<String>());
        as_stranger(&format!("\\i {}", script.display())).silently(0);
    };
    let reads = || server.server().log().matches("SELECT m.seq").count();
    let read = reads();
    send("0.02");
    send("0");
    until_true("the messages were heard", || reads() > read);
    let_pass(Duration::from_millis(500));
    assert!(!waiters.iter().any(Holder::has_started), "a stranger gave the lock away");
    assert!(is_alive(holder.command()) && !holder.running.has_ended(), "a stranger took the lock away");
    let after = env.status("x");
    let of = |status: &serde_json::Value| {
        let list = |name: &str| status[name].as_array().expect("entries").clone();
        let facts = |entry: serde_json::Value| (entry["claim"].clone(), entry["token"].clone());
        ["holders", "waiters"].map(|name| list(name).into_iter().map(facts).collect::<Vec<_>>())
    };
    assert_eq!(of(&after), of(&before));
    holder.release().silently(0);
    for mut waiter in waiters {
        waiter.await_start();
        assert_eq!(waiter.token().to_string(), env.status("x")["holders"][0]["token"]);
        assert!(waiter.token() > token && waiter.token() < 999_999, "{}", waiter.token());
        send("0");
        assert!(is_alive(waiter.command()), "a stranger took the lock away");
        assert_eq!(waiter.release().code(), Some(0));
    }
    env.assert_free("x");
}

/// Advisory locks have no owners either: every client that can connect may lock each of them.
#[test]
fn foreign_advisory_locks_block_no_claim() {
    let server = start();
    server.sql("CREATE ROLE stranger LOGIN");
    let env = env_on(&server);
    // The keys of the watchers of x and of the process that creates the tables.
    let key = |lock: &str| {
        format!(
            "pg_advisory_lock(('x' || left(encode(sha256(convert_to('\"dlock_claim\"', 'UTF8') || '\\x00'::bytea \
             || convert_to($${lock}$$, 'UTF8')), 'hex'), 16))::bit(64)::bigint)"
        )
    };
    let statements = format!("SELECT {}, {}; SELECT pg_sleep(600)", key("E'x'"), key(""));
    let mut psql = env.command("psql");
    psql.args([&format!("postgres://stranger@127.0.0.1:{}/postgres", server.port()), "-Xqc", &statements]);
    let stranger = env.start(&mut psql);
    let held = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted";
    until_true("both locks", || server.sql(held) == "2");
    env.finish(&mut env.run(["-w", "10s", "--name", "x", "--", "true"])).silently(0);
    let holder = env.held(&["--name", "x"]);
    let watch = env.start(&mut env.verb("watch", ["--json", "x"]));
    until_true("a holder", || watch.out_so_far().contains(holder.claim()));
    holder.release().silently(0);
    until_true("no session", || {
        watch.out_so_far().lines().last().is_some_and(|line| line.contains("\"holders\":[]"))
    });
    watch.signal(Signal::INT);
    let ended = watch.finish();
    assert!(ended.err.is_empty(), "{}", ended.err);
    let script = "export DLOCK_ENDPOINT=\"$locks\"\n\
        c=$(\"$dlock\" acquire --name x --for-pid $$) || exit\neval \"$c\"\n\"$dlock\" release";
    let released = env.finish(env.command("sh").args(["-c", script]));
    assert_eq!((released.code(), released.err.as_str()), (Some(0), ""));
    env.assert_free("x");
    assert_eq!(server.sql(held), "2", "the stranger has them still");
    stranger.signal(Signal::KILL);
    stranger.finish();
}
