//! redis-py's Lock and dlock on one key: each keeps the other out.

use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::both::{self, MODES};
use crate::breaking::Shared;
use crate::peer::Peer;
use crate::servers::{Server, redis};
use crate::support::{Bed, Service};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/interop/redis_peer.py");

/// The port of the server that all of these share.
fn port() -> u16 {
    static SHARED: OnceLock<Server> = OnceLock::new();
    SHARED.get_or_init(redis::start).port()
}

/// A Python that has redis-py, and a bed on the server that all of these share; `None`, said aloud, where either is
/// missing.
fn place() -> Option<(String, Bed)> {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    if let Some(reason) = redis::missing() {
        crate::skip("redis", &reason);
        return None;
    }
    let python = std::env::var("DLOCK_TEST_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let found = Command::new(&python).args(["-c", "import redis"]).stderr(Stdio::null()).status();
    if !found.is_ok_and(|status| status.success()) {
        crate::skip("redis-py", &format!("{python} has no redis"));
        return None;
    }
    let prefix = format!("bed{}:", NEXT.fetch_add(1, Ordering::Relaxed));
    let service =
        Service { backend: "redis", endpoint: format!("redis://127.0.0.1:{}", port()), prefix: Some(prefix) };
    Some((python, Bed::on(service)))
}

fn peer(python: &str) -> Peer {
    Peer::start(Command::new(python).args([SCRIPT, &port().to_string(), "obey"]))
}

fn key(bed: &Bed) -> String {
    format!("{}x", bed.service().prefix.as_deref().expect("a prefix"))
}

#[test]
fn dlock_waits_for_redis_py() {
    let Some((python, bed)) = place() else { return };
    let mut peer = peer(&python);
    for timeout in ["30", "none"] {
        peer.order(&format!("wait a {} {timeout}", key(&bed)));
        peer.says("held a");
        both::assert_foreign(&bed);
        let mut next = bed.hold(&["-q", "--name", "x"]);
        bed.await_waiters("x", 1);
        assert!(!next.has_started(), "dlock waits");
        peer.release("a");
        next.await_start();
        next.release().silently(0);
        bed.assert_free("x");
    }
}

#[test]
fn dlock_outwaits_a_dead_redis_py() {
    let Some((python, bed)) = place() else { return };
    let mut peer = peer(&python);
    peer.order(&format!("wait a {} 6", key(&bed)));
    peer.says("held a");
    let mut next = bed.hold(&["-q", "--name", "x"]);
    bed.await_waiters("x", 1);
    drop(peer);
    assert!(!next.has_started(), "the key is still there");
    next.await_start();
    next.release().silently(0);
}

#[test]
fn redis_py_waits_for_dlock() {
    let Some((python, bed)) = place() else { return };
    let mut peer = peer(&python);
    for mode in MODES {
        let mut options = vec!["-q", "--name", "x"];
        options.extend(mode);
        let holder = bed.held(&options);
        for timeout in ["30", "none"] {
            peer.order(&format!("try a {} {timeout}", key(&bed)));
            peer.says("busy a");
        }
        peer.order(&format!("wait a {} 30", key(&bed)));
        peer.is_silent();
        holder.release().silently(0);
        peer.says("held a");
        bed.assert_busy("x");
        peer.release("a");
        bed.assert_free("x");
    }
}

#[test]
fn an_empty_prefix_means_the_key_itself() {
    let Some((python, bed)) = place() else { return };
    let mut peer = peer(&python);
    let name = key(&bed);
    let holder = bed.held(&["-q", "--prefix", "", "--name", &name]);
    peer.order(&format!("try a {name} 30"));
    peer.says("busy a");
    holder.release().silently(0);
    peer.order(&format!("wait b {name} 30"));
    peer.says("held b");
    bed.finish(&mut bed.run(["-n", "--prefix", "", "--name", &name, "--", "true"])).failed(75, &[&name]);
    peer.release("b");
}

#[test]
fn an_unprotected_counter_loses_nothing() {
    let Some((python, bed)) = place() else { return };
    let (port, key) = (port().to_string(), key(&bed));
    both::count(&bed, 3, &[&python, SCRIPT, &port, "count", &key], 20);
}

#[test]
fn a_hold_of_redis_py_is_ended_by_force() {
    let Some((python, bed)) = place() else { return };
    let mut peer = peer(&python);
    let mut names = ["a", "b", "c"].into_iter();
    let verb = |verb: &str, options: &[&str]| bed.verb(verb, options);
    let key_of = format!("key {}", key(&bed));
    Shared { bed: &bed, name: "x", verb: &verb, key: &key_of }.every_hold_is_ended(|| {
        let name = names.next().expect("as many as there are ways");
        peer.order(&format!("wait {name} {} {}", key(&bed), if name == "b" { "none" } else { "30" }));
        peer.says(&format!("held {name}"));
    });
}

/// Clients that count under a hash, such as Redisson.
#[test]
fn a_hold_that_is_no_string_is_ended_by_force() {
    let Some((_, bed)) = place() else { return };
    let set = |owner: &str| redis::raw(port(), &["HSET", &key(&bed), owner, "1"]);
    let mut owners = ["a:1", "b:1", "c:1"].into_iter();
    let verb = |verb: &str, options: &[&str]| bed.verb(verb, options);
    let key_of = format!("key {}", key(&bed));
    Shared { bed: &bed, name: "x", verb: &verb, key: &key_of }.every_hold_is_ended(|| {
        assert_eq!(set(owners.next().expect("as many as there are ways")), ":1\r\n");
    });
}
