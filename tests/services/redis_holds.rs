//! Long holds and waits on a Redis: over connections that fall silent, and longer than the keys beside the lock live.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::etcd_answers::relay;
use crate::redis_many::{env_at, env_on};
use crate::servers::proxy::Proxy;
use crate::servers::{Server, redis};
use crate::support::wait::until_true;
use crate::support::{process, within};

const QUIET: &[&str] = &["--maxmemory-policy", "noeviction"];

/// Returns the remaining life of the key in milliseconds.
fn life(server: &Server, key: &str) -> i64 {
    let said = redis::raw(server.port(), &["PTTL", key]);
    said.trim_start_matches(':').trim_end().parse().expect("a number")
}

/// Returns the numbers of the connections that asked the server to track changes.
fn listening(server: &Server) -> Vec<u64> {
    let all = redis::raw(server.port(), &["CLIENT", "LIST"]);
    let tracking = all.lines().filter(|line| line.contains(" flags=t "));
    let number = |line: &str| line.split("id=").nth(1)?.split(' ').next()?.parse().ok();
    tracking.filter_map(number).collect()
}

/// Waits until two connections with numbers above `after` have asked the server to track changes, and returns the greater
/// number.
#[track_caller]
fn await_two_that_listen(server: &Server, after: u64) -> u64 {
    let newer = || listening(server).into_iter().filter(|number| *number > after).collect::<Vec<_>>();
    until_true("two connections that listen", || newer().len() == 2);
    newer().into_iter().max().expect("two numbers")
}

/// The renewals of both replace their connections, and each listens again.
#[test]
fn holder_and_waiter_listen_again_after_silent_connections() {
    let server = redis::start_with(QUIET);
    let (proxy, past) = (Proxy::to(server.port()), env_on(&server));
    let env = env_at(format!("redis://127.0.0.1:{}", proxy.port()));
    let holder = env.held(&["--name", "x", "--ttl", "6s"]);
    let mut waiter = env.hold(&["--name", "x", "-q", "--ttl", "6s"]);
    past.await_waiters("x", 1);
    let last = await_two_that_listen(&server, 0);
    // These connections pass nothing from here on. New connections work.
    proxy.leave_behind();
    await_two_that_listen(&server, last);
    let begun = Instant::now();
    let breaking = past.finish(&mut past.verb("break", ["x", "--claim", holder.claim(), "--yes"]));
    assert_eq!(breaking.code(), Some(0), "{}", breaking.err);
    let ended = holder.running.finish();
    assert_eq!(ended.code(), Some(76), "{}", ended.err);
    waiter.await_start();
    // Both were notified. They did not have to find out by polling.
    within(begun.elapsed(), Duration::from_secs(2));
    assert_eq!(waiter.release().code(), Some(0));
    past.assert_free("x");
}

#[test]
fn the_queue_of_a_hold_lives_as_long_as_the_hold() {
    const DAY: i64 = 86_400_000;
    let server = redis::start_with(QUIET);
    let (env, queue) = (env_on(&server), "{dlock:x}:dlock:queue");
    let holder = env.held(&["--name", "x", "--ttl", "6s"]);
    let is_listed = || {
        let listed = env.finish(&mut env.verb("list", ["--json"])).silently(0);
        listed.text().contains(holder.claim())
    };
    // The queue has so little life left after a day without newcomers.
    assert_eq!(redis::raw(server.port(), &["PEXPIRE", queue, "10000"]), ":1\r\n");
    until_true("a queue that lives on", || life(&server, queue) > DAY);
    assert!(is_listed());
    let other_kind = env.finish(&mut env.run(["--try", "--name", "x", "--slots", "2", "--", "true"]));
    assert_eq!(other_kind.code(), Some(64), "{}", other_kind.err);
    holder.release().silently(0);
    assert_eq!(redis::raw(server.port(), &["EXISTS", queue]), ":0\r\n");
    env.assert_free("x");
}

/// All keys of a lock live longer than its longest lease, whichever claim was the last one to enter.
#[test]
fn a_short_claim_leaves_the_keys_of_a_long_one_alone() {
    const THREE_DAYS: i64 = 3 * 86_400_000;
    let server = redis::start_with(QUIET);
    let env = env_on(&server);
    env.finish(&mut env.verb("acquire", ["--name", "x", "--detach", "--ttl", "3d"])).silently(0);
    let other = env.start(&mut env.run(["-q", "--name", "x", "--ttl", "9s", "--", "true"]));
    env.await_waiters("x", 1);
    other.signal(Signal::TERM);
    assert_eq!(other.finish().signal(), Some(Signal::TERM.as_raw()));
    for part in ["queue", "writers", "leases"] {
        let left = life(&server, &format!("{{dlock:x}}:dlock:{part}"));
        assert!(left > THREE_DAYS, "{part} ends in {left} ms");
    }
}

/// The number of scripts that the server has run.
fn scripts(server: &Server) -> usize {
    let said = redis::raw(server.port(), &["INFO", "commandstats"]);
    let line = said.lines().find(|line| line.starts_with("cmdstat_evalsha:")).expect("scripts");
    let calls = line.split(['=', ',']).nth(1).expect("a number");
    calls.parse().expect("digits")
}

