//! A holder whose command is a whole process tree, and a waiter that checks whether the tree is alive.

use std::time::Instant;

use super::process::{self, Process};
use super::running::{Finished, Running};
use super::scripts::{Overlap, Tree};
use super::test_env::TestEnv;
use super::wait::until_true;
use super::way::Way;

/// A dlock with a tree that is hard to kill, and a waiter that checks whether the tree is alive.
pub(crate) struct Scene {
    pub(crate) env: TestEnv,
    pub(crate) running: Running,
    pub(crate) tree: Tree,
    pub(crate) members: Vec<Process>,
    pub(crate) waiter: Running,
    overlap: Overlap,
}

impl Scene {
    /// Starts `dlock run` with these options, and a waiter.
    pub(crate) fn new(options: &[&str]) -> Self {
        Self::of(TestEnv::new(), Way::Run, options, &[])
    }

    /// Starts a holder with the options `own`, and a waiter with the options `others`.
    pub(crate) fn of(env: TestEnv, way: Way, own: &[&str], others: &[&str]) -> Self {
        let (tree, words) = Tree::words(&env, "tree");
        let own = [&["--name", "x"], own].concat();
        let running = env.start(&mut way.command(&env, &own, &words));
        let members = tree.await_grown(&env);
        let (overlap, words) = Overlap::words(&env, &members);
        let waiter = env.start(env.run(["--name", "x"]).args(others).arg("--").args(words));
        env.await_waiters("x", 1);
        Self { env, running, tree, members, waiter, overlap }
    }

    /// Returns whether a member of the tree is alive.
    pub(crate) fn is_alive(&self) -> bool {
        self.members.iter().any(|member| process::is_alive(member.pid))
    }

    /// Waits until all members of the tree have ended. Returns the time when that was seen.
    pub(crate) fn await_tree_gone(&self) -> Instant {
        until_true("the end of the tree", || !self.is_alive());
        let seen = Instant::now();
        assert_eq!(self.tree.members(), [], "a process was forked meanwhile");
        seen
    }

    /// Expects that the waiter ran and saw no member of the tree, and that no process is left. Returns the end of the
    /// holder.
    #[track_caller]
    pub(crate) fn conclude(self) -> Finished {
        let waited = self.waiter.finish();
        assert_eq!(waited.code(), Some(0), "{}", waited.err);
        self.overlap.assert_none(&self.env);
        let ended = self.running.finish();
        self.env.assert_free("x");
        self.env.await_no_process();
        ended
    }
}
