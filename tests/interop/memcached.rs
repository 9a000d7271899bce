//! Clients that add and delete the plain key, as users of pymemcache do, and dlock: each keeps the other out.

use std::sync::OnceLock;

use crate::both;
use crate::peer::Place;
use crate::servers::{Server, memcached};
use crate::support::{Service, until};

/// The port of the server that all of these share.
fn port() -> u16 {
    static SHARED: OnceLock<Server> = OnceLock::new();
    SHARED.get_or_init(memcached::start).port()
}

/// pymemcache, and a bed on the server that all of these share; `None`, said aloud, where either is missing.
fn place() -> Option<Place> {
    if let Some(reason) = memcached::missing() {
        crate::skip("memcached", &reason);
        return None;
    }
    Place::of("pymemcache", "pymemcache", "memcached_peer.py", |prefix| {
        let endpoint = format!("memcached://127.0.0.1:{}", port());
        (Service { backend: "memcached", endpoint, prefix: Some(prefix) }, vec![port().to_string()])
    })
}

#[test]
fn dlock_waits_for_pymemcache() {
    let Some(place) = place() else { return };
    let (bed, mut peer, key) = (&place.bed, place.peer(), place.key());
    peer.order(&format!("wait a {key}"));
    peer.says("held a");
    both::assert_foreign(bed);
    let mut next = bed.hold(&["--name", "x"]);
    until("it waits", || next.running.err_so_far().contains("waiting for x").then_some(()));
    assert!(!next.has_started(), "dlock waits");
    peer.release("a");
    next.await_start();
    next.release();
    assert_eq!(memcached::value(port(), &key), None, "nothing is left");
}

#[test]
fn pymemcache_waits_for_dlock() {
    let Some(place) = place() else { return };
    place.waits_for_dlock(&[""]);
}

#[test]
fn an_unprotected_counter_loses_nothing() {
    let Some(place) = place() else { return };
    place.count(2, 15);
}

#[test]
fn a_key_of_pymemcache_is_removed_by_force() {
    let Some(place) = place() else { return };
    let (bed, mut peer, key) = (&place.bed, place.peer(), place.key());
    peer.order(&format!("wait a {key}"));
    peer.says("held a");
    let status = bed.status("x");
    let claim = status["holders"][0]["claim"].as_str().expect("a claim").to_owned();
    let called = format!("(key {key})");
    let words = ["--force", "client other than dlock", &called];
    bed.finish(&mut bed.verb("break", ["x", "--yes"])).failed(64, &words);
    bed.finish(&mut bed.run(["--try", "--name", "x", "--", "true"])).failed(75, &["held by", &called]);
    bed.finish(&mut bed.verb("break", ["x", "--yes", "--force", "--claim", &claim])).silently(0);
    assert_eq!(memcached::value(port(), &key), None);
    bed.assert_free("x");
}
