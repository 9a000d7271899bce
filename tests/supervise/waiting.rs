//! Signals while dlock waits for the lock.

use rustix::process::Signal;

use crate::support::wait::until_true;
use crate::support::{TestEnv, process};

#[test]
fn ending_signal_leaves_the_queue_and_starts_no_command() {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT] {
        let env = TestEnv::new();
        let holder = env.held(&["--name", "x"]);
        let waiter = env.start(&mut env.run(["--name", "x", "--", "touch", "started"]));
        env.await_waiters("x", 1);
        waiter.signal(signal);
        let ended = waiter.finish();
        assert_eq!(ended.signal(), Some(signal.as_raw()), "{}", ended.err);
        assert_eq!(env.waiters("x"), 0);
        holder.release().silently(0);
        env.assert_free("x");
        assert!(!env.exists("started"), "the command ran after {signal:?}");
        env.await_no_process();
    }
}

#[test]
fn other_signals_neither_end_the_wait_nor_reach_a_command() {
    let env = TestEnv::new();
    let holder = env.held(&["--name", "x"]);
    let waiter = env.start(&mut env.run(["--name", "x", "--", "sh", "-c", "echo ran"]));
    env.await_waiters("x", 1);
    for signal in [Signal::USR1, Signal::USR2, Signal::ALARM, Signal::WINCH, Signal::PIPE, Signal::CONT] {
        waiter.signal(signal);
    }
    assert_eq!(env.waiters("x"), 1);
    holder.release().silently(0);
    let ended = waiter.finish();
    assert_eq!((ended.code(), ended.text().as_str()), (Some(0), "ran\n"), "{}", ended.err);
}

#[test]
fn killed_waiter_is_out_of_the_queue_at_once() {
    for keeper in [false, true] {
        let env = TestEnv::new();
        let holder = env.held(&["--name", "x"]);
        let waiter = env.start(&mut env.run(["--name", "x", "--", "touch", "started"]));
        env.await_waiters("x", 1);
        let pid = if keeper { waiter.keeper() } else { waiter.pid() };
        process::signal(pid, Signal::KILL);
        env.await_waiters("x", 0);
        let ended = waiter.finish();
        if keeper {
            assert_eq!(ended.text(), "");
            assert!(ended.code().is_some_and(|code| code != 0), "{:?}: {}", ended.status, ended.err);
            assert!(ended.err.lines().last().is_some_and(|l| l.starts_with("dlock: ")), "{}", ended.err);
        }
        holder.release().silently(0);
        env.assert_free("x");
        assert!(!env.exists("started"));
        env.await_no_process();
    }
}

#[test]
fn stopped_waiter_blocks_no_other() {
    // The front removes a keeper that is stopped for one ttl while it waits.
    let env = TestEnv::new();
    let holder = env.held(&["--name", "x"]);
    let words = ["-q", "--name", "x", "--ttl", "3s", "--", "touch", "ran"];
    let stopped = env.start(&mut env.run(words));
    env.await_waiters("x", 1);
    let later = env.start(&mut env.run(["-q", "--name", "x", "--", "true"]));
    env.await_waiters("x", 2);
    process::signal(stopped.keeper(), Signal::STOP);
    stopped.finish().failed(69, &["the lease-keeper was stopped"]);
    env.await_waiters("x", 1);
    holder.release().silently(0);
    later.finish().silently(0);
    assert!(!env.exists("ran"));
    env.assert_free("x");
}

/// The keeper passes the gate and guards alone until the front is continued.
#[test]
fn waiter_with_a_stopped_front_takes_its_turn() {
    let env = TestEnv::new();
    let holder = env.held(&["--name", "x"]);
    let script = "echo up >started; exec sleep 1000";
    let waiter = env.start(&mut env.run(["--name", "x", "--", "sh", "-c", script]));
    env.await_waiters("x", 1);
    waiter.signal(Signal::STOP);
    until_true("a stopped front", || process::is_stopped(waiter.pid()));
    holder.release().silently(0);
    env.await_line("started");
    waiter.signal(Signal::TERM);
    waiter.signal(Signal::CONT);
    let ended = waiter.finish();
    assert_eq!(ended.signal(), Some(15), "{:?} {}", ended.status, ended.err);
    env.assert_free("x");
    env.await_no_process();
}

#[test]
fn waiter_resumed_while_leaving_joins_the_queue_again() {
    let env = TestEnv::new();
    let holder = env.held(&["--name", "x"]);
    let waiter = env.start(&mut env.run(["--name", "x", "--", "true"]));
    env.await_waiters("x", 1);
    let keeper = waiter.keeper();
    process::signal(keeper, Signal::STOP);
    until_true("a stopped keeper", || process::is_stopped(keeper));
    waiter.signal(Signal::TSTP);
    process::await_taken(waiter.pid());
    waiter.signal(Signal::CONT);
    process::signal(keeper, Signal::CONT);
    until_true("another keeper", || process::keeper_of(waiter.pid()).is_some_and(|next| next != keeper));
    holder.release().silently(0);
    assert_eq!(waiter.finish().code(), Some(0));
    env.assert_free("x");
}
