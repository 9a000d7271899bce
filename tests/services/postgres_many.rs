//! More than one server, what stands between, and what many clients do to one.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::postgres::{bed_at, bed_on, start};
use crate::oracle::Oracle;
use crate::servers::postgres::{self, Postgres};
use crate::servers::proxy::{Conduct, Proxy};
use crate::servers::{Server, free_port, shared_folder};
use crate::support::process::is_alive;
use crate::support::running::finish_all;
use crate::support::wait::{let_pass, until_true};
use crate::support::{Bed, process, quiet, within};

#[test]
fn a_standby_is_passed_over_and_followed_when_it_takes_over() {
    let primary = start();
    let standby = primary.standby();
    let alone = bed_on(&standby);
    let refused = alone.finish(&mut alone.run(["--try", "--name", "x", "--", "true"]));
    refused.failed(69, &["takes no writes"]);
    let both =
        format!("postgres://postgres@127.0.0.1:{},127.0.0.1:{}/postgres", standby.port(), primary.port());
    let bed = bed_at(both);
    let holder = bed.held(&["--name", "x", "--ttl", "30s", "-q"]);
    let waiter = bed.start(&mut bed.run(["-q", "--name", "x", "--ttl", "6s", "--", "true"]));
    bed.await_waiters("x", 1);
    let copied = || standby.sql("SELECT count(*) FROM dlock_claim") == "2";
    until_true("the standby has both claims", copied);
    primary.down();
    assert_eq!(standby.sql("SELECT pg_promote()"), "t");
    assert!(is_alive(holder.command()), "a failover ended the command");
    bed.await_waiters("x", 1);
    assert_eq!(holder.release().code(), Some(0));
    assert_eq!(waiter.finish().code(), Some(0));
    bed.assert_free("x");
}

#[test]
fn holds_and_waits_outlast_a_connection_that_breaks() {
    let server = postgres::start_with(&["fsync=on", "log_statement=all"]);
    let proxy = Proxy::to(server.port());
    let bed = bed_at(format!("postgres://postgres@127.0.0.1:{}/postgres", proxy.port()));
    let holder = bed.held(&["--name", "x"]);
    let mut waiter = bed.hold(&["--name", "x", "-q"]);
    bed.await_waiters("x", 1);
    let listening = || server.server().log().matches("LISTEN").count();
    until_true("both listen", || listening() >= 2);
    let before = listening();
    proxy.set(Conduct::Refuse);
    proxy.set(Conduct::Pass);
    // Who has connected anew listens anew, so that no renewal is waited for.
    until_true("both listen again", || listening() >= before + 2);
    bed_on(&server).await_waiters("x", 1);
    assert_eq!(holder.release().code(), Some(0));
    waiter.await_start();
    waiter.release();
}

#[test]
fn a_database_that_is_gone_for_longer_than_the_lease_loses_the_lock() {
    let server = start();
    let bed = bed_on(&server);
    let holder = bed.held(&["--name", "x", "--ttl", "5s"]);
    let mut waiter = bed.hold(&["-q", "--name", "x", "--ttl", "5s"]);
    bed.await_waiters("x", 1);
    let command = holder.command();
    server.down();
    let ended = holder.running.finish();
    assert!(ended.code() == Some(76) && !is_alive(command), "{}", ended.err);
    server.up();
    waiter.await_start();
    waiter.release();
    bed.assert_free("x");
}

/// How many requests the server has had, if it writes all of them down.
fn requests(server: &Postgres) -> usize {
    server.server().log().lines().filter(|line| line.contains("statement: BEGIN")).count()
}

