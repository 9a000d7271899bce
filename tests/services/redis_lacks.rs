//! A Redis without some of its commands: renamed, denied to this user, or unknown to a proxy before it.

use std::thread;
use std::time::{Duration, Instant};

use super::redis_many::{cluster, env_at, env_on};
use crate::servers::proxy::{Conduct, Proxy};
use crate::servers::{Server, free_port, redis};
use crate::site::looked;
use crate::support::{TestEnv, within};

/// Starts a server without these commands.
fn without(commands: &[&str]) -> Server {
    let renamed = commands.iter().flat_map(|command| ["--rename-command", command, ""]);
    redis::start_with(&[&["--maxmemory-policy", "noeviction"], &renamed.collect::<Vec<_>>()[..]].concat())
}

/// Starts a server that denies these commands to every user.
fn refusing(commands: &[&str]) -> Server {
    let server = without(&[]);
    for command in commands {
        let words = ["ACL", "SETUSER", "default", &format!("-{command}")];
        assert_eq!(redis::raw(server.port(), &words), "+OK\r\n");
    }
    server
}

/// Expects that a waiter learns within a second that the lock is free, also after a renewal. Expects that a holder
/// learns in 1.5 s that its key is gone. By its next renewal, 8 s later, neither would learn it in time.
#[track_caller]
fn looks_every_half_second(env: &TestEnv, server: &Server) {
    let holder = env.held(&["--name", "x"]);
    let mut waiter = env.hold(&["--name", "x", "-q", "--ttl", "24s"]);
    env.await_waiters("x", 1);
    env.await_renewals_in("waiters", "x", 1);
    let begun = Instant::now();
    holder.release().silently(0);
    waiter.await_start();
    within(begun.elapsed(), Duration::from_secs(1));
    env.await_renewals("x", 1);
    assert_eq!(redis::raw(server.port(), &["DEL", "dlock:x"]), ":1\r\n");
    let begun = Instant::now();
    assert_eq!(waiter.running.finish().code(), Some(76));
    within(begun.elapsed(), Duration::from_millis(1500));
}

#[test]
fn server_without_change_reports_is_polled_every_half_second() {
    let servers = [without(&["HELLO"]), without(&["CLIENT"]), refusing(&["client|caching"])];
    // In parallel, since they mostly wait.
    thread::scope(|scope| {
        for server in &servers {
            scope.spawn(|| {
                let env = env_on(server);
                looks_every_half_second(&env, server);
                let told = looked(&env);
                assert!(told.contains("every 500 ms"), "{told}");
            });
        }
    });
}

#[test]
fn a_server_without_hashes_of_scripts_is_sent_their_text() {
    for server in [without(&["EVALSHA"]), refusing(&["evalsha"])] {
        let env = env_on(&server);
        let holder = env.held(&["--name", "x"]);
        env.assert_busy("x");
        holder.release().silently(0);
    }
}

#[test]
fn missing_command_is_named_without_the_script() {
    let run = |server: &Server| {
        let env = env_on(server);
        env.finish(&mut env.run(["--try", "--name", "x", "--", "true"]))
    };
    let said = run(&without(&["EVAL", "EVALSHA"])).failed(69, &["unknown command 'EVAL'"]).err;
    assert!(!said.contains("args"), "{said}");
    let said = run(&refusing(&["eval", "evalsha"])).failed(77, &["'eval'"]).err;
    assert!(!said.contains("args"), "{said}");
    for (server, code) in [(without(&["ZADD"]), 69), (refusing(&["zadd"]), 77)] {
        let said = run(&server).failed(code, &["dlock man redis"]).err;
        assert!(!said.contains("script: "), "{said}");
        let told = looked(&env_on(&server));
        assert!(told.contains("no lock could be taken") && told.contains("dlock man redis"), "{told}");
    }
    let server = without(&["SCAN"]);
    let env = env_on(&server);
    env.finish(&mut env.verb("list", [] as [&str; 0])).failed(69, &["unknown command 'SCAN'"]);
}

/// Only DUMP shows whether a key that is no string is still the same.
#[test]
fn without_dump_a_key_of_any_kind_is_waited_for() {
    let server = refusing(&["dump"]);
    let env = env_on(&server);
    assert_eq!(redis::raw(server.port(), &["HSET", "dlock:x", "a", "b"]), ":1\r\n");
    env.finish(&mut env.run(["--try", "--name", "x", "--", "true"])).failed(75, &["key dlock:x"]);
    let mut waiter = env.hold(&["--name", "x", "-q"]);
    env.await_waiters("x", 1);
    assert_eq!(redis::raw(server.port(), &["DEL", "dlock:x"]), ":1\r\n");
    waiter.await_start();
    waiter.release().silently(0);
    let node = include_str!("../../src/backend/redis/redlock/node.lua");
    assert_eq!(redis::raw(server.port(), &["HSET", "y", "a", "b"]), ":1\r\n");
    let keys = ["EVAL", node, "3", "y", "y", "counters", "inspect", "slot", "", ""];
    assert!(redis::raw(server.port(), &keys).starts_with("*1\r\n*4\r\n:0\r\n$1\r\n?\r\n"));
}

