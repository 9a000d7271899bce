//! How those who wait for a MariaDB hear of what happens.

use std::time::Duration;

use rustix::process::Signal;

use super::mysql::env_on;
use crate::servers::{Server, mariadb};
use crate::support::process;
use crate::support::wait::{let_pass, until_true};

/// A server that writes every request down.
fn talkative() -> Server {
    mariadb::start_with(&["--general-log=1", "--general-log-file=requests"])
}

/// What it was asked.
fn requests(server: &Server) -> String {
    std::fs::read_to_string(server.folder().join("data/requests")).unwrap_or_default()
}

/// How often somebody began to listen.
fn listenings(server: &Server) -> usize {
    requests(server).matches("SET @dlock_says = GET_LOCK").count()
}

/// The connections that wait for a lock of that kind: `l` is another claim's presence lock, `h` the own session's.
fn ears(server: &Server, kind: char) -> Vec<String> {
    let which = format!(
        "SELECT ID FROM information_schema.PROCESSLIST WHERE ID <> CONNECTION_ID() \
         AND INFO LIKE '%IF(GET_LOCK(_dlock.%.{kind}.%'"
    );
    mariadb::ask(server, &which).lines().map(str::to_owned).collect()
}

#[test]
fn connections_that_listen_are_replaced_when_they_are_killed() {
    let server = talkative();
    let env = env_on(&server);
    let long = ["--name", "x", "--ttl", "10m", "-q"];
    let holder = env.held(&long);
    let mut waiter = env.hold(&long);
    env.await_waiters("x", 1);
    until_true("both listen", || listenings(&server) >= 2);
    // The waiter waits for the holder's presence lock, or to be woken if that was free for a moment.
    let all_ears = || [ears(&server, 'l'), ears(&server, 'h')].concat();
    for kill in ["KILL", "KILL QUERY"] {
        until_true("both wait", || all_ears().len() == 2);
        let before = listenings(&server);
        for victim in all_ears() {
            mariadb::ask(&server, &format!("{kill} {victim}"));
        }
        // Neither has a renewal due for minutes.
        until_true("both listen again", || listenings(&server) >= before + 2);
    }
    until_true("both wait again", || all_ears().len() == 2);
    assert_eq!(holder.release().code(), Some(0));
    waiter.await_start();
    // The holder hears of what is asked of it.
    until_true("the next one listens", || ears(&server, 'h').len() == 1);
    env.finish(&mut env.verb("break", ["x", "--all", "--yes"]));
    assert_eq!(waiter.running.finish().code(), Some(76));
    env.assert_free("x");
}

/// A proxy that numbers connections itself takes a `KILL` that it reads for one of its own, a stranger's.
#[test]
fn only_the_server_itself_puts_numbers_of_connections_into_statements() {
    let server = talkative();
    let env = env_on(&server);
    let holder = env.held(&["--name", "x", "--ttl", "10m", "-q"]);
    until_true("it listens", || ears(&server, 'h').len() == 1);
    env.finish(&mut env.verb("break", ["x", "--all", "--yes"]));
    // Its renewal is due in minutes.
    assert_eq!(holder.running.finish().code(), Some(76));
    let log = requests(&server);
    assert!(log.contains("Execute\tKILL QUERY "), "nobody was woken: {log}");
    assert!(!log.contains("Query\tKILL"), "sent by a client: {log}");
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