#[test]
fn a_waiter_at_rest_asks_for_nothing_but_its_renewals() {
    let server = postgres::start_with(&["fsync=on", "log_statement=all"]);
    let bed = bed_on(&server);
    let holder = bed.held(&["--name", "x", "--ttl", "10m"]);
    let mut waiter = bed.hold(&["-q", "--name", "x", "--ttl", "3s"]);
    bed.await_waiters("x", 1);
    until_true("a waiter that listens", || server.server().log().contains("LISTEN"));
    // What the holder asks at its beginning is over when it listens too.
    until_true("both listen", || server.server().log().matches("LISTEN").count() >= 2);
    let (before, begun) = (requests(&server), Instant::now());
    let_pass(Duration::from_millis(4_500));
    let renewals = usize::try_from(begun.elapsed().as_secs()).expect("small") + 1;
    let asked = requests(&server) - before;
    assert!((2..=renewals).contains(&asked), "{asked} requests, and {renewals} renewals were due");
    assert_eq!(holder.release().code(), Some(0));
    waiter.await_start();
    waiter.release();
}

#[test]
fn a_hand_over_costs_the_same_however_long_the_line_is() {
    let mut costs = Vec::new();
    for length in [2, 12] {
        let server = postgres::start_with(&["fsync=on", "log_statement=all"]);
        let bed = bed_on(&server);
        let holder = bed.held(&["--name", "x", "--ttl", "10m"]);
        let mut waiters = Vec::new();
        for n in 0..length {
            waiters.push(bed.hold(&["-q", "--name", "x", "--ttl", "10m"]));
            bed.await_waiters("x", n + 1);
        }
        let all = || server.server().log().matches("LISTEN").count() > length;
        until_true("everybody listens", all);
        let before = requests(&server);
        holder.release().silently(0);
        waiters[0].await_start();
        // A hold that lasts has the server tell of its end.
        until_true("the next listens", || {
            server.sql("SELECT count(*) FROM dlock_claim") == length.to_string()
        });
        costs.push(requests(&server) - before);
        for mut waiter in waiters {
            waiter.await_start();
            waiter.release();
        }
    }
    assert!(costs.iter().all(|cost| (2..=3).contains(cost)), "{costs:?}");
}

/// A pooler that gives each transaction whichever of two connections is free.
fn pooler(server: &Postgres) -> Server {
    let (folder, port) = (shared_folder("pgbouncer"), free_port());
    let settings = format!(
        "[databases]\npostgres = host=127.0.0.1 port={} user=postgres\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
         listen_port = {port}\nauth_type = any\npool_mode = transaction\ndefault_pool_size = 2\nunix_socket_dir =\n",
        server.port()
    );
    let file = folder.join("pgbouncer.ini");
    fs::write(&file, settings).expect("writes");
    Server::start(folder, port, move || {
        // It refuses to run as root.
        let mut command: Command = postgres::as_somebody("pgbouncer".as_ref());
        command.arg(&file);
        command
    })
}

#[test]
fn behind_a_pooler_one_looks_instead_of_listening() {
    let server = postgres::start_with(&["fsync=on", "log_statement=all"]);
    let pooler = pooler(&server);
    let bed = bed_at(format!("postgres://postgres@127.0.0.1:{}/postgres", pooler.port()));
    let holder = bed.held(&["--name", "x", "--ttl", "10m"]);
    let mut waiters = Vec::new();
    for n in 0..5 {
        waiters.push(bed.hold(&["-q", "--name", "x", "--ttl", "10m"]));
        bed.await_waiters("x", n + 1);
    }
    assert!(holder.release().code() == Some(0));
    for mut waiter in waiters {
        // No renewal is due for minutes.
        waiter.await_start();
        waiter.release();
    }
    let looked = bed.finish(&mut bed.verb("doctor", [] as [&str; 0])).text();
    assert!(looked.contains("pooler") && looked.contains("500 ms"), "{looked}");
    assert!(!server.server().log().contains("LISTEN"), "a session that is everybody's must be left as it is");
    bed.assert_free("x");
}

