//! Curator and kazoo in the same queues as dlock.

mod curator;
mod kazoo;

use std::sync::atomic::{AtomicU32, Ordering};

use crate::breaking::Shared;
use crate::peer::Peer;
use crate::servers::zookeeper;
use crate::support::test_env::Holder;
use crate::support::{Service, TestEnv};

/// A queue that no other test has, and an environment to use it.
struct Queue {
    env: TestEnv,
    path: String,
}

impl Queue {
    fn new(layout: &'static str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let path = format!("/foreign/queue{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let service = Service { backend: "zk", endpoint: zookeeper::endpoint(), prefix: Some(String::new()) };
        let env = TestEnv::on(service).with_variables(vec![("DLOCK_ZK_LAYOUT", layout.to_owned())]);
        Self { env, path }
    }

    /// Returns the exit status of `dlock run --try`.
    fn tried(&self, options: &[&str]) -> Option<i32> {
        let mut command = self.env.run(["--name", &self.path, "--try", "--quiet"]);
        self.env.finish(command.args(options).args(["--", "true"])).code()
    }

    fn start(&self, options: &[&str]) -> Holder {
        self.env.hold(&[&["--name", &self.path, "--quiet"], options].concat())
    }

    #[track_caller]
    fn hold(&self, options: &[&str]) -> Holder {
        let mut holder = self.start(options);
        holder.await_start();
        holder
    }

    #[track_caller]
    fn await_waiters(&self, count: usize) {
        self.env.await_waiters(&self.path, count);
    }
}

/// Expects that holds of the peer are ended by force, whatever kind of lock it has.
fn holds_are_ended_by_force(peer: &mut Peer, layout: &'static str, kinds: &[&str]) {
    for kind in kinds {
        let queue = Queue::new(layout);
        let key = format!("node {}/", queue.path);
        Shared { env: &queue.env, name: &queue.path, key: &key }.every_hold_is_ended(|name| {
            peer.order(&format!("{kind} {name}-{kind} {}", queue.path));
            peer.says(&format!("held {name}-{kind}"));
        });
    }
}
