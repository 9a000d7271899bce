//! Signals while the command runs, and while a suspended wait is withdrawn.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::support::scripts::Logger;
use crate::support::wait::{let_pass, until_true};
use crate::support::{Running, TestEnv, process};

/// dlock counts signals to stop within this time as one.
const A_MOMENT: Duration = Duration::from_millis(200);

/// Starts dlock with a logger that ends on the signals `ends`.
fn logged(env: &TestEnv, options: &[&str], ends: &[i32]) -> (Running, Logger) {
    let (logger, words) = Logger::words(env, "command", ends);
    let mut command = env.run(["--name", "x"]);
    let running = env.start(command.args(options).arg("--").args(words));
    logger.await_ready(env);
    (running, logger)
}

fn send(env: &TestEnv, pid: i32, signal: i32) {
    let sent = env.finish(&mut env.bash(&format!("kill -{signal} {pid}")));
    sent.silently(0);
}

#[test]
fn ending_signal_reaches_the_group_before_other_members() {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT] {
        let number = signal.as_raw();
        let env = TestEnv::new();
        let (main, main_words) = Logger::words(&env, "main", &[64]);
        let (member, member_words) = Logger::words(&env, "member", &[64]);
        let (away, away_words) = Logger::words(&env, "away", &[15]);
        let (member_words, away_words) = (member_words.join(" "), away_words.join(" "));
        let script = format!("{member_words} & setsid {away_words} & exec {}", main_words.join(" "));
        let running = env.start(&mut env.run(["--name", "x", "--grace", "1h", "--", "bash", "-c", &script]));
        let (main_pid, member_pid) = (main.await_ready(&env), member.await_ready(&env));
        away.await_ready(&env);
        running.signal(signal);
        for logger in [&main, &member] {
            logger.await_signal(&env, number);
            logger.await_signal(&env, Signal::CONT.as_raw());
            assert_eq!(logger.signals(&env), [number, Signal::CONT.as_raw()]);
        }
        // After the signal dlock keeps the lock until all processes are gone.
        env.assert_busy("x");
        assert_eq!(away.signals(&env), [0; 0], "a process outside the group gets it only at the end");
        send(&env, main_pid, 64);
        away.await_signal(&env, 15);
        let is_told = [Signal::TERM, Signal::HUP].contains(&signal);
        member.await_signal(&env, if is_told { 18 } else { 15 });
        let ending = member.signals(&env).iter().filter(|one| [1, 15].contains(*one)).count();
        assert_eq!(ending, 1, "one signal to end");
        send(&env, member_pid, 64);
        let ended = running.finish();
        assert_eq!((ended.code(), ended.err.as_str()), (Some(0), ""), "{:?}", ended.status);
        assert_eq!(env.command_processes(), []);
        env.assert_free("x");
    }
}

#[test]
fn command_killed_by_a_signal_lets_dlock_die_of_it() {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT, Signal::USR1] {
        let env = TestEnv::new();
        let holder = env.held(&["--name", "x"]);
        holder.running.signal(signal);
        let ended = holder.running.finish();
        assert_eq!((ended.signal(), ended.err.as_str()), (Some(signal.as_raw()), ""));
        env.assert_free("x");
    }
}

#[test]
fn the_grace_period_ends_by_kill() {
    let env = TestEnv::new();
    let (running, logger) = logged(&env, &["--grace", "8s"], &[]);
    let begun = Instant::now();
    running.signal(Signal::TERM);
    logger.await_signal(&env, 15);
    env.assert_busy("x");
    let ended = running.finish();
    assert_eq!(ended.signal(), Some(9), "{}", ended.err);
    assert!(begun.elapsed() >= Duration::from_secs(8), "{:?}", begun.elapsed());
    env.assert_free("x");
}

#[test]
fn a_second_signal_within_a_moment_is_the_same_one() {
    let env = TestEnv::new();
    let (mut running, logger) = logged(&env, &["--grace", "1h"], &[]);
    let begun = Instant::now();
    running.signal(Signal::TERM);
    logger.await_signal(&env, 15);
    running.signal(Signal::TERM);
    running.signal(Signal::INT);
    // When this signal arrives, dlock has handled all earlier ones.
    running.signal(Signal::USR1);
    until_true("a signal that was passed on, or the end", || {
        logger.count(&env, 10) > 0 || running.has_ended()
    });
    if running.has_ended() {
        // The machine stood still between the first signal and the others, so dlock took them for later ones.
        let since = begun.elapsed();
        assert!(since >= A_MOMENT, "ended by signals that were one, within {since:?}");
    } else {
        assert_eq!(logger.signals(&env), [15, 18, 10]);
        let_pass(A_MOMENT + Duration::from_millis(10));
        running.signal(Signal::TERM);
    }
    assert_eq!(running.finish().signal(), Some(9));
}

