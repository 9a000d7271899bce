//! kazoo's locks.

use std::process::Command;

use super::{Peer, Queue, holds_are_ended_by_force};
use crate::peer::{python_with, words};
use crate::servers::zookeeper;

/// Returns a kazoo client. Without one, prints the reason and returns `None`.
fn kazoo() -> Option<Peer> {
    if let Some(reason) = zookeeper::missing() {
        crate::skip("kazoo", &reason);
        return None;
    }
    let words = words(python_with("kazoo", "kazoo")?, "kazoo_peer.py");
    let servers = format!("127.0.0.1:{}", zookeeper::shared_port());
    Some(Peer::start(Command::new(&words[0]).args(&words[1..]).arg(servers)))
}

#[test]
fn each_keeps_the_other_out() {
    let Some(mut peer) = kazoo() else { return };
    for (layout, kind, shared) in
        [("kazoo", "lock", 75), ("kazoo", "write", 75), ("kazoo", "read", 0), ("curator", "curator", 75)]
    {
        let queue = Queue::new(layout);
        peer.order(&format!("{kind} a {}", queue.path));
        peer.says("held a");
        assert_eq!(queue.tried(&[]), Some(75), "exclusive against {kind}");
        assert_eq!(queue.tried(&["--shared"]), Some(shared), "shared against {kind}");
        let mut waiting = queue.start(&[]);
        queue.await_waiters(1);
        peer.order(&format!("{kind} b {}", queue.path));
        queue.await_waiters(2);
        peer.is_silent();
        peer.release("a");
        waiting.await_start();
        peer.is_silent();
        waiting.release().silently(0);
        peer.says("held b");
        peer.release("b");
    }
}

#[test]
fn readers_hold_together() {
    let Some(mut peer) = kazoo() else { return };
    let queue = Queue::new("kazoo");
    let reader = queue.hold(&["--shared"]);
    peer.order(&format!("read a {}", queue.path));
    peer.says("held a");
    peer.order(&format!("write b {}", queue.path));
    queue.await_waiters(1);
    peer.is_silent();
    peer.release("a");
    peer.is_silent();
    reader.release().silently(0);
    peer.says("held b");
    assert_eq!(queue.tried(&["--shared"]), Some(75));
    peer.release("b");
}

#[test]
fn a_semaphore_in_its_way_is_refused() {
    if let Some(reason) = zookeeper::missing() {
        return crate::skip("zookeeper", &reason);
    }
    let queue = Queue::new("kazoo");
    let mut command = queue.env.run(["--name", &queue.path, "--slots", "2", "--", "true"]);
    queue.env.finish(&mut command).failed(64, &["--zk-layout curator"]);
}

#[test]
fn a_hold_of_kazoo_is_ended_by_force() {
    let Some(mut peer) = kazoo() else { return };
    holds_are_ended_by_force(&mut peer, "kazoo", &["lock", "read"]);
}
