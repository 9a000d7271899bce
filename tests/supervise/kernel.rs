//! Front and keeper fail together. Only the kernel protects then: it keeps a lock file locked for as long as the tree
//! has it open.

use std::time::Duration;

use rustix::process::Signal;

use crate::support::process::{is_alive, is_stopped};
use crate::support::scene::Scene;
use crate::support::wait::{let_pass, until, until_true};
use crate::support::{TestEnv, process};

#[test]
fn front_and_keeper_killed_together_leave_the_tree_the_lock() {
    let mut scene = Scene::new(&[]);
    let keeper = scene.running.keeper();
    if !process::kill_at_once(&[keeper, scene.running.pid()]) {
        return;
    }
    until_true("dead processes", || !is_alive(scene.running.pid()) && !is_alive(keeper));
    let survivors = until("the command's death with its keeper", || {
        let survivors = scene.tree.members();
        (survivors.len() < scene.members.len()).then_some(survivors)
    });
    assert!(!survivors.is_empty());
    scene.env.assert_busy("x");
    assert!(!scene.waiter.has_ended());
    for _ in 0..3 {
        for survivor in scene.tree.members() {
            process::signal(survivor.pid, Signal::KILL);
        }
    }
    scene.await_tree_gone();
    scene.conclude();
}

#[test]
fn wait_elapsed_during_a_freeze_times_out_and_leaves_nothing() {
    let env = TestEnv::new();
    let holder = env.held(&["--name", "x"]);
    let waiter = env.start(&mut env.run(["-q", "-w", "3s", "--name", "x", "--", "touch", "started"]));
    env.await_waiters("x", 1);
    let keeper = waiter.keeper();
    for pid in [waiter.pid(), keeper] {
        process::signal(pid, Signal::STOP);
        until_true("a stopped process", || is_stopped(pid));
    }
    // Longer than the keeper may take to give up.
    let_pass(Duration::from_millis(4_200));
    for pid in [waiter.pid(), keeper] {
        process::signal(pid, Signal::CONT);
    }
    // With -q dlock prints no line about a lock that is not free.
    waiter.finish().silently(75);
    assert_eq!(env.waiters("x"), 0);
    holder.release().silently(0);
    env.assert_free("x");
    assert!(!env.exists("started"));
}
