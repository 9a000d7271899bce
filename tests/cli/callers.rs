//! The process that is started as `acquire`, until it has printed the claim.

use std::process::Stdio;

use rustix::process::Signal;

use crate::support::process::{self, is_alive, is_stopped};
use crate::support::unread::{Kind, Unread};
use crate::support::wait::until_true;
use crate::support::{Running, TestEnv};

#[test]
fn wait_resumed_while_leaving_joins_the_queue_again() {
    let env = TestEnv::new();
    let holder = env.held(&["--name", "x"]);
    let sleeper = env.start(env.command("sleep").arg("1000"));
    let words = ["-q", "--name", "x", "--for-pid", &sleeper.pid().to_string()];
    let waiter = env.start(&mut env.verb("acquire", words));
    env.await_waiters("x", 1);
    let front = process::children(waiter.pid())[0].pid;
    let keeper = process::keeper_of(front).expect("a keeper");
    process::signal(keeper, Signal::STOP);
    until_true("a stopped keeper", || is_stopped(keeper));
    waiter.signal(Signal::TSTP);
    process::await_taken(waiter.pid());
    process::await_taken(front);
    waiter.signal(Signal::CONT);
    process::signal(keeper, Signal::CONT);
    until_true("another keeper", || process::keeper_of(front).is_some_and(|next| next != keeper));
    holder.release().silently(0);
    assert_eq!(waiter.finish().code(), Some(0));
    sleeper.signal(Signal::KILL);
    env.await_no_process();
    env.assert_free("x");
}

/// Nothing reads the output of `acquire`. A signal still ends the wait at once.
#[test]
fn waiting_acquire_with_unread_output_can_be_ended() {
    let env = TestEnv::new();
    let holder = env.held(&["--name", "x", "-q"]);
    let unread = Unread::full(Kind::Pipe);
    let sleeper = env.start(env.command("sleep").arg("1000"));
    let mut command = env.verb("acquire", ["--name", "x", "--for-pid", &sleeper.pid().to_string()]);
    command.stdout(unread.writer()).stderr(Stdio::null());
    let acquiring = Running::start(&mut command, env.write("out", ""), env.write("err", ""));
    env.await_waiters("x", 1);
    acquiring.signal(Signal::TERM);
    assert_eq!(acquiring.finish().signal(), Some(Signal::TERM.as_raw()));
    assert_eq!(holder.release().code(), Some(0));
    env.assert_free("x");
    sleeper.signal(Signal::KILL);
}

#[test]
fn acquire_with_an_unread_claim_can_be_ended() {
    let env = TestEnv::new();
    let sleeper = env.start(env.command("sleep").arg("1000"));
    for signal in [Signal::TERM, Signal::QUIT] {
        let unread = Unread::full(Kind::Pipe);
        let words = ["--name", "x", "--for-pid", &sleeper.pid().to_string()];
        let mut command = env.verb("acquire", words);
        command.stdout(unread.writer()).stderr(Stdio::null());
        let acquiring = Running::start(&mut command, env.write("out", ""), env.write("err", ""));
        until_true("a hold", || env.holders("x") == 1);
        acquiring.signal(signal);
        assert_eq!(acquiring.finish().signal(), Some(signal.as_raw()));
        until_true("a free lock", || env.holders("x") == 0);
        assert!(is_alive(sleeper.pid()), "no caller has a lock to lose");
    }
    sleeper.signal(Signal::KILL);
    env.await_no_process();
}
