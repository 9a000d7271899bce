//! A holder that knows only one member of a service, which is cut off from the others, and a waiter at another member.

use std::time::Duration;

use crate::support::process::{Process, is_alive};
use crate::support::scripts::{Overlap, Tree};
use crate::support::wait::until_true;
use crate::support::{Running, TestEnv};

pub(crate) struct CutOff {
    near: TestEnv,
    far: TestEnv,
    holder: Running,
    members: Vec<Process>,
    waiter: Running,
    overlap: Overlap,
}

impl CutOff {
    /// `near` reaches the member to cut off, `far` another one.
    pub(crate) fn start(near: TestEnv, far: TestEnv, ttl: &str) -> Self {
        let (tree, words) = Tree::words(&near, "tree");
        let options = ["--ttl", ttl, "--name", "x", "--"];
        let holder = near.start(near.run(options).args(words));
        let members = tree.await_grown(&near);
        let (overlap, words) = Overlap::words(&far, &members);
        let waiter = far.start(far.run(["-q"]).args(options).args(words));
        far.await_waiters("x", 1);
        Self { near, far, holder, members, waiter, overlap }
    }

    pub(crate) fn await_tree_gone(&self) {
        until_true("the end of the tree", || self.members.iter().all(|member| !is_alive(member.pid)));
    }

    /// Expects that the holder lost its lease, and that the others then granted the lock.
    #[track_caller]
    pub(crate) fn conclude(self) {
        self.holder.finish().lost_its_lease("x");
        // They elect a leader first. On a busy machine three servers may take long.
        let ended = self.waiter.finish_within(Duration::from_secs(90));
        assert_eq!(ended.code(), Some(0), "the others give the lock on: {}", ended.err);
        self.overlap.assert_none(&self.far);
        self.near.await_no_process();
    }
}
