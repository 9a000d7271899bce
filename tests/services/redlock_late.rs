//! Requests that reach one node of a Redlock late, or not at all.

use std::time::Duration;

use crate::redis_many::env_at;
use crate::servers::proxy::{Conduct, Proxy};
use crate::servers::redis;
use crate::site;
use crate::support::wait::{let_pass, until_true};

#[test]
fn failed_attempt_takes_nothing_from_the_next_one() {
    // The database is the first, so the first request on a connection is that of the claim and not a SELECT.
    let nodes = &site::shared_nodes().0[..3];
    let ways: Vec<Proxy> = nodes.iter().map(|node| Proxy::to(node.port())).collect();
    let over = ways.iter().map(|way| format!("redis://127.0.0.1:{}", way.port()));
    let over = env_at(over.collect::<Vec<_>>().join(","));
    let past = env_at(redis::addresses(nodes));
    // The servers know the script. A request that is held up is not repeated with the script's text.
    past.finish(&mut past.run(["-q", "--name", "attempts", "--", "true"])).silently(0);
    ways[1].set(Conduct::Refuse);
    ways[2].set(Conduct::Hole);
    let mut holder = over.hold(&["--name", "attempts", "--ttl", "6s", "-q"]);
    // The key was to be set over the first connection and another one removed over the second.
    until_true("a withdrawal", || ways[2].made() > 1);
    let_pass(Duration::from_millis(50));
    ways[2].leave_behind();
    holder.await_start();
    let says = || redis::raw(nodes[2].port(), &["GET", "dlock:attempts"]);
    let given = says();
    assert!(given.contains(holder.claim()), "{given}");
    ways[2].let_in();
    assert_eq!(redis::raw(nodes[2].port(), &["PING"]), "+PONG\r\n");
    assert_eq!(says(), given, "it has what it was given");
    past.assert_busy("attempts");
    assert_eq!(holder.release().code(), Some(0));
    past.assert_free("attempts");
}

/// Three nodes make it the leader. One of them does not answer.
#[test]
fn redlock_proclaim_exits_69_without_a_majority() {
    let (nodes, database) = site::shared_nodes();
    let ways: Vec<Proxy> = nodes.iter().map(|node| Proxy::to(node.port())).collect();
    let over = ways.iter().map(|way| format!("redis://127.0.0.1:{}/{database}", way.port()));
    let env = env_at(over.collect::<Vec<_>>().join(","));
    let theirs =
        format!("redis.call('SELECT', '{database}') return redis.call('SETNX', 'dlock:x', 'theirs')");
    for node in &nodes[3..] {
        assert_eq!(redis::raw(node.port(), &["EVAL", &theirs, "0"]), ":1\r\n");
    }
    let holder = env.held(&["--name", "x", "--ttl", "10s", "-q"]);
    let proclaim = || {
        let mut command = env.verb("proclaim", ["v"]);
        env.finish(command.env("DLOCK_CLAIM", holder.claim()).env("DLOCK_NAMES", "x"))
    };
    proclaim().silently(0);
    ways[0].set(Conduct::Refuse);
    proclaim().failed(69, &["2 of 5 nodes have taken the value", "may or may not hold"]);
    ways[0].set(Conduct::Pass);
    holder.let_go();
    holder.running.finish();
}

/// The connection to one node breaks before the release arrives. dlock repeats the release there, although it has a
/// majority without that node.
#[test]
fn release_missed_by_one_node_is_sent_again() {
    let nodes = &site::shared_nodes().0[..3];
    let way = Proxy::to(nodes[0].port());
    let over = env_at(format!("redis://127.0.0.1:{},{}", way.port(), redis::addresses(&nodes[1..])));
    for round in 0..10 {
        let name = format!("unheard-release-{round}");
        let holder = over.held(&["-q", "--ttl", "60s", "--name", &name]);
        way.set(Conduct::LoseOnce("release"));
        let ended = holder.release();
        assert_eq!(ended.code(), Some(0), "{}", ended.err);
        assert_eq!(way.conduct(), Conduct::Pass, "no release came by");
        let key = format!("dlock:{name}");
        assert_eq!(redis::raw(nodes[0].port(), &["EXISTS", &key]), ":0\r\n", "round {round}");
    }
}
