//! Five independent Redis servers: decisions of a majority, minorities, and refusals.

use std::thread;
use std::time::Duration;

use crate::etcd_answers::relay;
use crate::redis_many::env_at;
use crate::servers::proxy::{Conduct, Proxy};
use crate::servers::{Server, free_port, redis};
use crate::site;
use crate::support::process::{Process, is_alive};
use crate::support::scripts::{Overlap, Tree};
use crate::support::test_env::Holder;
use crate::support::wait::{let_pass, until_true};
use crate::support::{Running, TestEnv, within};

const TTL: Duration = Duration::from_secs(6);

fn env_on(nodes: &[Server]) -> TestEnv {
    env_at(redis::addresses(nodes))
}

fn joined(addresses: impl Iterator<Item = String>) -> String {
    addresses.collect::<Vec<_>>().join(",")
}

/// Returns the nodes that tests share, with a database of their own for this test.
pub(crate) fn shared() -> String {
    let (nodes, n) = site::shared_nodes();
    joined(nodes.iter().map(|node| format!("{}/{n}", redis::address(node))))
}

/// Returns a relay to each of the shared nodes. A test can cut each one.
fn cuttable() -> (Vec<Proxy>, String) {
    let (nodes, n) = site::shared_nodes();
    let ways: Vec<Proxy> = nodes.iter().map(|node| Proxy::to(node.port())).collect();
    let endpoint = joined(ways.iter().map(|way| format!("redis://127.0.0.1:{}/{n}", way.port())));
    (ways, endpoint)
}

/// Expects that the loss of two nodes changes nothing.
#[track_caller]
fn goes_on_without_two(env: &TestEnv, disturb: impl FnOnce()) {
    let holder = env.held(&["--name", "x", "--ttl", "6s", "-q"]);
    disturb();
    let_pass(TTL + TTL / 4);
    assert!(is_alive(holder.command()), "the lease was not renewed: {}", holder.running.err_so_far());
    let mut waiter = env.hold(&["--name", "x", "--ttl", "6s", "-q"]);
    env.await_waiters("x", 1);
    assert_eq!(holder.release().code(), Some(0));
    waiter.await_start();
    assert_eq!(waiter.release().code(), Some(0));
    let tried = env.finish(&mut env.run(["-q", "--try", "--name", "x", "--", "true"]));
    assert_eq!(tried.code(), Some(0), "{}", tried.err);
    let holders = [(); 2].map(|()| env.held(&["--slots", "2", "--name", "y", "-q"]));
    let mut slots = holders.each_ref().map(Holder::slot);
    slots.sort_unstable();
    assert_eq!(slots, [1, 2]);
}

#[test]
fn two_of_five_killed_change_nothing() {
    let nodes = site::nodes();
    goes_on_without_two(&env_on(&nodes), || nodes[1..3].iter().for_each(Server::down));
}

#[test]
fn two_of_five_cut_off_change_nothing() {
    let (ways, endpoint) = cuttable();
    goes_on_without_two(&env_at(endpoint), || ways[3..].iter().for_each(|way| way.set(Conduct::Hole)));
}

#[test]
fn without_a_majority_nothing_is_acquired() {
    let (nodes, n) = site::shared_nodes();
    let there = nodes[..2].iter().map(|node| format!("{}/{n}", redis::address(node)));
    let gone = (0..3).map(|_| format!("redis://127.0.0.1:{}", free_port()));
    let env = env_at(joined(there.chain(gone)));
    for wait in ["0", "1s"] {
        let words = ["--wait", wait, "--name", "x", "--", "touch", "started"];
        let ended = env.finish(&mut env.run(words));
        within(ended.took, Duration::from_secs(2));
        ended.failed(69, &["2 of 5 nodes", "refused"]);
    }
    assert!(!env.exists("started"));
    for node in &nodes[..2] {
        assert_eq!(keys(node, n), Vec::<String>::new(), "what it got is gone again");
    }
}

