//! The process that is started as `acquire`, until it has printed the claim.

use std::process::Stdio;

use rustix::process::Signal;

use crate::support::process::is_alive;
use crate::support::unread::{Kind, Unread};
use crate::support::wait::until_true;
use crate::support::{Running, TestEnv};

/// Starts `acquire` for `caller`. Nothing reads the output of `acquire`.
fn acquiring(env: &TestEnv, caller: &Running, unread: &Unread) -> Running {
    let mut command = env.verb("acquire", ["--name", "x", "--for-pid", &caller.pid().to_string()]);
    command.stdout(unread.writer()).stderr(Stdio::null());
    Running::start(&mut command, env.write("out", ""), env.write("err", ""))
}

#[test]
fn waiting_acquire_with_unread_output_can_be_ended() {
    let env = TestEnv::new();
    let holder = env.held(&["--name", "x", "-q"]);
    let sleeper = env.start(env.command("sleep").arg("1000"));
    let unread = Unread::full(Kind::Pipe);
    let acquiring = acquiring(&env, &sleeper, &unread);
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
        let acquiring = acquiring(&env, &sleeper, &unread);
        until_true("a hold", || env.holders("x") == 1);
        acquiring.signal(signal);
        assert_eq!(acquiring.finish().signal(), Some(signal.as_raw()));
        until_true("a free lock", || env.holders("x") == 0);
        assert!(is_alive(sleeper.pid()), "no caller has a lock to lose");
    }
    sleeper.signal(Signal::KILL);
    env.await_no_process();
}
