//! etcd: members of a cluster that come and go, and a server without space.

use std::time::{Duration, Instant};

use crate::etcd::env;
use crate::servers::Site as _;
use crate::servers::etcd::{Cluster, Etcd};
use crate::support::process::is_alive;
use crate::support::scene::Scene;
use crate::support::wait::{let_pass, until_true};
use crate::support::way::Way;
use crate::support::{TestEnv, quiet, within};

/// Expects that the command of the holder runs and that the queue is as long as before.
#[track_caller]
fn unchanged(env: &TestEnv, command: i32, token: u64) {
    until_true("a queue as before", || {
        let status = env.status("x");
        status["holders"][0]["token"].as_str() == Some(token.to_string().as_str())
            && status["waiters"].as_array().is_some_and(|waiters| waiters.len() == 2)
    });
    assert!(is_alive(command), "the command was stopped");
}

#[test]
fn members_killed_one_at_a_time_change_nothing_over_tls() {
    let cluster = Cluster::start_secure();
    let leader = cluster.leader(0);
    let (spoken_to, other) = ((leader + 1) % 3, (leader + 2) % 3);
    // dlock uses the first address.
    let env = env(cluster.endpoints([spoken_to, leader, other])).with_variables(cluster.variables());
    let ttl = Duration::from_secs(10);
    let holder = env.held(&["--name", "x", "--ttl", "10s"]);
    let (command, first) = (holder.command(), holder.token());
    let mut waiters = Vec::new();
    for n in 1..=2 {
        waiters.push(env.hold(&["--name", "x", "--ttl", "10s"]));
        env.await_waiters("x", n);
    }
    let begun = Instant::now();
    cluster.down(spoken_to);
    unchanged(&env, command, first);
    cluster.up(spoken_to);
    cluster.await_serving(spoken_to);
    let leader = cluster.leader(spoken_to);
    cluster.down(leader);
    unchanged(&env, command, first);
    cluster.up(leader);
    for member in 0..3 {
        (0..3).for_each(|n| cluster.await_serving(n));
        cluster.down(member);
        cluster.up(member);
    }
    unchanged(&env, command, first);
    // Longer than the lease would last without a renewal.
    let_pass((ttl + ttl / 5).saturating_sub(begun.elapsed()));
    unchanged(&env, command, first);
    let mut token = first;
    let mut before = holder;
    for mut waiter in waiters {
        assert!(!waiter.has_started(), "two at once");
        let ended = before.release();
        assert_eq!(ended.code(), Some(0), "{}", ended.err);
        waiter.await_start();
        assert!(waiter.token() > token, "{} after {token}", waiter.token());
        token = waiter.token();
        before = waiter;
    }
    assert_eq!(before.release().code(), Some(0));
    env.assert_free("x");
}

#[test]
fn without_a_majority_the_tree_ends_and_no_command_starts() {
    let _alone = quiet::measuring();
    let cluster = Cluster::start();
    let leader = cluster.leader(0);
    let (follower, other) = ((leader + 1) % 3, (leader + 2) % 3);
    let env = env(cluster.endpoints([follower, leader, other]));
    let (service, ttl) = (env.service().clone(), Duration::from_secs(6));
    let scene = Scene::of(env, Way::Run, &["--ttl", "6s"], &["-q", "--ttl", "6s"]);
    // The member that dlock uses is left.
    cluster.down(other);
    cluster.down(leader);
    let alone = Instant::now();
    scene.await_tree_gone();
    // The last renewal was sent before.
    within(alone.elapsed(), ttl);
    let_pass((ttl + ttl / 2).saturating_sub(alone.elapsed()));
    assert!(!scene.env.exists("overlap"), "a command started without a majority");
    cluster.up(other);
    scene.conclude().lost_its_lease("x");
    cluster.up(leader);
    cluster.await_serving(leader);
    TestEnv::on(service).assert_free("x");
}

#[test]
fn a_server_without_space_refuses_the_new_and_keeps_the_old() {
    let etcd = Etcd::small();
    let env = env(etcd.endpoint());
    let ttl = Duration::from_secs(6);
    let holder = env.held(&["--name", "x", "--ttl", "6s"]);
    let mut waiter = env.hold(&["--name", "x", "--ttl", "6s"]);
    env.await_waiters("x", 1);
    assert!(etcd.fill().contains("space exceeded"));
    until_true("an alarm", || etcd.ask(&["alarm", "list"]).contains("NOSPACE"));
    let full = Instant::now();
    let refused = env.finish(&mut env.run(["--name", "y", "--wait", "1s", "--", "true"]));
    refused.failed(69, &["space exceeded", "defragment"]);
    // The leases continue.
    let_pass((ttl + ttl / 2).saturating_sub(full.elapsed()));
    assert_eq!((env.holders("x"), env.waiters("x")), (1, 1));
    assert!(is_alive(holder.command()), "the command was stopped");
    let token = holder.token();
    holder.release().silently(0);
    until_true("a queue without its holder", || env.holders("x") + env.waiters("x") == 1);
    assert!(!waiter.has_started(), "a hold was proved without space for the proof");
    etcd.ask(&["compact", "--physical", &etcd.revision("ballast")]);
    etcd.ask(&["del", "ballast"]);
    etcd.ask(&["defrag"]);
    etcd.ask(&["alarm", "disarm"]);
    waiter.await_start();
    assert!(waiter.token() > token, "{} after {token}", waiter.token());
    let ended = waiter.release();
    assert_eq!(ended.code(), Some(0), "{}", ended.err);
}
