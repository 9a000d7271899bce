//! Killing and stopping dlock's own processes: no orphan stays, and no other command starts before the tree is gone.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::support::process::{Process, is_alive, is_stopped};
use crate::support::scripts::{Overlap, Tree};
use crate::support::wait::{let_pass, until_true};
use crate::support::{Finished, Running, TestEnv, process, quiet, within};

/// A dlock with a tree that is hard to kill, and a waiter that checks whether the tree is alive.
pub(crate) struct Scene {
    pub(crate) env: TestEnv,
    pub(crate) running: Running,
    pub(crate) keeper: i32,
    pub(crate) tree: Tree,
    pub(crate) members: Vec<Process>,
    pub(crate) waiter: Running,
    overlap: Overlap,
}

impl Scene {
    pub(crate) fn new(options: &[&str]) -> Self {
        let env = TestEnv::new();
        let (tree, words) = Tree::words(&env, "tree");
        let mut command = env.run(["--name", "x"]);
        let running = env.start(command.args(options).arg("--").args(words));
        let members = tree.await_grown(&env);
        let (overlap, words) = Overlap::words(&env, &members);
        let waiter = env.start(env.run(["--name", "x", "--"]).args(words));
        env.await_waiters("x", 1);
        let keeper = running.keeper();
        Self { env, running, keeper, tree, members, waiter, overlap }
    }

    /// Waits until all members of the tree have ended. Returns the time when that was seen.
    pub(crate) fn await_tree_gone(&self) -> Instant {
        until_true("the end of the tree", || self.members.iter().all(|p| !is_alive(p.pid)));
        let seen = Instant::now();
        assert_eq!(self.tree.members(), [], "a process was forked meanwhile");
        seen
    }

    /// Expects that the waiter ran and saw no member of the tree, and that no process is left.
    pub(crate) fn conclude(self) -> Finished {
        let waited = self.waiter.finish();
        assert_eq!(waited.code(), Some(0), "{}", waited.err);
        self.overlap.assert_none(&self.env);
        self.env.assert_free("x");
        let ended = self.running.finish();
        self.env.await_no_process();
        ended
    }
}

/// Far shorter than a lease of the usual length.
const AT_ONCE: Duration = Duration::from_millis(200);

#[test]
fn a_killed_front_takes_the_whole_tree_with_it_at_once() {
    let _alone = quiet::measuring();
    let scene = Scene::new(&[]);
    let begun = Instant::now();
    scene.running.signal(Signal::KILL);
    let took = scene.await_tree_gone() - begun;
    within(took, AT_ONCE);
    assert_eq!(scene.conclude().signal(), Some(9));
}

#[test]
fn a_killed_keeper_takes_the_whole_tree_with_it_at_once() {
    let _alone = quiet::measuring();
    let scene = Scene::new(&[]);
    let begun = Instant::now();
    process::signal(scene.keeper, Signal::KILL);
    let took = scene.await_tree_gone() - begun;
    within(took, AT_ONCE);
    scene.conclude().failed(76, &["the command was stopped"]);
}

#[test]
fn a_stopped_front_ends_nothing() {
    let env = TestEnv::new();
    let holder = env.held(&["--name", "x", "--ttl", "3s", "--grace", "0"]);
    holder.running.signal(Signal::STOP);
    until_true("a stopped front", || is_stopped(holder.running.pid()));
    // Longer than the lease would last without its keeper.
    let_pass(Duration::from_millis(3_300));
    assert!(is_alive(holder.command()));
    env.assert_busy("x");
    holder.running.signal(Signal::CONT);
    holder.release().silently(0);
    env.assert_free("x");
}

#[test]
fn rest_of_an_externally_killed_command_is_ended_first() {
    let env = TestEnv::new();
    let (tree, words) = Tree::words(&env, "tree");
    let running = env.start(env.run(["--name", "x", "--grace", "100ms", "--"]).args(words));
    let members = tree.await_grown(&env);
    let (overlap, words) = Overlap::words(&env, &members);
    let waiter = env.start(env.run(["--name", "x", "--"]).args(words));
    env.await_waiters("x", 1);
    let command = process::children(running.keeper()).first().expect("a command").pid;
    process::signal(command, Signal::KILL);
    let ended = running.finish();
    assert_eq!((ended.signal(), ended.err.as_str()), (Some(9), ""));
    assert_eq!(waiter.finish().code(), Some(0));
    overlap.assert_none(&env);
    env.assert_free("x");
    env.await_no_process();
}

#[test]
fn broken_run_exits_76_even_if_keeper_dies_while_stopping() {
    let env = TestEnv::new();
    let script = "(trap '' TERM; echo up >deaf; exec sleep 1000) & until [ -s deaf ]; do sleep 0.01; done; \
                  echo $$ >pid; wait";
    let running = env.start(&mut env.run(["--name", "x", "--grace", "1h", "--", "sh", "-c", script]));
    let command = env.await_line("pid").parse().expect("a pid");
    let keeper = running.keeper();
    let breaking = env.start(&mut env.verb("break", ["x", "--all", "--yes"]));
    until_true("a reaped command", || process::look(command).is_none());
    process::signal(keeper, Signal::KILL);
    running.finish().failed(76, &["the command was stopped"]);
    breaking.finish();
    env.await_no_process();
    env.assert_free("x");
}

#[test]
fn constantly_forking_tree_is_ended_completely() {
    let env = TestEnv::new();
    let script = r"
        breed() { while :; do (sleep 0.02 & sleep 0.01); done; }
        breed & breed & (setsid sh -c 'while :; do (sleep 0.02 &) ; sleep 0.01; done' &)
        echo up >ready; wait";
    for victim in ["front", "keeper"] {
        let running = env.start(&mut env.run(["--name", "x", "--", "bash", "-c", script]));
        env.await_line("ready");
        std::fs::remove_file(env.path("ready")).expect("a ready file");
        let pid = if victim == "front" { running.pid() } else { running.keeper() };
        process::signal(pid, Signal::KILL);
        running.finish();
        env.await_no_process();
        env.assert_free("x");
    }
}

#[test]
fn hanging_start_is_ended_before_the_lease_expires() {
    // The keeper waits for the exec of the command. The front guards meanwhile, although the keeper has not reported
    // the start. strace delays the exec for longer than the lease.
    let env = TestEnv::new();
    let script = r#"exec strace -f -qq -o trace -e trace=execve -e inject=execve:delay_enter=5000000:when=1 \
        "$dlock" run --endpoint "$locks" --name x --ttl 1s -- /usr/bin/touch started"#;
    let finished = env.finish(&mut env.bash(script));
    if finished.err.contains("ptrace") || finished.err.contains("PTRACE") {
        return eprintln!("skipped: strace may not trace here: {}", finished.err.trim());
    }
    assert_eq!(finished.code(), Some(76), "{}", finished.err);
    assert!(!env.exists("started"), "the command started after its lease had run out");
    env.assert_free("x");
}