#[test]
fn claim_refused_halfway_is_removed() {
    for server in [refusing(&["zadd"]), refusing(&["pexpire"])] {
        let env = env_on(&server);
        let ended = env.finish(&mut env.run(["--try", "--name", "x", "--", "true"]));
        ended.failed(77, &["dlock man redis"]);
        // The counters stay.
        assert_eq!(redis::raw(server.port(), &["DBSIZE"]), ":1\r\n");
    }
}

#[test]
fn proxy_hanging_up_on_unknown_commands_is_asked_for_less() {
    let server = without(&[]);
    let proxy = Proxy::to(server.port());
    // twemproxy hangs up at these commands.
    proxy.set(Conduct::HangUpAt(&["HELLO", "CLIENT", "INFO", "SCAN", "SELECT", "ROLE", "CONFIG"]));
    looks_every_half_second(&env_at(format!("redis://127.0.0.1:{}", proxy.port())), &server);
}

#[test]
fn several_names_on_different_proxied_servers_are_refused() {
    let servers = [without(&[]), without(&[])];
    let proxy = redis::spread([servers[0].port(), servers[1].port()]);
    let env = env_at(format!("redis://127.0.0.1:{proxy}"));
    looks_every_half_second(&env, &servers[1]);
    let mut spread = env.run(["--name", "a", "--name", "b", "--", "sh", "-c", "echo ran"]);
    assert_eq!(env.finish(&mut spread).failed(64, &["proxy", "different servers"]).text(), "");
    env.assert_free("a");
    env.assert_free("b");
    let together = ["--name", "aa", "--name", "ba"];
    let holder = env.held(&together);
    env.assert_busy("ba");
    holder.release().silently(0);
}

#[test]
fn server_without_info_is_still_examined() {
    for server in [without(&["INFO"]), refusing(&["info"])] {
        let told = looked(&env_on(&server));
        assert!(told.contains("INFO"), "{told}");
    }
}

#[test]
fn the_rights_in_the_manual_are_enough_with_a_sentinel() {
    let master = without(&[]);
    let sentinel = redis::start_sentinel(master.port());
    for right in [&["+role"][..], &[]] {
        let user = "ACL SETUSER ci reset on >right ~dlock:* ~{dlock:* +@all -@dangerous +info";
        let user: Vec<&str> = user.split(' ').chain(right.iter().copied()).collect();
        assert_eq!(redis::raw(master.port(), &user), "+OK\r\n");
        let endpoint = format!("redis+sentinel://127.0.0.1:{}/main", sentinel.port());
        let env = env_at(endpoint);
        let mut command = env.run(["--try", "--name", "x", "--", "true"]);
        env.finish(command.env("DLOCK_USER", "ci").env("DLOCK_PASSWORD", "right")).silently(0);
    }
}

#[test]
fn doctor_takes_a_lock_where_runs_do_and_leaves_nothing() {
    let server = without(&[]);
    let env = env_on(&server);
    let told = looked(&env);
    assert!(!told.contains("no lock could be taken"), "{told}");
    assert_eq!(redis::raw(server.port(), &["DBSIZE"]), ":0\r\n");
    assert_eq!(redis::raw(server.port(), &["CONFIG", "SET", "min-replicas-to-write", "1"]), "+OK\r\n");
    let told = looked(&env);
    assert!(told.contains("no lock could be taken") && told.contains("NOREPLICAS"), "{told}");
    assert!(!told.contains("no problems found") && !told.contains("script: "), "{told}");
    let run = env.finish(&mut env.run(["--try", "--name", "x", "--", "true"])).failed(69, &["NOREPLICAS"]);
    assert!(!run.err.contains("script: "), "{}", run.err);
}

#[test]
fn doctor_takes_a_lock_at_each_master_and_by_each_sentinel() {
    let nodes = cluster();
    let env = env_at(format!("redis+cluster://127.0.0.1:{}", nodes[0].port()));
    let told = looked(&env);
    assert!(!told.contains("no lock could be taken"), "{told}");
    assert!(nodes.iter().all(|node| redis::raw(node.port(), &["DBSIZE"]) == ":0\r\n"), "nothing is left");
    assert_eq!(redis::raw(nodes[2].port(), &["CONFIG", "SET", "min-replicas-to-write", "1"]), "+OK\r\n");
    let told = looked(&env);
    assert!(told.contains("no lock could be taken") && told.contains("NOREPLICAS"), "{told}");
    let master = without(&[]);
    let sentinel = redis::start_sentinel(master.port());
    let (there, away) = (format!("127.0.0.1:{}", sentinel.port()), format!("127.0.0.1:{}", free_port()));
    let env = env_at(format!("redis+sentinel://{there},{away}/main"));
    let told = looked(&env);
    assert!(told.contains(&format!("redis+sentinel://{away}/main")) && told.contains("refused"), "{told}");
}

#[test]
fn hold_lost_with_its_database_is_ended() {
    let server = without(&[]);
    let env = env_on(&server);
    let holder = env.held(&["--name", "x"]);
    let mut waiter = env.hold(&["--name", "x", "-q"]);
    env.await_waiters("x", 1);
    assert_eq!(redis::raw(server.port(), &["FLUSHALL"]), "+OK\r\n");
    assert_eq!(holder.running.finish().code(), Some(76));
    waiter.await_start();
    waiter.release();
}
