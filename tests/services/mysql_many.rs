//! How those who wait for a MariaDB learn of what happens.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::mysql::env_on;
use crate::servers::{Server, mariadb};
use crate::support::wait::{let_pass, until_true};
use crate::support::{process, within};

/// The connections that sleep until the claim ahead of theirs has gone.
fn sleepers(server: &Server) -> Vec<String> {
    let which = "SELECT ID FROM information_schema.PROCESSLIST WHERE ID <> CONNECTION_ID() \
                 AND INFO LIKE '%IF(GET_LOCK(@dlock_ahead%'";
    mariadb::ask(server, which).lines().map(str::to_owned).collect()
}

/// How many connections there are, without that which asks.
fn connections(server: &Server) -> usize {
    let count =
        "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE ID <> CONNECTION_ID() AND DB = 'locks'";
    mariadb::ask(server, count).trim().parse().expect("a number")
}

#[test]
fn a_waiter_has_one_connection_and_another_if_that_is_killed() {
    let server = mariadb::start();
    let env = env_on(&server);
    let long = ["--name", "x", "--ttl", "10m", "-q"];
    let holder = env.held(&long);
    let mut waiter = env.hold(&long);
    env.await_waiters("x", 1);
    until_true("it sleeps", || sleepers(&server).len() == 1);
    let before = sleepers(&server);
    mariadb::ask(&server, &format!("KILL {}", before[0]));
    // No renewal is due for minutes.
    until_true("it sleeps again", || sleepers(&server).len() == 1 && sleepers(&server) != before);
    mariadb::ask(&server, &format!("KILL QUERY {}", sleepers(&server)[0]));
    until_true("it sleeps once more", || sleepers(&server).len() == 1);
    until_true("one connection each", || connections(&server) == 2);
    assert_eq!(holder.release().code(), Some(0));
    waiter.await_start();
    env.finish(&mut env.verb("break", ["x", "--all", "--yes"]));
    assert_eq!(waiter.running.finish().code(), Some(76));
    env.assert_free("x");
}

/// A sleep that is minutes long.
#[test]
fn a_waiter_that_is_told_to_stop_leaves_at_once() {
    let server = mariadb::start();
    let env = env_on(&server);
    let long = ["--name", "x", "--ttl", "10m", "-q"];
    let holder = env.held(&long);
    let first = env.hold(&long);
    env.await_waiters("x", 1);
    let mut second = env.hold(&long);
    env.await_waiters("x", 2);
    until_true("both sleep", || sleepers(&server).len() == 2);
    let begun = Instant::now();
    first.running.signal(Signal::TERM);
    first.running.finish();
    within(begun.elapsed(), Duration::from_secs(1));
    env.await_waiters("x", 1);
    // Whoever was behind it is behind the holder now.
    until_true("it sleeps again", || sleepers(&server).len() == 1);
    assert_eq!(holder.release().code(), Some(0));
    second.await_start();
    second.release();
    env.assert_free("x");
}

#[test]
fn settings_of_the_server_change_nothing() {
    let server = mariadb::start_with(&["--autocommit=0", "--completion-type=CHAIN"]);
    mariadb::ask(&server, "SET GLOBAL sql_safe_updates = 1");
    let env = env_on(&server);
    let holder = env.held(&["--name", "x", "--ttl", "2s"]);
    let mut waiter = env.hold(&["--name", "x", "--ttl", "2s"]);
    env.await_waiters("x", 1);
    // Past its lease, so by renewals.
    let_pass(Duration::from_secs(3));
    assert!(!waiter.has_started());
    holder.release().silently(0);
    waiter.await_start();
    env.finish(&mut env.verb("break", ["x", "--all", "--yes"]));
    let ended = waiter.running.finish();
    assert!(ended.code() == Some(76) && !ended.err.contains("cannot"), "{}", ended.err);
    env.assert_free("x");
    assert_eq!(mariadb::ask(&server, "SELECT COUNT(*) FROM locks.dlock_claim"), "0\n");
}

#[test]
fn slots_and_readers_are_handed_over_without_a_renewal() {
    let server = mariadb::start();
    let env = env_on(&server);
    let long = ["--name", "x", "--ttl", "10m", "-q"];
    let options = |mode: &'static str| [&long[..], &[mode]].concat();
    for mode in ["--slots=3", "-s"] {
        // With readers a writer goes first; with slots there are three.
        let first = if mode == "-s" { "-x" } else { mode };
        let count = if mode == "-s" { 1 } else { 3 };
        let holders: Vec<_> = (0..count).map(|_| env.held(&options(first))).collect();
        let mut waiters = Vec::new();
        for n in 0..5 {
            waiters.push(env.hold(&options(mode)));
            env.await_waiters("x", n + 1);
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
        env.assert_free("x");
    }
}

#[test]
fn who_waits_for_somebody_killed_waits_for_no_lease() {
    let server = mariadb::start();
    let env = env_on(&server);
    let long = ["--name", "x", "--ttl", "10m", "-q"];
    let holder = env.held(&long);
    let first = env.hold(&long);
    env.await_waiters("x", 1);
    let mut second = env.hold(&long);
    env.await_waiters("x", 2);
    for victim in [first, holder] {
        process::signal(victim.running.keeper(), Signal::KILL);
        victim.running.finish();
    }
    second.await_start();
    second.release();
    env.assert_free("x");
}
