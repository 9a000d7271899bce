//! Entries of other clients, and the requests of a waiter.

use std::time::Duration;

use crate::servers::relay::Relay;
use crate::servers::relay::fault::Way;
use crate::servers::zookeeper::{self, Raw};
use crate::support::test_env::{Holder, release_all};
use crate::support::wait::until_true;
use crate::zookeeper::own_corner;

/// In the text of a request that renews, enters or leaves.
pub(super) const MULTI: &str = " operation 14 ";

#[test]
fn half_entry_seen_by_curators_writers_counts_as_whole() {
    let env = own_corner("half");
    // Far longer than the notification may take.
    let holder = env.held(&["--ttl", "60s", "--name", "x"]);
    let mut raw = Raw::connect(zookeeper::shared_port(), 0);
    let path = "/half/dlock/x";
    let node = raw.children(path).into_iter().find(|node| node.contains("__WRIT__")).expect("a node");
    raw.delete(&format!("{path}/{node}"));
    holder.running.finish_within(Duration::from_secs(5)).failed(76, &["lost x"]);
}

#[test]
fn unreadable_entry_of_another_user_is_waited_for() {
    let env = own_corner("unreadable");
    let first = env.held(&["--name", "x"]);
    // Every user may use the directory of the lock. Ann's nodes are hers alone.
    let mut command = env.run(["-q", "--name", "x", "--user", "ann", "--", "sh", "-c", "echo ann >>order"]);
    let ann = env.start(command.env("DLOCK_PASSWORD", "secret"));
    env.await_waiters("x", 1);
    // It renews far later than a notification comes.
    let lock = ["-q", "--name", "x", "--ttl", "60s"];
    let last = env.start(env.run(lock).args(["--", "sh", "-c", "echo last >>order"]));
    env.await_waiters("x", 2);
    first.release().silently(0);
    ann.finish().silently(0);
    last.finish_within(Duration::from_secs(5)).silently(0);
    assert_eq!(env.read("order"), "ann\nlast\n");
}

/// Only its own user can read which slot an entry has.
#[test]
fn slots_of_other_users_are_passed_over() {
    let env = own_corner("slots");
    env.write("password", "secret");
    // From then on every user may use the directory of the lock.
    env.finish(&mut env.run(["--name", "x", "--", "false"])).silently(1);
    let options = |user| ["-q", "--user", user, "--password-file", "password", "--name", "x", "--slots", "3"];
    let [ann, bob, eve] = ["ann", "bob", "eve"].map(|user| env.held(&options(user)));
    assert_eq!([&ann, &bob, &eve].map(Holder::slot), [1, 2, 3]);
    let mut last = env.hold(&options("joe"));
    env.await_waiters("x", 1);
    bob.release().silently(0);
    last.await_start();
    assert_eq!(last.slot(), 2);
    release_all([ann, eve, last]);
}

/// The requests that a waiter sends by itself. The pings of the client library are not among them.
#[test]
fn a_waiter_at_rest_renews_and_asks_nothing_else() {
    // The seconds between two renewals with a TTL of 12 s.
    const INTERVAL: f64 = 3.0;
    let modes = [&["-x"][..], &["--slots", "1"]];
    let waits = modes.map(|mode| {
        let test = format!("rest{}", mode.len());
        let relay = Relay::to(&[zookeeper::shared_port()], zookeeper::KIND.protocol, None);
        let env = own_corner(&test);
        let holder = env.held(&[&["--name", "x"], mode].concat());
        let endpoint = format!("zk://127.0.0.1:{}/{test}", relay.ports()[0]);
        let mut command = env.dlock(["run", "-q", "--endpoint", &endpoint, "--name", "x", "--ttl", "12s"]);
        let waiter = env.start(command.args(mode).args(["--", "true"]));
        env.await_waiters("x", 1);
        (relay, env, holder, waiter)
    });
    for (relay, _env, holder, waiter) in waits {
        // The requests over the latest connection, without those that begin it: they end before its second MULTI.
        let asked_at_rest = || {
            let mut all = relay.messages(Way::Request);
            let begins = all.iter().rposition(|one| one.ends_with(" session")).expect("a connection");
            let mut multis = (begins..all.len()).filter(|at| all[*at].contains(MULTI));
            multis.nth(1).map(|at| all.split_off(at)).unwrap_or_default()
        };
        until_true("three renewals", || asked_at_rest().len() >= 3);
        let asked = asked_at_rest();
        assert!(asked.iter().all(|one| one.contains(MULTI)), "{asked:?}");
        let time = |one: &str| one.split(' ').next()?.parse::<f64>().ok();
        let took = time(&asked[2]).zip(time(&asked[0])).map(|(last, first)| last - first).expect("times");
        assert!(took > INTERVAL, "three renewals within {took} s");
        holder.release().silently(0);
        waiter.finish().silently(0);
    }
}