#[test]
fn every_other_signal_goes_to_the_command_alone_and_once() {
    let env = TestEnv::new();
    let (main, main_words) = Logger::words(&env, "main", &[64]);
    let (member, member_words) = Logger::words(&env, "member", &[64]);
    let script = format!("{} & exec {}", member_words.join(" "), main_words.join(" "));
    let running = env.start(&mut env.run(["--name", "x", "--", "bash", "-c", &script]));
    main.await_ready(&env);
    let member_pid = member.await_ready(&env);
    // HUP, INT, QUIT and TERM have their own tests; TSTP, TTIN and TTOU stop.
    let others =
        [4, 5, 6, 7, 8, 10, 11, 12, 13, 14, 16, 18, 23, 24, 25, 26, 27, 28, 29, 30, 31, 34, 35, 50, 63];
    for signal in others {
        send(&env, running.pid(), signal);
        main.await_signal(&env, signal);
    }
    assert_eq!((main.signals(&env), member.signals(&env)), (others.to_vec(), vec![]));
    send(&env, member_pid, 64);
    send(&env, running.pid(), 64);
    running.finish().silently(0);
}

#[test]
fn a_stopped_command_is_let_go_on_to_act_on_an_ending_signal() {
    let env = TestEnv::new();
    let holder = env.held(&["--name", "x"]);
    process::signal(holder.command(), Signal::STOP);
    until_true("a stopped dlock", || process::is_stopped(holder.running.pid()));
    holder.running.signal(Signal::TERM);
    holder.running.signal(Signal::CONT);
    assert_eq!(holder.running.finish().signal(), Some(15));
    env.assert_free("x");
}

#[test]
fn keeper_ignores_signals_to_the_whole_service() {
    let env = TestEnv::new();
    let (running, logger) = logged(&env, &["--grace", "1h"], &[15]);
    let keeper = running.keeper();
    for signal in [1, 2, 3, 10, 12, 13, 14, 15, 20, 21, 22, 34] {
        send(&env, keeper, signal);
    }
    assert!(process::is_alive(keeper));
    assert_eq!(logger.signals(&env), [0; 0]);
    env.assert_busy("x");
    running.signal(Signal::TERM);
    running.finish().silently(0);
    assert_eq!(logger.count(&env, 15), 1);
}

#[test]
fn max_run_sends_signal_option_and_kill_is_forwarded() {
    let usr1 = Signal::USR1.as_raw();
    let env = TestEnv::new();
    let (running, logger) = logged(&env, &["--signal", "usr1"], &[usr1]);
    env.finish(&mut env.verb("break", ["x", "--yes"])).silently(0);
    running.finish().failed(76, &["broken"]);
    assert_eq!(logger.signals(&env), [usr1]);
    let env = TestEnv::new();
    let (running, logger) = logged(&env, &["--signal", "USR1"], &[Signal::TERM.as_raw()]);
    running.signal(Signal::TERM);
    running.finish().silently(0);
    assert_eq!(logger.signals(&env), [Signal::TERM.as_raw()]);
}

#[test]
fn ending_signal_during_a_suspended_withdrawal_ends_the_wait() {
    let env = TestEnv::new();
    let holder = env.held(&["--name", "x"]);
    let waiter = env.start(&mut env.run(["--name", "x", "--", "touch", "started"]));
    env.await_waiters("x", 1);
    let keeper = waiter.keeper();
    let before = process::threads(keeper).len();
    let queue = std::fs::File::open(env.locks().join(".x.queue")).expect("a queue");
    rustix::fs::flock(&queue, rustix::fs::FlockOperation::LockExclusive).expect("its lock");
    waiter.signal(Signal::TSTP);
    until_true("the keeper to wait for the queue", || process::threads(keeper).len() > before);
    waiter.signal(Signal::TERM);
    drop(queue);
    let ended = waiter.finish();
    assert_eq!(ended.signal(), Some(15), "{:?} {}", ended.status, ended.err);
    assert_eq!(env.waiters("x"), 0);
    holder.release().silently(0);
    env.assert_free("x");
    assert!(!env.exists("started"));
    env.await_no_process();
}
