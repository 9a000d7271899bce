//! Redis in transition: a slot that moves to another node, a server that loads its data, and one without memory to
//! spare.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use crate::redis_many::{cluster, env_on};
use crate::servers::{Server, redis};
use crate::support::test_env::Holder;
use crate::support::wait::{let_pass, until_true};
use crate::support::{Service, TestEnv};

/// A slot of a cluster that moves to another node at the pace of the test.
struct Move {
    nodes: Vec<Server>,
    slot: String,
    from: usize,
    to: usize,
    env: TestEnv,
}

/// All names in that slot begin with this tag.
const TAG: &str = "{moving}";

fn id(node: &Server) -> String {
    redis::raw(node.port(), &["CLUSTER", "MYID"]).lines().nth(1).expect("an id").to_owned()
}

impl Move {
    fn new() -> Self {
        let nodes = cluster();
        let said = redis::raw(nodes[0].port(), &["CLUSTER", "KEYSLOT", TAG]);
        let slot = said.trim_start_matches(':').trim_end().to_owned();
        let number: usize = slot.parse().expect("a slot");
        let from = if number < 5461 { 0 } else { 1 + usize::from(number > 10_922) };
        let endpoint = format!("redis+cluster://127.0.0.1:{}", nodes[2].port());
        let env = TestEnv::on(Service { backend: "redis", endpoint, prefix: Some(String::new()) });
        Self { nodes, slot, from, to: (from + 1) % 3, env }
    }

    fn begin(&self) {
        let (from, to) = (&self.nodes[self.from], &self.nodes[self.to]);
        let importing = ["CLUSTER", "SETSLOT", &self.slot, "IMPORTING", &id(from)];
        assert_eq!(redis::raw(to.port(), &importing), "+OK\r\n");
        assert_eq!(
            redis::raw(from.port(), &["CLUSTER", "SETSLOT", &self.slot, "MIGRATING", &id(to)]),
            "+OK\r\n"
        );
    }

    fn migrate(&self, key: &str) {
        let port = self.nodes[self.to].port().to_string();
        let said =
            redis::raw(self.nodes[self.from].port(), &["MIGRATE", "127.0.0.1", &port, key, "0", "5000"]);
        assert!(said == "+OK\r\n" || said == "+NOKEY\r\n", "{said}");
    }

    fn end(&self) {
        loop {
            let keys =
                redis::raw(self.nodes[self.from].port(), &["CLUSTER", "GETKEYSINSLOT", &self.slot, "100"]);
            let keys: Vec<&str> = keys.lines().filter(|line| !line.starts_with(['*', '$'])).collect();
            if keys.is_empty() {
                break;
            }
            for key in keys {
                self.migrate(key);
            }
        }
        let owner = id(&self.nodes[self.to]);
        for node in [self.to, self.from, (self.to + 1) % 3] {
            let said =
                redis::raw(self.nodes[node].port(), &["CLUSTER", "SETSLOT", &self.slot, "NODE", &owner]);
            assert_eq!(said, "+OK\r\n");
        }
    }

    /// Returns the remaining life of the lock, asked of the node that has it.
    fn life(&self, node: usize, name: &str) -> i64 {
        let said = redis::asking(self.nodes[node].port(), &["PTTL", name]);
        said.trim_start_matches(':').trim_end().parse().unwrap_or(-1)
    }

    /// Expects that the lease, of `ttl` milliseconds, is renewed twice where the lock is now.
    #[track_caller]
    fn assert_renewed(&self, node: usize, name: &str, ttl: i64) {
        for _ in 0..2 {
            until_true("a lease that runs", || (0..ttl * 4 / 5).contains(&self.life(node, name)));
            until_true("a renewal", || self.life(node, name) > ttl * 9 / 10);
        }
    }
}

/// Lets the command end. dlock may have warned of replicas, and of requests that failed for a while.
fn done(holder: Holder) {
    let ended = holder.release();
    assert_eq!(ended.code(), Some(0), "{}", ended.err);
    assert!(!ended.err.contains("cannot release"), "{}", ended.err);
}

#[test]
fn a_hold_outlives_a_move_of_its_keys() {
    let moving = Move::new();
    let (env, name) = (&moving.env, format!("{TAG}x"));
    let holder = env.held(&["--name", &name, "--ttl", "6s"]);
    let mut waiter = env.hold(&["--name", &name, "--ttl", "60s", "-q"]);
    env.await_waiters(&name, 1);
    moving.begin();
    // The keys move one by one: first the lock itself, later the rest.
    moving.migrate(&name);
    // A renewal falls into the move.
    until_true("a lease that runs", || (0..4500).contains(&moving.life(moving.to, &name)));
    moving.end();
    moving.assert_renewed(moving.to, &name, 6000);
    env.assert_busy(&name);
    done(holder);
    waiter.await_start();
    done(waiter);
    env.assert_free(&name);
}

#[test]
fn a_release_during_a_move_of_the_keys_is_made_after_it() {
    let moving = Move::new();
    let (env, name) = (&moving.env, format!("{TAG}x"));
    let holder = env.held(&["--name", &name, "--ttl", "600s"]);
    moving.begin();
    moving.migrate(&name);
    std::thread::scope(|scope| {
        let released = scope.spawn(|| done(holder));
        // Most of the time that a release has.
        let_pass(Duration::from_secs(2));
        moving.end();
        released.join().expect("ends");
    });
    env.assert_free(&name);
}