#[test]
fn thirty_at_once_of_whom_some_are_killed_never_overlap() {
    let _load = quiet::loading();
    let server = start();
    let bed = bed_on(&server);
    let oracle = Oracle::new(&bed);
    let seed = u64::from(std::process::id());
    eprintln!("seed: {seed}");
    let mut state = seed;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).expect("fits") % below
    };
    let mut swarm = Vec::new();
    for _ in 0..30 {
        let (flag, mode) = if random(4) == 0 { ("-s", "shared") } else { ("-x", "exclusive") };
        let mut command = bed.run(["-q", "--name", "x", "--ttl", "2s", "--grace", "200ms", flag, "--"]);
        swarm.push(bed.start(command.args(Oracle::words(mode))));
    }
    for _ in 0..10 {
        let kind = ["dlock", "lease-keeper"][random(2)];
        let those: Vec<_> = bed.processes().into_iter().filter(|p| p.name == kind).map(|p| p.pid).collect();
        if !those.is_empty() {
            process::signal(those[random(those.len())], Signal::KILL);
        }
        assert_eq!(oracle.overlap(), None, "both hold exclusively and live");
        let_pass(Duration::from_millis(u64::try_from(random(60)).expect("small")));
    }
    for one in swarm {
        one.finish();
    }
    assert_eq!(oracle.violations(), "");
    assert_eq!(oracle.disorder().first(), None);
    assert!(oracle.holds().len() >= 15, "{} holds: too little happened", oracle.holds().len());
    until_true("an empty process table", || bed.processes().is_empty());
    bed.assert_free("x");
}

#[test]
fn several_names_in_any_order_never_stand_in_each_others_way() {
    let server = start();
    let bed = bed_on(&server);
    let orders = [["a", "b", "c"], ["c", "b", "a"], ["b", "a", "c"]];
    let script = "read n <counter; sleep 0.002; echo $((n + 1)) >counter";
    bed.write("counter", "0\n");
    let start = |n: usize| {
        let names = orders[n % 3].iter().flat_map(|name| ["--name", name]);
        let mut command = bed.run(["-q"]);
        bed.start(command.args(names).args(["--", "sh", "-c", script]))
    };
    finish_all((0..24).map(start).collect::<Vec<_>>());
    assert_eq!(bed.read("counter"), "24\n");
}

#[test]
fn a_watch_shows_each_change_without_asking_all_the_time() {
    let server = postgres::start_with(&["fsync=on", "log_statement=all"]);
    let bed: Bed = bed_on(&server);
    bed.finish(&mut bed.run(["--name", "x", "--", "true"])).silently(0);
    let watch = bed.start(&mut bed.verb("watch", ["--json", "x"]));
    until_true("a watch", || server.server().log().contains("pg_advisory_lock_shared"));
    let looks = || server.server().log().matches("ORDER BY c.name, c.seq").count();
    until_true("the first look", || looks() >= 1);
    let holder = bed.held(&["--name", "x", "--ttl", "10m"]);
    until_true("a look after the grant", || looks() >= 2);
    holder.release().silently(0);
    until_true("a look after the release", || looks() >= 3);
    let before = looks();
    let_pass(Duration::from_secs(2));
    assert!(looks() <= before + 1, "it asks all the time");
    watch.signal(Signal::INT);
    let shown = watch.finish().text();
    assert!(shown.lines().count() >= 3 && shown.lines().any(|l| l.contains("\"token\":\"")), "{shown}");
}

#[test]
fn a_wake_up_that_is_lost_costs_no_more_than_the_time_to_the_next_renewal() {
    let server = start();
    let bed = bed_on(&server);
    let holder = bed.held(&["--name", "x", "--ttl", "10m"]);
    let mut waiter = bed.hold(&["-q", "--name", "x", "--ttl", "9s"]);
    bed.await_waiters("x", 1);
    let begun = Instant::now();
    // Whoever removes a row by hand tells nobody.
    server.lose("dlock_", "x");
    waiter.await_start();
    within(begun.elapsed(), Duration::from_secs(3));
    waiter.release();
    holder.let_go();
    holder.running.finish();
}
