//! Clients that add and delete the plain key, as users of pymemcache do, and dlock: each keeps the other out.

use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::both::{self, MODES};
use crate::peer::Peer;
use crate::servers::{Server, memcached};
use crate::support::{Bed, Service, until};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/interop/memcached_peer.py");

/// The port of the server that all of these share.
fn port() -> u16 {
    static SHARED: OnceLock<Server> = OnceLock::new();
    SHARED.get_or_init(memcached::start).port()
}

/// A Python that has pymemcache, and a bed on the server that all of these share; `None`, said aloud, where either is
/// missing.
fn place() -> Option<(String, Bed)> {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    if let Some(reason) = memcached::missing() {
        crate::skip("memcached", &reason);
        return None;
    }
    let python = std::env::var("DLOCK_TEST_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let found = Command::new(&python).args(["-c", "import pymemcache"]).stderr(Stdio::null()).status();
    if !found.is_ok_and(|status| status.success()) {
        crate::skip("pymemcache", &format!("{python} has no pymemcache"));
        return None;
    }
    let prefix = format!("bed{}:", NEXT.fetch_add(1, Ordering::Relaxed));
    let endpoint = format!("memcached://127.0.0.1:{}", port());
    Some((python, Bed::on(Service { backend: "memcached", endpoint, prefix: Some(prefix) })))
}

fn peer(python: &str) -> Peer {
    Peer::start(Command::new(python).args([SCRIPT, &port().to_string(), "obey"]))
}

fn key(bed: &Bed) -> String {
    format!("{}x", bed.service().prefix.as_deref().expect("a prefix"))
}

#[test]
fn dlock_waits_for_pymemcache() {
    let Some((python, bed)) = place() else { return };
    let mut peer = peer(&python);
    peer.order(&format!("wait a {}", key(&bed)));
    peer.says("held a");
    both::assert_foreign(&bed);
    let mut next = bed.hold(&["--name", "x"]);
    until("it waits", || next.running.err_so_far().contains("waiting for x").then_some(()));
    assert!(!next.has_started(), "dlock waits");
    peer.release("a");
    next.await_start();
    next.release();
    assert_eq!(memcached::value(port(), &key(&bed)), None, "nothing is left");
}

#[test]
fn pymemcache_waits_for_dlock() {
    let Some((python, bed)) = place() else { return };
    let mut peer = peer(&python);
    for mode in MODES {
        let mut options = vec!["-q", "--name", "x"];
        options.extend(mode);
        let holder = bed.held(&options);
        peer.order(&format!("try a {}", key(&bed)));
        peer.says("busy a");
        peer.order(&format!("wait a {}", key(&bed)));
        peer.is_silent();
        holder.release().silently(0);
        peer.says("held a");
        peer.release("a");
    }
}

#[test]
fn an_unprotected_counter_loses_nothing() {
    let Some((python, bed)) = place() else { return };
    let (port, key) = (port().to_string(), key(&bed));
    both::count(&bed, 2, &[&python, SCRIPT, &port, "count", &key], 15);
}

#[test]
fn a_key_of_pymemcache_is_removed_by_force() {
    let Some((python, bed)) = place() else { return };
    let mut peer = peer(&python);
    peer.order(&format!("wait a {}", key(&bed)));
    peer.says("held a");
    let status = bed.status("x");
    let claim = status["holders"][0]["claim"].as_str().expect("a claim").to_owned();
    let called = format!("(key {})", key(&bed));
    let words = ["--force", "client other than dlock", &called];
    bed.finish(&mut bed.verb("break", ["x", "--yes"])).failed(64, &words);
    bed.finish(&mut bed.run(["--try", "--name", "x", "--", "true"])).failed(75, &["held by", &called]);
    bed.finish(&mut bed.verb("break", ["x", "--yes", "--force", "--claim", &claim])).silently(0);
    assert_eq!(memcached::value(port(), &key(&bed)), None);
    bed.assert_free("x");
}