/// Returns the keys of a database, without those that outlive locks on purpose.
fn keys(node: &Server, database: u64) -> Vec<String> {
    let script = format!("redis.call('SELECT', '{database}') return redis.call('KEYS', '*')");
    let all = redis::raw(node.port(), &["EVAL", &script, "0"]);
    let keys = all.lines().filter(|line| !line.starts_with(['*', '$']) && !line.contains(":counters"));
    keys.map(str::to_owned).collect()
}

/// The options of a lock on nodes that vote [`VOTES`] after a restart. There is no grace, so that as much as possible of
/// the lease is left for a renewal.
const SHORT: [&str; 8] = ["--max-ttl", "7s", "--ttl", "7s", "--grace", "0", "--name", "x"];
const VOTES: Duration = Duration::from_secs(7);

/// Starts nodes that lose their data at a restart, and a holder.
fn held_by_forgetful_nodes() -> (Vec<Server>, TestEnv, Running, Vec<Process>) {
    let nodes = site::nodes();
    let env = env_on(&nodes);
    let (tree, words) = Tree::words(&env, "tree");
    let holder = env.start(env.run(SHORT).arg("--").args(words));
    let members = tree.await_grown(&env);
    (nodes, env, holder, members)
}

#[test]
fn nodes_restarting_empty_in_turn_grant_nothing() {
    let (nodes, env, holder, members) = held_by_forgetful_nodes();
    let status = env.status("x");
    let claim = status["holders"][0]["claim"].as_str().expect("a claim");
    let (overlap, words) = Overlap::words(&env, &members);
    let waiter = env.start(env.run(SHORT).args(["-q", "--"]).args(words));
    env.await_waiters("x", 1);
    for minority in nodes.chunks(2) {
        for node in minority {
            node.restart();
            redis::ready(node);
        }
        // Until the nodes vote again and the holder has renewed its place there. The waiter tries meanwhile, too.
        let is_back = |node| redis::raw(Server::port(node), &["GET", "dlock:x"]).contains(claim);
        until_true("the lock at the restarted nodes", || minority.iter().all(is_back));
        for node in minority {
            redis::await_age(node, VOTES);
        }
        assert!(members.iter().all(|p| is_alive(p.pid)), "{}", holder.err_so_far());
        assert!(!env.exists("overlap"), "two at once");
    }
    holder.signal(rustix::process::Signal::TERM);
    holder.finish();
    assert_eq!(waiter.finish().code(), Some(0));
    overlap.assert_none(&env);
}

/// If a majority that forgot the hold voted, it could grant the lock at once.
#[test]
fn majority_restarting_empty_grants_nothing_to_others() {
    let (nodes, env, holder, members) = held_by_forgetful_nodes();
    let (overlap, words) = Overlap::words(&env, &members);
    for node in &nodes[1..4] {
        node.restart();
        redis::ready(node);
    }
    let next = env.start(env.run(SHORT).args(["-q", "--wait", "30s", "--"]).args(words));
    let ended = holder.finish();
    assert_eq!(ended.code(), Some(76), "{}", ended.err);
    let next = next.finish();
    assert_eq!(next.code(), Some(0), "{}", next.err);
    overlap.assert_none(&env);
}

#[test]
fn restarted_node_has_no_vote() {
    let (nodes, n) = site::shared_nodes();
    let old = nodes[..2].iter().map(|node| format!("{}/{n}", redis::address(node)));
    let young: Vec<Server> = (0..3).map(|_| redis::start_with(&[])).collect();
    let env = env_at(joined(old.chain(young.iter().map(redis::address))));
    let mut tried = env.run(["--try", "--name", "x", "--", "true"]);
    env.finish(&mut tried).failed(69, &["2 of 5 nodes vote", "--max-ttl"]);
    let examined = env.finish(&mut env.verb("doctor", ["-q"; 0])).text();
    assert!(
        examined.contains("does not vote yet") && examined.contains("Redlock depends on clocks"),
        "{examined}"
    );
    // A waiter gets the lock when a third node is old enough, and not before.
    let waited = env.finish(&mut env.run(["-q", "--wait", "30s", "--name", "x", "--", "true"]));
    assert_eq!(waited.code(), Some(0), "{}", waited.err);
    let age = young.iter().filter_map(redis::age).max().expect("an age");
    assert!(age >= redis::MAX_TTL, "held when the oldest of the others was {age:?} old");
}