#[test]
fn newcomer_during_a_key_migration_waits_for_its_end() {
    let moving = Move::new();
    let (env, name) = (&moving.env, format!("{TAG}x"));
    moving.begin();
    let tried = env.finish(&mut env.run(["--try", "--name", &name, "--", "true"]));
    tried.failed(69, &["moving to another node"]);
    let mut waiter = env.hold(&["--wait", "60s", "--name", &name]);
    until_true("a doubt", || waiter.running.err_so_far().contains("has not answered yet"));
    assert!(!waiter.has_started());
    moving.end();
    waiter.await_start();
    done(waiter);
    env.assert_free(&name);
}

#[test]
fn loading_server_is_waited_for() {
    // Loading takes a minute, unless the setting is changed meanwhile.
    let slow = ["--key-load-delay", "5000", "--loading-process-events-interval-bytes", "1024"];
    let kept = ["--appendonly", "no", "--dbfilename", "kept.rdb", "--rdbcompression", "no"];
    let server = redis::start_with(&[&slow[..], &kept].concat());
    let port = server.port();
    let fill = "for n = 1, 12000 do redis.call('SET', 'key' .. n, string.rep('x', 300)) end";
    assert_eq!(redis::raw(port, &["EVAL", fill, "0"]), "$-1\r\n");
    assert_eq!(redis::raw(port, &["SAVE"]), "+OK\r\n");
    server.restart();
    let env = env_on(&server);
    env.finish(&mut env.run(["--try", "--name", "x", "--", "true"])).failed(69, &["loading its data"]);
    let late = env.finish(&mut env.run(["--wait", "1s", "--name", "x", "--", "true"]));
    late.failed(69, &["loading its data"]);
    let mut waiter = env.hold(&["--wait", "60s", "--name", "x"]);
    until_true("word of it", || waiter.running.err_so_far().contains("loading its data"));
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("connects");
    stream.write_all(b"CONFIG SET key-load-delay 0\r\n").expect("writes");
    let mut said = [0; 5];
    stream.read_exact(&mut said).expect("answers");
    assert_eq!(&said, b"+OK\r\n");
    waiter.await_start();
    done(waiter);
}

#[test]
fn full_server_refuses_newcomers_and_keeps_holders() {
    let server = redis::start_with(&["--maxmemory-policy", "noeviction"]);
    let (port, env) = (server.port(), env_on(&server));
    let holder = env.held(&["--name", "x", "--ttl", "6s"]);
    let mut waiter = env.hold(&["--name", "x", "-q"]);
    env.await_waiters("x", 1);
    let limit = |bytes: &str| assert_eq!(redis::raw(port, &["CONFIG", "SET", "maxmemory", bytes]), "+OK\r\n");
    limit("100000");
    assert!(redis::raw(port, &["SET", "key", "value"]).starts_with("-OOM"));
    env.finish(&mut env.run(["--try", "--name", "y", "--", "true"])).failed(69, &["no memory left"]);
    assert_eq!(
        redis::raw(port, &["EXISTS", "dlock:y", "{dlock:y}:dlock:line"]),
        ":0\r\n",
        "nothing is half made"
    );
    let late = env.finish(&mut env.run(["--wait", "1s", "--name", "y", "--", "true"]));
    late.failed(69, &["no memory left"]);
    let life = || -> i64 {
        let said = redis::raw(port, &["PTTL", "dlock:x"]);
        said.trim_start_matches(':').trim_end().parse().expect("a number")
    };
    for _ in 0..2 {
        until_true("a lease that runs", || (0..5000).contains(&life()));
        until_true("a renewal", || life() > 5400);
    }
    done(holder);
    waiter.await_start();
    done(waiter);
    let mut second = env.hold(&["--name", "y", "--wait", "60s"]);
    until_true("word of it", || second.running.err_so_far().contains("no memory left"));
    limit("0");
    second.await_start();
    done(second);
}

/// Waiters behind another program's client hold in order of arrival, though the key of the lock has to be set for them.
#[test]
fn waiters_keep_their_order_on_a_full_server() {
    let server = redis::start_with(&["--maxmemory-policy", "noeviction"]);
    let (port, env) = (server.port(), env_on(&server));
    let modes = [("x", "--exclusive"), ("y", "--slots=1")];
    let wait = |(name, mode): (&str, &str), count| {
        let waiter = env.hold(&["--name", name, mode, "--ttl", "3s", "-q"]);
        env.await_waiters(name, count);
        waiter
    };
    let waiters = modes.map(|mode| {
        assert_eq!(redis::raw(port, &["SET", &format!("dlock:{}", mode.0), "theirs"]), "+OK\r\n");
        [wait(mode, 1), wait(mode, 2)]
    });
    assert_eq!(redis::raw(port, &["CONFIG", "SET", "maxmemory", "1"]), "+OK\r\n");
    assert_eq!(redis::raw(port, &["DEL", "dlock:x", "dlock:y"]), ":2\r\n");
    for [mut first, mut second] in waiters {
        first.await_start();
        // Both have to renew.
        let_pass(Duration::from_secs(4));
        assert!(!second.has_started());
        done(first);
        second.await_start();
        done(second);
    }
}
