//! Redlock clients and dlock on the same five servers: each keeps the others out.

use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::both::{self, MODES};
use crate::breaking::Shared;
use crate::peer::Peer;
use crate::servers::{Server, redis};
use crate::support::{Bed, Service};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/interop/redlock_peer.py");
/// What a bed with a Redlock says for `--max-ttl`.
const MAX_TTL: Duration = Duration::from_secs(10);

/// The servers that all of these share, old enough to have a say.
fn nodes() -> &'static [Server] {
    static SHARED: OnceLock<Vec<Server>> = OnceLock::new();
    SHARED.get_or_init(|| {
        let nodes = redis::start_nodes(&[]);
        for node in &nodes {
            redis::await_age(node, MAX_TTL);
        }
        nodes
    })
}

/// A foreign client, and a bed on the same servers.
struct Place {
    python: String,
    kind: &'static str,
    bed: Bed,
    /// What the client calls the lock x.
    key: String,
}

impl Place {
    /// `None`, said aloud, where something is missing.
    fn of(kind: &'static str) -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        if let Some(reason) = redis::missing() {
            crate::skip("redis", &reason);
            return None;
        }
        let (client, module) = if kind == "pottery" { ("pottery", "pottery") } else { ("redis-py", "redis") };
        let python = std::env::var("DLOCK_TEST_PYTHON").unwrap_or_else(|_| "python3".to_owned());
        let found =
            Command::new(&python).args(["-c", &format!("import {module}")]).stderr(Stdio::null()).status();
        if !found.is_ok_and(|status| status.success()) {
            crate::skip(client, &format!("{python} has no {module}"));
            return None;
        }
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        // pottery puts its own name before the key.
        let (prefix, key) = match kind {
            "pottery" => (format!("redlock:bed{n}:"), format!("bed{n}:x")),
            _ => (format!("bed{n}:"), format!("bed{n}:x")),
        };
        let endpoint = redis::addresses(nodes());
        let bed = Bed::on(Service { backend: "redis", endpoint, prefix: Some(prefix) });
        Some(Self { python, kind, bed, key })
    }

    fn command(&self) -> Command {
        let ports: Vec<String> = nodes().iter().map(|node| node.port().to_string()).collect();
        let mut command = Command::new(&self.python);
        command.args([SCRIPT, self.kind, &ports.join(",")]);
        command
    }

    fn peer(&self) -> Peer {
        Peer::start(self.command().arg("obey"))
    }
}

fn dlock_waits_for(kind: &'static str) {
    let Some(place) = Place::of(kind) else { return };
    let (bed, mut peer) = (&place.bed, place.peer());
    peer.order(&format!("wait a {} 30", place.key));
    peer.says("held a");
    both::assert_foreign(bed);
    let mut next = bed.hold(&["-q", "--name", "x"]);
    bed.await_waiters("x", 1);
    peer.order("extend a");
    peer.says("extended a");
    assert!(!next.has_started(), "dlock waits");
    peer.release("a");
    next.await_start();
    next.release().silently(0);
    bed.assert_free("x");
}

fn waits_for_dlock(kind: &'static str) {
    let Some(place) = Place::of(kind) else { return };
    let (bed, mut peer) = (&place.bed, place.peer());
    for mode in MODES {
        let holder = bed.held(&[&["-q", "--name", "x"], mode].concat());
        peer.order(&format!("try a {} 30", place.key));
        peer.says("busy a");
        peer.order(&format!("wait b {} 30", place.key));
        peer.is_silent();
        holder.release().silently(0);
        peer.says("held b");
        bed.assert_busy("x");
        peer.release("b");
        bed.assert_free("x");
    }
}

fn an_unprotected_counter_loses_nothing(kind: &'static str) {
    let Some(place) = Place::of(kind) else { return };
    let bed = &place.bed;
    let command = place.command();
    let words = command.get_args().map(|word| word.to_str().expect("text"));
    let peer: Vec<&str> =
        [place.python.as_str()].into_iter().chain(words).chain(["count", &place.key]).collect();
    both::count(bed, 2, &peer, 10);
}

fn is_ended_by_force(kind: &'static str) {
    let Some(place) = Place::of(kind) else { return };
    let (bed, mut peer) = (&place.bed, place.peer());
    let mut names = ["a", "b", "c"].into_iter();
    let verb = |verb: &str, options: &[&str]| bed.verb(verb, options);
    // A client may put a part of its own before the name that it was given.
    let key = format!("{}x", bed.service().prefix.as_deref().expect("a prefix"));
    let key_of = format!("key {key}");
    Shared { bed, name: "x", verb: &verb, key: &key_of }.every_hold_is_ended(|| {
        let name = names.next().expect("as many as there are ways");
        peer.order(&format!("wait {name} {} 30", place.key));
        peer.says(&format!("held {name}"));
    });
    for node in nodes() {
        assert_eq!(redis::raw(node.port(), &["EXISTS", &key]), ":0\r\n", "it is removed everywhere");
    }
}

macro_rules! with_each {
    ($($name:ident: $body:ident($kind:literal)),* $(,)?) => {
        $(#[test]
        fn $name() {
            $body($kind);
        })*
    };
}

with_each! {
    dlock_waits_for_pottery: dlock_waits_for("pottery"),
    dlock_waits_for_clients_with_the_usual_scripts: dlock_waits_for("scripts"),
    pottery_waits_for_dlock: waits_for_dlock("pottery"),
    clients_with_the_usual_scripts_wait_for_dlock: waits_for_dlock("scripts"),
    a_hold_of_pottery_is_ended_by_force: is_ended_by_force("pottery"),
    a_hold_of_clients_with_the_usual_scripts_is_ended_by_force: is_ended_by_force("scripts"),
    a_counter_shared_with_pottery_is_exact: an_unprotected_counter_loses_nothing("pottery"),
    a_counter_shared_with_the_usual_scripts_is_exact: an_unprotected_counter_loses_nothing("scripts"),
}

/// redis-py's Lock at a minority of the nodes is no lock of a Redlock, and what it took is left alone.
#[test]
fn single_locks_at_a_minority_are_no_matter() {
    let Some(place) = Place::of("scripts") else { return };
    let key = format!("{}y", place.bed.service().prefix.as_deref().expect("a prefix"));
    for node in &nodes()[..2] {
        assert_eq!(redis::raw(node.port(), &["SET", &key, "somebody", "NX", "PX", "30000"]), "+OK\r\n");
    }
    let holder = place.bed.held(&["--name", "y"]);
    assert_eq!(place.bed.status("y")["holders"].as_array().map(Vec::len), Some(1));
    holder.release().silently(0);
    for node in &nodes()[..2] {
        assert_eq!(redis::raw(node.port(), &["DEL", &key]), ":1\r\n", "it is left alone");
    }
}
