//! Redlock clients and dlock on the same five servers: each excludes the others.

use crate::both;
use crate::breaking::Shared;
use crate::peer::PeerEnv;
use crate::place;
use crate::servers::{Server, Site, redis};
use crate::support::{Service, TestEnv};

fn nodes() -> &'static [Server] {
    place::site(&redis::REDLOCK).servers()
}

/// Returns a client of that kind and an environment on the same servers. If one is missing, prints the reason and
/// returns `None`.
fn place(kind: &'static str) -> Option<PeerEnv> {
    let (client, module) = if kind == "pottery" { ("pottery", "pottery") } else { ("redis-py", "redis") };
    let ports = || nodes().iter().map(|node| node.port().to_string()).collect::<Vec<_>>();
    let tell = |_: &dyn Site| vec![kind.to_owned(), ports().join(",")];
    let mut place = PeerEnv::of(client, module, "redlock_peer.py", &redis::REDLOCK, tell)?;
    let service = place.env.service().clone();
    // pottery puts that name before the key itself.
    let prefix = service.prefix.map(|prefix| format!("redlock:{prefix}"));
    place.env = TestEnv::on(Service { prefix, ..service });
    Some(place)
}

fn dlock_waits_for(kind: &'static str) {
    let Some(place) = place(kind) else { return };
    let (env, mut peer, key) = (&place.env, place.peer(), place.key());
    peer.order(&format!("wait a {key} 30"));
    peer.says("held a");
    both::assert_foreign(env);
    let mut next = env.hold(&["-q", "--name", "x"]);
    env.await_waiters("x", 1);
    peer.order("extend a");
    peer.says("extended a");
    assert!(!next.has_started(), "dlock waits");
    peer.release("a");
    next.await_start();
    next.release().silently(0);
    env.assert_free("x");
}

fn waits_for_dlock(kind: &'static str) {
    let Some(place) = place(kind) else { return };
    place.waits_for_dlock(&["30"]);
}

fn an_unprotected_counter_loses_nothing(kind: &'static str) {
    let Some(place) = place(kind) else { return };
    place.count(2, 10);
}

fn is_ended_by_force(kind: &'static str) {
    let Some(place) = place(kind) else { return };
    let (env, mut peer, key) = (&place.env, place.peer(), place.key());
    Shared { env, name: "x", key: &format!("key {key}") }.every_hold_is_ended(|name| {
        peer.order(&format!("wait {name} {key} 30"));
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

/// redis-py's Lock on a minority of the nodes is no lock of a Redlock. dlock leaves its keys alone.
#[test]
fn foreign_keys_on_a_minority_do_not_block() {
    let Some(place) = place("scripts") else { return };
    let key = format!("{}y", place.env.service().prefix.as_deref().expect("a prefix"));
    for node in &nodes()[..2] {
        assert_eq!(redis::raw(node.port(), &["SET", &key, "somebody", "NX", "PX", "30000"]), "+OK\r\n");
    }
    let holder = place.env.held(&["--name", "y"]);
    assert_eq!(place.env.status("y")["holders"].as_array().map(Vec::len), Some(1));
    holder.release().silently(0);
    for node in &nodes()[..2] {
        assert_eq!(redis::raw(node.port(), &["DEL", &key]), ":1\r\n", "it is left alone");
    }
}
