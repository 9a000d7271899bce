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
