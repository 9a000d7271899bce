//! What becomes of what a holder has at a minority of the nodes of a Redlock.

use crate::servers::redis;
use crate::site;
use crate::support::wait::until_true;
use crate::support::{Service, TestEnv};

#[test]
fn who_supersedes_waiters_takes_no_part_of_a_hold() {
    let nodes = &site::shared_nodes().0[..3];
    let endpoint = redis::addresses(nodes);
    let env = TestEnv::on(Service { backend: "redis", endpoint, prefix: None });
    // A stranger keeps the holder waiting at one node.
    let third = nodes[2].port();
    assert_eq!(redis::raw(third, &["SET", "dlock:newest", "stranger", "PX", "600000"]), "+OK\r\n");
    let words = ["--name", "newest", "--supersede", "-q"];
    let first = env.held(&["--name", "newest", "-q"]);
    let mut holder = env.hold(&words);
    env.await_waiters("newest", 1);
    assert_eq!(first.release().code(), Some(0));
    holder.await_start();
    let mut newcomer = env.hold(&words);
    let count = |field: &str| {
        let script = format!(
            "local found = 0 for _, key in ipairs(redis.call('KEYS', '*{{dlock:newest}}*:claim:*')) do \
             found = found + redis.call('HEXISTS', key, '{field}') end return found"
        );
        redis::raw(third, &["EVAL", &script, "0"])
    };
    until_true("the newcomer's turn to look at the waiters", || count("newest") == ":2\r\n");
    assert_eq!(count("gone"), ":0\r\n", "the holder is no waiter");
    redis::raw(third, &["DEL", "dlock:newest"]);
    assert_eq!(holder.release().code(), Some(0));
    newcomer.await_start();
    assert_eq!(newcomer.release().code(), Some(0));
}

/// Each claim is to be compared with the other at every node, also at that whose time of arrival is its place already.
#[test]
fn a_newer_waiter_supersedes_an_older_one_whichever_nodes_say_when_they_came() {
    let nodes = &site::shared_nodes().0[..3];
    let env = TestEnv::on(Service { backend: "redis", endpoint: redis::addresses(nodes), prefix: None });
    // Whoever comes next comes so many seconds from now, as a node counts.
    let come_in = |node: usize, seconds: u64| {
        let script = "redis.call('ZADD', KEYS[1], (redis.call('TIME')[1] + ARGV[1]) * 1000000, 'one')";
        let key = "{dlock:middle}:dlock:quorum:queue";
        redis::raw(nodes[node].port(), &["EVAL", script, "1", key, &seconds.to_string()]);
    };
    let holder = env.held(&["--name", "middle", "-q"]);
    let mut first = env.hold(&["--name", "middle", "-q"]);
    env.await_waiters("middle", 1);
    for (node, seconds) in [(1, 100), (2, 200)] {
        come_in(node, seconds);
    }
    let older = env.start(&mut env.run(["--supersede", "--name", "middle", "--", "true"]));
    env.await_waiters("middle", 2);
    for (node, seconds) in [(1, 400), (2, 300)] {
        come_in(node, seconds);
    }
    let mut newer = env.hold(&["--supersede", "--name", "middle", "-q"]);
    let ended = older.finish();
    assert_eq!(ended.code(), Some(75), "{}", ended.err);
    assert!(ended.err.contains("superseded by"), "{}", ended.err);
    assert_eq!(holder.release().code(), Some(0));
    first.await_start();
    assert_eq!(first.release().code(), Some(0));
    newer.await_start();
    assert_eq!(newer.release().code(), Some(0));
}
