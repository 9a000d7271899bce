//! Clients that add and delete the plain key, as users of pymemcache do, and dlock: each excludes the other.

use crate::peer::PeerEnv;
use crate::place;
use crate::servers::memcached;

/// Returns pymemcache and an environment on the server that these tests share. If either is missing, prints the reason
/// and returns `None`.
fn meeting() -> Option<PeerEnv> {
    PeerEnv::of("pymemcache", "pymemcache", "memcached_peer.py", &memcached::KIND, |_| {
        vec![port().to_string()]
    })
}

fn port() -> u16 {
    place::port(&memcached::KIND)
}

#[test]
fn dlock_waits_for_pymemcache() {
    let Some(place) = meeting() else { return };
    place.keeps_dlock_waiting(&[""]);
    assert_eq!(memcached::value(port(), &place.key()), None, "nothing is left");
}

#[test]
fn pymemcache_waits_for_dlock() {
    let Some(place) = meeting() else { return };
    place.waits_for_dlock(&[""]);
}

#[test]
fn an_unprotected_counter_loses_nothing() {
    let Some(place) = meeting() else { return };
    place.count(2, 15);
}

#[test]
fn a_key_of_pymemcache_is_removed_by_force() {
    let Some(place) = meeting() else { return };
    let (env, mut peer, key) = (&place.env, place.peer(), place.key());
    peer.order(&format!("wait a {key}"));
    peer.says("held a");
    let status = env.status("x");
    let claim = status["holders"][0]["claim"].as_str().expect("a claim").to_owned();
    let called = format!("(key {key})");
    let words = ["--force", "client other than dlock", &called];
    env.finish(&mut env.verb("break", ["x", "--yes"])).failed(64, &words);
    env.finish(&mut env.run(["--try", "--name", "x", "--", "true"])).failed(75, &["held by", &called]);
    env.finish(&mut env.verb("break", ["x", "--yes", "--force", "--claim", &claim])).silently(0);
    assert_eq!(memcached::value(port(), &key), None);
    env.assert_free("x");
}