/// The waiter renews its own lease too rarely to count: every 200 s.
#[test]
fn a_renewal_wakes_no_waiter() {
    const RENEWALS: usize = 10;
    let server = redis::start_with(QUIET);
    let env = env_on(&server);
    let words = ["--name", "x", "--detach", "--ttl", "1h", "--format", "json"];
    let printed = env.finish(&mut env.verb("acquire", words)).silently(0).text();
    let printed: serde_json::Value = serde_json::from_str(&printed).expect("JSON from acquire");
    let claim = printed["DLOCK_CLAIM"].as_str().expect("a claim");
    let requests_of = |renewals| {
        let before = scripts(&server);
        for _ in 0..renewals {
            env.finish(&mut env.verb("renew", [claim, "--name", "x"])).silently(0);
        }
        scripts(&server) - before
    };
    let alone = requests_of(RENEWALS);
    assert!(alone >= RENEWALS, "{alone} requests");
    let waiter = env.start(&mut env.run(["-q", "--name", "x", "--ttl", "10m", "--", "true"]));
    env.await_waiters("x", 1);
    until_true("a waiter that listens", || listening(&server).len() == 1);
    let beside = requests_of(RENEWALS);
    assert!(beside < alone + RENEWALS / 2, "{beside} requests, {alone} without a waiter");
    env.finish(&mut env.verb("release", [claim, "--name", "x"])).silently(0);
    waiter.finish().silently(0);
}

#[test]
fn a_reader_with_a_long_lease_takes_it_along() {
    let server = redis::start_with(QUIET);
    let env = env_on(&server);
    let shared = |ttl| ["--name", "x", "--shared", "--ttl", ttl];
    let short = env.held(&shared("6s"));
    env.held(&shared("1h")).release().silently(0);
    let left = life(&server, "dlock:x");
    assert!((1..=6_000).contains(&left), "the key of the lock ends in {left} ms");
    short.release().silently(0);
}

#[test]
fn a_reader_arrives_after_the_queue_was_deleted() {
    let server = redis::start_with(QUIET);
    let env = env_on(&server);
    let reader = env.held(&["--name", "x", "--shared", "-q"]);
    let writer = env.start(&mut env.run(["-q", "--name", "x", "--wait", "30s", "--", "true"]));
    env.await_waiters("x", 1);
    assert_eq!(redis::raw(server.port(), &["DEL", "{dlock:x}:dlock:queue"]), ":1\r\n");
    env.finish(&mut env.run(["-q", "--name", "x", "--shared", "--", "true"])).silently(0);
    assert_eq!(reader.running.finish().code(), Some(76));
    writer.finish();
}

/// Opens a connection to the server, if it has room.
fn connection(server: &Server) -> Option<TcpStream> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port())).expect("connects");
    // The server sends one error to a client beyond the limit, and nothing else.
    let _ = stream.write_all(b"PING\r\n");
    let mut answer = [0; 1];
    stream.read_exact(&mut answer).ok().filter(|()| answer == *b"+").map(|()| stream)
}

#[test]
fn a_server_without_a_free_connection_is_waited_for() {
    let server = redis::start_with(&["--maxclients", "4"]);
    let env = env_on(&server);
    let taken: Vec<_> = std::iter::from_fn(|| connection(&server)).collect();
    assert!(!taken.is_empty());
    for words in [&["status", "x"][..], &["break", "x", "--yes"]] {
        env.finish(&mut env.verb(words[0], &words[1..])).failed(69, &["max number of clients", "maxclients"]);
    }
    let waiter = env.start(&mut env.run(["--name", "x", "--", "true"]));
    until_true("word of it", || waiter.err_so_far().contains("it has no connection left for another claim"));
    drop(taken);
    assert_eq!(waiter.finish().code(), Some(0));
}

/// A runner of jobs ends what the shell of a job left.
#[test]
fn signal_after_acquire_releases_no_printed_lease() {
    let server = redis::start_with(QUIET);
    let slow = relay(server.port(), |_| thread::sleep(Duration::from_millis(300)));
    let env = env_at(format!("redis://127.0.0.1:{slow}"));
    env.finish(&mut env.verb("acquire", ["-q", "--detach", "--name", "x"])).silently(0);
    for left in env.processes() {
        process::signal(left.pid, Signal::TERM);
    }
    env.await_no_process();
    assert_eq!(env.holders("x"), 1);
}

/// The place that it lost for one name would keep the others from both locks until the end of its lease.
#[test]
fn waiter_without_one_of_its_places_leaves_the_others() {
    let server = redis::start_with(QUIET);
    let env = env_on(&server);
    let holder = env.held(&["--name", "a"]);
    let mut waiter = env.hold(&["--name", "a", "--name", "b", "--ttl", "10m"]);
    env.await_waiters("a", 1);
    assert_eq!(redis::raw(server.port(), &["SET", "dlock:b", "foreign", "PX", "3000"]), "+OK\r\n");
    holder.release().silently(0);
    waiter.await_start();
    let ended = waiter.release();
    assert_eq!(ended.code(), Some(0), "{}", ended.err);
    assert!(ended.err.contains("at the end"), "{}", ended.err);
    env.assert_free("a");
}