#[test]
fn ttl_never_exceeds_the_wait_of_a_restarted_node() {
    let env = env_at(shared());
    let holder = env.held(&["--name", "x", "--ttl", "60s", "--max-ttl", "5s"]);
    // A default TTL that is cut is not reported: the user did not pass it.
    env.finish(&mut env.run(["--name", "y", "--", "true"])).silently(0);
    let left = env.status("x")["holders"][0]["ttl_ms"].as_u64().expect("a ttl");
    assert!(left <= 5_000, "{left} ms");
    let ended = holder.release();
    assert_eq!(ended.code(), Some(0), "{}", ended.err);
    ended.said_one_line(&["the TTL of x is 5s, not 1m00s", "a limit of redis"]);
}

#[test]
fn invalid_redlock_is_refused() {
    let (nodes, n) = site::shared_nodes();
    let addresses: Vec<String> = nodes.iter().map(|node| format!("{}/{n}", redis::address(node))).collect();
    let refused = |addresses: &[String], word: &str| {
        let env = env_at(addresses.join(","));
        env.finish(&mut env.run(["--try", "--name", "x", "--", "true"])).failed(64, &[word]);
    };
    refused(&addresses[..4], "an odd number");
    let again = addresses[0].replace("127.0.0.1", "localhost");
    refused(&[addresses[0].clone(), addresses[1].clone(), again], "are the same server");
    let master = format!("127.0.0.1 {}", nodes[2].port());
    let replica = redis::start_with(&["--databases", "4096", "--replicaof", &master]);
    let follows = || redis::raw(replica.port(), &["INFO", "replication"]).contains("master_link_status:up");
    until_true("a replica", follows);
    redis::await_age(&replica, redis::MAX_TTL);
    // Also if its master is one of the nodes, so that it has each key soon.
    let copy = format!("{}/{n}", redis::address(&replica));
    for other in [1, 2] {
        refused(&[addresses[0].clone(), addresses[other].clone(), copy.clone()], "is a replica");
    }
}

/// Of three nodes the second loses the key, and the third answers late, but in time.
#[test]
fn a_slow_node_still_counts_for_a_hold() {
    let (nodes, n) = site::shared_nodes();
    let slow = relay(nodes[2].port(), |_| thread::sleep(Duration::from_millis(350)));
    let ports = [nodes[0].port(), nodes[1].port(), slow];
    let env = env_at(joined(ports.iter().map(|port| format!("redis://127.0.0.1:{port}/{n}"))));
    let holder = env.held(&["--name", "x", "--ttl", "10s", "-q"]);
    let on = |node: usize, command: &str| {
        let script = format!("redis.call('SELECT', '{n}') return redis.call('{command}', 'dlock:x')");
        redis::raw(nodes[node].port(), &["EVAL", &script, "0"])
    };
    until_true("the key at the third node", || on(2, "EXISTS") == ":1\r\n");
    assert_eq!(on(1, "DEL"), ":1\r\n");
    until_true("the key at the second node again", || on(1, "EXISTS") == ":1\r\n");
    let ended = holder.release();
    assert_eq!(ended.code(), Some(0), "{}", ended.err);
}

/// The highest token of a majority counts. A claim that reaches another majority gets a higher one.
#[test]
fn token_known_to_one_node_is_known_to_every_majority() {
    let (ways, endpoint) = cuttable();
    let (nodes, _) = site::shared_nodes();
    let database = endpoint.rsplit('/').next().expect("a number").to_owned();
    let env = env_at(endpoint);
    let far = "88888888888888";
    let ahead = format!(
        "redis.call('SELECT', '{database}') return redis.call('HSET', '{{dlock:x}}:dlock:redlock:counters', 'fence', '{far}00')"
    );
    assert_eq!(redis::raw(nodes[0].port(), &["EVAL", &ahead, "0"]), ":1\r\n");
    let first = env.held(&["--name", "x"]);
    let token = first.token();
    assert!(token > format!("{far}00").parse().expect("a number"), "{token}");
    first.release().silently(0);
    ways[..2].iter().for_each(|way| way.set(Conduct::Refuse));
    let second = env.held(&["--name", "x", "-q"]);
    assert!(second.token() > token, "{} after {token}", second.token());
    assert_eq!(second.release().code(), Some(0));
}

