//! redis-py's Lock and dlock on one key: each excludes the other.

use crate::breaking::Shared;
use crate::peer::PeerEnv;
use crate::place;
use crate::servers::redis;

/// Returns redis-py and an environment on the server that these tests share. If either is missing, prints the reason
/// and returns `None`.
fn meeting() -> Option<PeerEnv> {
    PeerEnv::of("redis-py", "redis", "redis_peer.py", &redis::KIND, |_| vec![port().to_string()])
}

fn port() -> u16 {
    place::port(&redis::KIND)
}

#[test]
fn dlock_waits_for_redis_py() {
    let Some(place) = meeting() else { return };
    place.keeps_dlock_waiting(&["30", "none"]);
}

#[test]
fn dlock_outwaits_a_dead_redis_py() {
    let Some(place) = meeting() else { return };
    let (env, mut peer, key) = (&place.env, place.peer(), place.key());
    peer.order(&format!("wait a {key} 6"));
    peer.says("held a");
    let mut next = env.hold(&["-q", "--name", "x"]);
    env.await_waiters("x", 1);
    drop(peer);
    assert!(!next.has_started(), "the key is still there");
    next.await_start();
    next.release().silently(0);
}

#[test]
fn redis_py_waits_for_dlock() {
    let Some(place) = meeting() else { return };
    place.waits_for_dlock(&["30", "none"]);
}

#[test]
fn an_empty_prefix_means_the_key_itself() {
    let Some(place) = meeting() else { return };
    let (env, mut peer, name) = (&place.env, place.peer(), place.key());
    let holder = env.held(&["-q", "--prefix", "", "--name", &name]);
    peer.order(&format!("try a {name} 30"));
    peer.says("busy a");
    holder.release().silently(0);
    peer.order(&format!("wait b {name} 30"));
    peer.says("held b");
    env.finish(&mut env.run(["-n", "--prefix", "", "--name", &name, "--", "true"])).failed(75, &[&name]);
    peer.release("b");
}

#[test]
fn an_unprotected_counter_loses_nothing() {
    let Some(place) = meeting() else { return };
    place.count(3, 20);
}

#[test]
fn a_hold_of_redis_py_is_ended_by_force() {
    let Some(place) = meeting() else { return };
    let (env, mut peer, key) = (&place.env, place.peer(), place.key());
    Shared { env, name: "x", key: &format!("key {key}") }.every_hold_is_ended(|name| {
        peer.order(&format!("wait {name} {key} {}", if name == "b" { "none" } else { "30" }));
        peer.says(&format!("held {name}"));
    });
}

/// Some clients, such as Redisson, count in a hash.
#[test]
fn non_string_hold_is_ended_by_force() {
    let Some(place) = meeting() else { return };
    let (env, key) = (&place.env, place.key());
    Shared { env, name: "x", key: &format!("key {key}") }.every_hold_is_ended(|owner| {
        assert_eq!(redis::raw(port(), &["HSET", &key, owner, "1"]), ":1\r\n");
    });
}
