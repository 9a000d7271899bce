//! What many clients do to one MariaDB, and what becomes of them when it or a connection breaks.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::mysql::{bed_at, bed_on};
use crate::oracle::Oracle;
use crate::servers::proxy::{Conduct, Proxy};
use crate::servers::{Server, mariadb};
use crate::support::process::is_alive;
use crate::support::running::finish_all;
use crate::support::wait::{let_pass, until_true};
use crate::support::{process, quiet};

/// A server that writes every request down.
fn talkative() -> Server {
    mariadb::start_with(&["--general-log=1", "--general-log-file=requests"])
}

/// What it was asked.
fn requests(server: &Server) -> String {
    std::fs::read_to_string(server.folder().join("data/requests")).unwrap_or_default()
}

/// How many steps on a line it was asked for.
fn steps(server: &Server) -> usize {
    requests(server).matches("START TRANSACTION").count()
}

/// How often somebody began to listen.
fn listenings(server: &Server) -> usize {
    requests(server).matches("SET @dlock_says = GET_LOCK").count()
}

#[test]
fn holds_and_waits_outlast_a_connection_that_breaks() {
    let server = talkative();
    let proxy = Proxy::to(server.port());
    let bed = bed_at(mariadb::address_at(proxy.port()));
    let holder = bed.held(&["--name", "x", "-q"]);
    let mut waiter = bed.hold(&["--name", "x", "-q"]);
    bed.await_waiters("x", 1);
    until_true("both listen", || listenings(&server) >= 2);
    let before = listenings(&server);
    proxy.set(Conduct::Refuse);
    proxy.set(Conduct::Pass);
    // Who has connected anew listens anew, so that no renewal is waited for.
    until_true("both listen again", || listenings(&server) >= before + 2);
    bed_on(&server).await_waiters("x", 1);
    assert_eq!(holder.release().code(), Some(0));
    waiter.await_start();
    waiter.release();
}

#[test]
fn a_database_that_is_gone_for_longer_than_the_lease_loses_the_lock() {
    let server = mariadb::start();
    let bed = bed_on(&server);
    let holder = bed.held(&["--name", "x", "--ttl", "5s"]);
    let mut waiter = bed.hold(&["-q", "--name", "x", "--ttl", "5s"]);
    bed.await_waiters("x", 1);
    let command = holder.command();
    server.down();
    let ended = holder.running.finish();
    assert!(ended.code() == Some(76) && !is_alive(command), "{}", ended.err);
    mariadb::restart(&server);
    waiter.await_start();
    waiter.release();
    bed.assert_free("x");
}

#[test]
fn a_restart_shorter_than_the_lease_changes_nothing_but_the_connections() {
    let server = mariadb::start();
    let bed = bed_on(&server);
    let holder = bed.held(&["--name", "x", "-q"]);
    let token = holder.token();
    let mut waiters: Vec<_> = (1..=2)
        .map(|n| {
            let waiter = bed.hold(&["-q", "--name", "x"]);
            bed.await_waiters("x", n);
            waiter
        })
        .collect();
    mariadb::restart(&server);
    bed.await_waiters("x", 2);
    assert!(is_alive(holder.command()));
    assert_eq!(bed.status("x")["holders"][0]["token"], token.to_string());
    assert_eq!(holder.release().code(), Some(0));
    waiters[0].await_start();
    assert!(waiters[0].token() > token && !waiters[1].has_started());
    for mut waiter in waiters {
        waiter.await_start();
        waiter.release();
    }
}

#[test]
fn a_waiter_at_rest_asks_for_nothing_but_its_renewals() {
    let server = talkative();
    let bed = bed_on(&server);
    let holder = bed.held(&["--name", "x", "--ttl", "10m"]);
    let mut waiter = bed.hold(&["-q", "--name", "x", "--ttl", "3s"]);
    bed.await_waiters("x", 1);
    until_true("both listen", || listenings(&server) >= 2);
    let (before, listening, begun) = (steps(&server), listenings(&server), Instant::now());
    let_pass(Duration::from_millis(4_500));
    let renewals = usize::try_from(begun.elapsed().as_secs()).expect("small") + 1;
    let asked = steps(&server) - before;
    assert!((2..=renewals).contains(&asked), "{asked} requests, and {renewals} renewals were due");
    assert_eq!(listenings(&server), listening, "the wait itself goes on");
    assert_eq!(holder.release().code(), Some(0));
    waiter.await_start();
    waiter.release();
}

#[test]
fn a_hand_over_costs_the_same_however_long_the_line_is() {
    let mut costs = Vec::new();
    for length in [2, 12] {
        let server = talkative();
        let bed = bed_on(&server);
        let holder = bed.held(&["--name", "x", "--ttl", "10m"]);
        let mut waiters = Vec::new();
        for n in 0..length {
            waiters.push(bed.hold(&["-q", "--name", "x", "--ttl", "10m"]));
            bed.await_waiters("x", n + 1);
        }
        until_true("everybody listens", || listenings(&server) > length);
        let before = steps(&server);
        holder.release().silently(0);
        waiters[0].await_start();
        until_true("the next listens", || listenings(&server) > length + 1);
        costs.push(steps(&server) - before);
        for mut waiter in waiters {
            waiter.await_start();
            waiter.release();
        }
    }
    assert_eq!(costs, [2, 2], "one to leave, one to hold");
}

#[test]
fn slots_and_readers_are_handed_over_without_a_renewal() {
    let server = mariadb::start();
    let bed = bed_on(&server);
    let long = ["--name", "x", "--ttl", "10m", "-q"];
    let options = |mode: &'static str| [&long[..], &[mode]].concat();
    for mode in ["--slots=3", "-s"] {
        // With readers a writer goes first; with slots there are three.
        let first = if mode == "-s" { "-x" } else { mode };
        let count = if mode == "-s" { 1 } else { 3 };
        let holders: Vec<_> = (0..count).map(|_| bed.held(&options(first))).collect();
        let mut waiters = Vec::new();
        for n in 0..5 {
            waiters.push(bed.hold(&options(mode)));
            bed.await_waiters("x", n + 1);
        }
        for holder in holders.into_iter().rev() {
            assert_eq!(holder.release().code(), Some(0));
        }
        for waiter in &mut waiters[..3] {
            waiter.await_start();
        }
        for mut waiter in waiters {
            waiter.await_start();
            waiter.release();
        }
        bed.assert_free("x");
    }
}

#[test]
fn who_waits_for_somebody_killed_waits_for_no_lease() {
    let server = mariadb::start();
    let bed = bed_on(&server);
    let long = ["--name", "x", "--ttl", "10m", "-q"];
    let holder = bed.held(&long);
    let first = bed.hold(&long);
    bed.await_waiters("x", 1);
    let mut second = bed.hold(&long);
    bed.await_waiters("x", 2);
    for victim in [first, holder] {
        process::signal(victim.running.keeper(), Signal::KILL);
        victim.running.finish();
    }
    second.await_start();
    second.release();
    bed.assert_free("x");
}

#[test]
fn thirty_at_once_of_whom_some_are_killed_never_overlap() {
    let _load = quiet::loading();
    let server = mariadb::start();
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
    let server = mariadb::start();
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
