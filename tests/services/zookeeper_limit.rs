//! A server that has no connection left for another client of the same host.

use std::fs::OpenOptions;
use std::io::Write;
use std::time::Duration;

use crate::servers::relay::Relay;
use crate::servers::relay::fault::Way;
use crate::servers::{Server, zookeeper};
use crate::support::process::is_alive;
use crate::support::wait::until_true;
use crate::zookeeper::env_at;
use crate::zookeeper_kinds::MULTI;

/// Makes the server take at most `most` connections from a host after its next start.
fn limit(server: &Server, most: u32) {
    let file = OpenOptions::new().append(true).open(server.folder().join("zoo.cfg"));
    writeln!(file.expect("opens"), "maxClientCnxns={most}").expect("writes");
    server.restart();
}

#[test]
fn holder_reconnects_before_waiters_at_the_connection_limit() {
    let server = zookeeper::start();
    let relay = Relay::to(&[server.port()], zookeeper::KIND.protocol, None);
    let renewals = || relay.messages(Way::Request).iter().filter(|one| one.contains(MULTI)).count();
    let [env, over] = [server.port(), relay.ports()[0]].map(|port| env_at(format!("zk://127.0.0.1:{port}")));
    // Longer than the server takes to restart on a busy machine.
    let holder = over.held(&["--name", "x", "--ttl", "40s"]);
    let words = ["--name", "x", "--ttl", "10s", "--", "sh", "-c", "echo >> done"];
    let run = || env.start(&mut env.run(words));
    let waiters: Vec<_> = (0..15).map(|_| run()).collect();
    env.await_waiters("x", waiters.len());
    limit(&server, 10);
    let before = renewals();
    until_true("a renewal after the restart", || renewals() > before);
    assert!(is_alive(holder.command()), "a restart ended the command: {}", holder.err_so_far());
    let told = || waiters.iter().any(|waiter| waiter.err_so_far().contains("maxClientCnxns"));
    until_true("word of the limit", told);
    for words in [&["status", "x"][..], &["break", "x", "--yes"]] {
        env.finish(&mut env.verb(words[0], &words[1..])).failed(69, &["maxClientCnxns"]);
    }
    assert_eq!(holder.release().code(), Some(0));
    for waiter in waiters {
        let ended = waiter.finish_within(Duration::from_secs(60));
        assert_eq!(ended.code(), Some(0), "{}", ended.err);
    }
    assert_eq!(env.read("done").lines().count(), 15);
    env.assert_free("x");
}
