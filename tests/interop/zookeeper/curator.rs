//! Curator's mutex and read/write lock.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use super::{Peer, Queue, holds_are_ended_by_force};
use crate::servers::{shared_folder, zookeeper};

fn class_path() -> String {
    zookeeper::class_path(&[
        "curator-client",
        "curator-framework",
        "curator-recipes",
        "zookeeper",
        "slf4j-api",
        "slf4j-nop",
        "netty-",
        "guava",
        "failureaccess",
        "snappy-java",
        "jackson",
    ])
}

/// Returns the directory of the compiled program, or the reason why it is missing.
fn compiled() -> Result<&'static PathBuf, String> {
    static FOLDER: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let compile = || {
        if let Some(reason) = zookeeper::missing() {
            return Err(reason);
        }
        let folder = shared_folder("curator");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/interop/zookeeper/Peer.java");
        let made = Command::new("javac").args(["-cp", &class_path(), "-d"]).arg(&folder).arg(source).output();
        match made {
            Ok(output) if output.status.success() => Ok(folder),
            Ok(output) => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
            Err(error) => Err(format!("javac: {error}")),
        }
    };
    FOLDER.get_or_init(compile).as_ref().map_err(Clone::clone)
}

/// Returns a Curator client. Without one, prints the reason and returns `None`.
fn curator() -> Option<Peer> {
    let folder = match compiled() {
        Ok(folder) => folder,
        Err(reason) => {
            crate::skip("curator", &reason);
            return None;
        }
    };
    let path = format!("{}:{}", class_path(), folder.display());
    let mut command = Command::new("java");
    command.args(["-XX:TieredStopAtLevel=1", "-Xmx64m", "-cp", &path, "Peer"]);
    Some(Peer::start(command.arg(format!("127.0.0.1:{}", zookeeper::shared_port()))))
}

#[test]
fn any_holder_keeps_the_others_out() {
    let Some(mut peer) = curator() else { return };
    for (kind, exclusive, shared) in [("mutex", 75, 75), ("write", 75, 75), ("read", 75, 0)] {
        let queue = Queue::new("curator");
        peer.order(&format!("{kind} a {}", queue.path));
        peer.says("held a");
        assert_eq!(queue.tried(&[]), Some(exclusive), "exclusive against {kind}");
        assert_eq!(queue.tried(&["--shared"]), Some(shared), "shared against {kind}");
        let mut waiting = queue.start(&[]);
        queue.await_waiters(1);
        assert!(!waiting.has_started());
        peer.release("a");
        waiting.await_start();
        waiting.release().silently(0);
    }
}

#[test]
fn a_hold_of_dlock_keeps_curator_out() {
    let Some(mut peer) = curator() else { return };
    for (mode, kind, waits) in [
        ("--exclusive", "mutex", true),
        ("--exclusive", "write", true),
        ("--exclusive", "read", true),
        ("--shared", "mutex", true),
        ("--shared", "write", true),
        ("--shared", "read", false),
    ] {
        let queue = Queue::new("curator");
        let holder = queue.hold(&[mode]);
        peer.order(&format!("{kind} a {}", queue.path));
        if waits {
            queue.await_waiters(1);
            peer.is_silent();
        } else {
            peer.says("held a");
        }
        holder.release().silently(0);
        if waits {
            peer.says("held a");
        }
        peer.release("a");
    }
}

#[test]
fn all_stand_in_one_line() {
    let Some(mut peer) = curator() else { return };
    for kind in ["mutex", "write"] {
        let queue = Queue::new("curator");
        let holder = queue.hold(&[]);
        peer.order(&format!("{kind} a {}", queue.path));
        queue.await_waiters(1);
        let mut middle = queue.start(&[]);
        queue.await_waiters(2);
        peer.order(&format!("{kind} b {}", queue.path));
        queue.await_waiters(3);
        let shown = queue.env.status(&queue.path);
        let foreign: Vec<bool> =
            shown["waiters"].as_array().expect("a list").iter().map(|w| w["foreign"] == true).collect();
        assert_eq!(foreign, [true, false, true], "{shown}");
        holder.release().silently(0);
        peer.says("held a");
        peer.is_silent();
        assert!(!middle.has_started());
        peer.release("a");
        middle.await_start();
        peer.is_silent();
        middle.release().silently(0);
        peer.says("held b");
        peer.release("b");
    }
}

#[test]
fn slots_and_holds_of_curator_keep_each_other_out() {
    let Some(mut peer) = curator() else { return };
    for kind in ["mutex", "write", "read"] {
        let queue = Queue::new("curator");
        let first = queue.hold(&["--slots", "2"]);
        let second = queue.hold(&["--slots", "2"]);
        peer.order(&format!("{kind} a {}", queue.path));
        queue.await_waiters(1);
        let mut third = queue.start(&["--slots", "2"]);
        queue.await_waiters(2);
        first.release().silently(0);
        peer.is_silent();
        second.release().silently(0);
        peer.says("held a");
        assert!(!third.has_started());
        peer.release("a");
        third.await_start();
        third.release().silently(0);
    }
}

#[test]
fn a_hold_of_curator_is_ended_by_force() {
    let Some(mut peer) = curator() else { return };
    holds_are_ended_by_force(&mut peer, "curator", &["mutex", "write", "read"]);
}
