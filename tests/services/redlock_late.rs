//! Requests that reach one node of a Redlock late, or not at all.

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
fn failed_attempt_takes_nothing_from_the_next_one() {
    // The database is the first, so the first request on a connection is that of the claim and not a SELECT.
    let nodes = &site::shared_nodes().0[..3];
    let ways: Vec<Proxy> = nodes.iter().map(|node| Proxy::to(node.port())).collect();
    let over = env_at(
        &ways.iter().map(|way| format!("redis://127.0.0.1:{}", way.port())).collect::<Vec<_>>().join(","),
    );
    let past = env_at(&redis::addresses(nodes));
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
    proclaim().failed(69, &["2 of 5 nodes have taken the value", "may or may not hold"]);
    ways[0].set(Conduct::Pass);
    holder.let_go();
    holder.running.finish();
}

/// The request is executed long after its run has ended.
#[test]
fn a_late_attempt_ends_with_its_ttl() {
    let nodes = &site::shared_nodes().0[..3];
    let ways: Vec<Proxy> = nodes.iter().map(|node| Proxy::to(node.port())).collect();
    let over =
        ways.iter().map(|way| format!("redis://127.0.0.1:{}", way.port())).collect::<Vec<_>>().join(",");
    let (over, past) = (env_at(&over), env_at(&redis::addresses(nodes)));
    for way in &ways {
        way.set(Conduct::Hole);
    }
    let words = ["-q", "--ttl", "3s", "--name", "behind", "--", "true"];
    let running = over.start(&mut over.run(words));
    until_true("a connection", || ways.iter().all(|way| way.made() > 0));
    let_pass(Duration::from_millis(100));
    ways.iter().for_each(Proxy::leave_behind);
    let ended = running.finish();
    assert_eq!(ended.code(), Some(0), "{}", ended.err);
    ways.iter().for_each(Proxy::let_in);
    let next = past.finish(&mut past.run(["-q", "--wait", "6s", "--name", "behind", "--", "true"]));
    assert_eq!(next.code(), Some(0), "{}", next.err);
}

/// The request is executed at once. The run receives SIGTERM before it receives the grant.
#[test]
fn hold_unknown_to_its_run_ends_with_the_run() {
    let nodes = &site::shared_nodes().0[..3];
    for mode in ["-x", "--slots=1"] {
        let ways: Vec<Proxy> = nodes.iter().map(|node| Proxy::to(node.port())).collect();
        let over = ways.iter().map(|way| format!("redis://127.0.0.1:{}", way.port())).collect::<Vec<_>>();
        let (over, past) = (env_at(&over.join(",")), env_at(&redis::addresses(nodes)));
        for way in &ways {
            way.set(Conduct::Mute);
        }
        let running =
            over.start(&mut over.run(["-q", "--ttl", "9s", "--name", "unheard", mode, "--", "true"]));
        let is_set =
            |node: &crate::servers::Server| redis::raw(node.port(), &["EXISTS", "dlock:unheard"]) == ":1\r\n";
        until_true("a lease", || nodes.iter().all(is_set));
        running.signal(rustix::process::Signal::TERM);
        assert_eq!(running.finish().signal(), Some(rustix::process::Signal::TERM.as_raw()), "{mode}");
        past.assert_free("unheard");
    }
}

/// The run does not wait for the answer to the release.
#[test]
fn release_answered_too_late_is_done() {
    let nodes = &site::shared_nodes().0[..3];
    let ways: Vec<Proxy> = nodes.iter().map(|node| Proxy::to(node.port())).collect();
    let over =
        ways.iter().map(|way| format!("redis://127.0.0.1:{}", way.port())).collect::<Vec<_>>().join(",");
    let (over, past) = (env_at(&over), env_at(&redis::addresses(nodes)));
    let holder = over.held(&["-q", "--ttl", "9s", "--name", "answerless"]);
    for way in &ways {
        way.set(Conduct::Mute);
    }
    let ended = holder.release();
    assert_eq!(ended.code(), Some(0), "{}", ended.err);
    past.assert_free("answerless");
}

/// The connection to one node breaks before the release arrives. dlock repeats the release there, although it has a
/// majority without that node.
#[test]
fn release_missed_by_one_node_is_sent_again() {
    let nodes = &site::shared_nodes().0[..3];
    let way = Proxy::to(nodes[0].port());
    let over = format!("redis://127.0.0.1:{},{}", way.port(), redis::addresses(&nodes[1..]));
    let over = env_at(&over);
    for round in 0..30 {
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
