//! What is late on the way to one of the nodes of a Redlock, or does not come.

use std::time::Duration;

use crate::servers::proxy::{Conduct, Proxy};
use crate::servers::redis;
use crate::site;
use crate::support::wait::{let_pass, until_true};
use crate::support::{Service, TestEnv};

fn env_at(endpoint: &str) -> TestEnv {
    TestEnv::on(Service { backend: "redis", endpoint: endpoint.to_owned(), prefix: None })
}

#[test]
fn an_attempt_that_failed_takes_nothing_from_the_next_one() {
    // In the first database, which need not be chosen: what is said first on a connection is the claim's request.
    let nodes = &site::shared_nodes().0[..3];
    let ways: Vec<Proxy> = nodes.iter().map(|node| Proxy::to(node.port())).collect();
    let over = env_at(
        &ways.iter().map(|way| format!("redis://127.0.0.1:{}", way.port())).collect::<Vec<_>>().join(","),
    );
    let past = env_at(&redis::addresses(nodes));
    // What is held up is not said again with the text of its script.
    past.finish(&mut past.run(["-q", "--name", "attempts", "--", "true"])).silently(0);
    ways[1].set(Conduct::Refuse);
    ways[2].set(Conduct::Hole);
    let mut holder = over.hold(&["--name", "attempts", "--ttl", "6s", "-q"]);
    // It was to be entered over the first, two look why nobody answers, and over the fourth it was to be withdrawn.
    until_true("a withdrawal", || ways[2].made() > 3);
    let_pass(Duration::from_millis(50));
    ways[2].leave_behind();
    holder.await_start();
    let script =
        "return redis.call('HGET', redis.call('KEYS', '*{dlock:attempts}*:claim:*')[1] or '', 'token')";
    let token = || redis::raw(nodes[2].port(), &["EVAL", script, "0"]);
    let given = token();
    assert!(given.len() > 10, "{given}");
    ways[2].let_in();
    assert_eq!(redis::raw(nodes[2].port(), &["PING"]), "+PONG\r\n");
    assert_eq!(token(), given, "it has what it was given");
    past.assert_busy("attempts");
    assert_eq!(holder.release().code(), Some(0));
    past.assert_free("attempts");
}

/// It leads by three nodes, of which one does not answer.
#[test]
fn of_a_leader_by_nodes_that_do_not_answer_nobody_says_that_it_does_not_lead() {
    let (nodes, database) = site::shared_nodes();
    let ways: Vec<Proxy> = nodes.iter().map(|node| Proxy::to(node.port())).collect();
    let over = ways.iter().map(|way| format!("redis://127.0.0.1:{}/{database}", way.port()));
    let env = env_at(&over.collect::<Vec<_>>().join(","));
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
    proclaim().failed(69, &["2 of 5 nodes have taken the value", "may hold or not"]);
    ways[0].set(Conduct::Pass);
    holder.let_go();
    holder.running.finish();
}