#[test]
fn a_release_succeeds_where_memory_is_full() {
    let nodes = site::nodes();
    let env = env_on(&nodes);
    let holder = env.held(&["--name", "x", "-q"]);
    for node in &nodes {
        assert_eq!(redis::raw(node.port(), &["CONFIG", "SET", "maxmemory", "1"]), "+OK\r\n");
    }
    holder.release().silently(0);
    for node in &nodes {
        assert_eq!(redis::raw(node.port(), &["EXISTS", "dlock:x"]), ":0\r\n");
    }
}

#[test]
fn unsupported_options_are_refused_before_any_request() {
    let env = env_at(joined((0..3).map(|_| format!("redis://127.0.0.1:{}", free_port()))));
    for (options, why) in [
        (&["--shared"][..], "has no shared locks"),
        (&["--supersede"], "keeps no queue"),
        (&["--replace"], "keeps no queue"),
        (&["--name", "y"], "takes one name"),
    ] {
        let ended = env.finish(env.run(["--name", "x"]).args(options).args(["--", "true"]));
        ended.failed(64, &[why]);
    }
    let detached = env.finish(&mut env.verb("acquire", ["--detach", "--name", "x", "--format", "env"]));
    detached.failed(64, &["--for-pid"]);
}

#[test]
fn a_run_inside_another_one_shares_its_hold() {
    let env = env_at(shared());
    let inner = r#"[ "$("$dlock" run --endpoint "$locks" --name x "$0" -- sh -c 'echo $DLOCK_TOKEN')" = "$DLOCK_TOKEN" ]"#;
    for mode in ["--exclusive", "--slots=1"] {
        env.finish(&mut env.run(["-q", "--name", "x", mode, "--", "sh", "-c", inner, mode])).silently(0);
    }
}

#[test]
fn node_refusing_the_login_blocks_no_claim() {
    let (nodes, n) = site::shared_nodes();
    let sound = nodes[..4].iter().map(|node| format!("{}/{n}", redis::address(node)));
    let strange = redis::start_with(&["--requirepass", "secret"]);
    let env = env_at(joined(sound.chain([redis::address(&strange)])));
    let ran = env.finish(&mut env.run(["--try", "-q", "--name", "x", "--", "true"]));
    assert_eq!(ran.code(), Some(0), "{}", ran.err);
}

/// Of one claim, requests of an attempt that was given up may arrive after those of a later attempt.
#[test]
fn late_requests_of_an_earlier_attempt_leave_the_hold() {
    let server = redis::start_with(&[]);
    let script = include_str!("../../src/backend/redis/redlock/node.lua");
    let step = |command: &str, claim: &str, attempt: u32, more: &[&str]| {
        let own = format!(r#"{{"claim":"{claim}","attempt":{attempt}}}"#);
        let head = ["EVAL", script, "3", "x", "x", "counters", command, "slot", "", own.as_str()];
        redis::raw(server.port(), &[&head[..], more].concat())
    };
    let acquire =
        |claim: &str, attempt| step("acquire", claim, attempt, &["10000", "5", "redlock:exclusive"]);
    assert_eq!(acquire("a", 9), "$1\r\n5\r\n");
    assert_eq!(acquire("a", 10), "$1\r\n6\r\n", "a later attempt replaces an earlier one");
    assert_eq!(acquire("a", 9), ":0\r\n");
    assert_eq!(step("release", "a", 9, &[]), ":0\r\n");
    assert_eq!(acquire("b", 11), ":0\r\n", "another claim");
    assert_eq!(step("extend", "a", 10, &["10000", "6", "redlock:exclusive"]), ":1\r\n");
}
