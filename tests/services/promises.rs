//! dlock's promises while a service is frozen, cut off and restarted.

use std::time::Duration;

use crate::causes::ports;
use crate::servers::free_port;
use crate::site;
use crate::support::test_env::Holder;
use crate::support::unread::{self, Unread};
use crate::support::wait::{let_pass, until_true};
use crate::support::{TestEnv, quiet, within};

/// Lets the command end. dlock may have reported that it doubted the service.
#[track_caller]
fn ends_well(holder: Holder) {
    let ended = holder.release();
    assert_eq!(ended.code(), Some(0), "{}", ended.err);
}

fn words_of(length: Duration) -> String {
    format!("{}ms", length.as_millis())
}

#[test]
fn unread_warning_delays_no_renewal() {
    const TTL: Duration = Duration::from_secs(12);
    let site = site::start();
    let env = TestEnv::on(site.part());
    let unread = Unread::full(unread::Kind::Pipe);
    let words =
        ["--name", "x", "--ttl", &words_of(TTL), "--", "sh", "-c", "echo up >up; read _ <gate; exit 5"];
    let gate = env.gate("gate");
    let holder = env.start_saying_to(&mut env.run(words), unread.writer());
    env.await_line("up");
    // A second run whose stderr is read, and whose renewals come just after.
    let witness = env.held(&["--name", "y", "--ttl", &words_of(TTL)]);
    site.freeze();
    until_true("doubt", || !witness.running.err_so_far().is_empty());
    site.thaw();
    // Past the expiry of the lease as it was before the freeze. Only renewals since then keep the command.
    let_pass(TTL);
    gate.open();
    assert_eq!(holder.finish().code(), Some(5));
    ends_well(witness);
}

#[test]
fn unusable_service_at_the_start_exits_69_within_the_wait() {
    let _alone = quiet::measuring();
    let env = TestEnv::new();
    let (_listener, silent) = ports::silent();
    let ports = [("down", free_port()), ("mute", silent), ("another protocol", ports::web())];
    let (mut runs, mut looks) = (Vec::new(), Vec::new());
    // All run in parallel, since they mostly wait.
    for (wait, most) in [("0", 500), ("1500ms", 1_500)] {
        for (_, port) in ports {
            let address = site::kind().at(&[port]).endpoint;
            let mut command = env.dlock(["run", "--endpoint", &address, "--wait", wait, "--ttl", "3s"]);
            command.args(["--name", "x", "--", "touch", "started"]);
            runs.push((port, Duration::from_millis(most), env.start(&mut command)));
        }
    }
    for (what, port) in ports {
        for verb in [&["status", "x"][..], &["list"], &["watch", "x"], &["doctor"]] {
            let mut command = env.dlock(&verb[..1]);
            command.args(["--endpoint", &site::kind().at(&[port]).endpoint]).args(&verb[1..]);
            looks.push((what, port, verb, env.start(&mut command)));
        }
    }
    for (port, most, run) in runs {
        let ended = run.finish();
        within(ended.took, most + Duration::from_secs(1));
        ended.failed(69, &[&port.to_string()]);
    }
    for (what, port, verb, look) in looks {
        let ended = look.finish();
        assert_eq!(ended.code(), Some(69), "{what} {verb:?}: {}", ended.err);
        assert!(ended.err.contains(&port.to_string()), "{what} {verb:?}: {}", ended.err);
        assert_eq!(ended.err.lines().count(), 1, "{what} {verb:?}: {}", ended.err);
    }
    assert!(!env.exists("started"));
    env.await_no_process();
}

#[test]
fn a_silent_service_is_named_once_while_dlock_goes_on_trying() {
    let (_listener, port) = ports::silent();
    let env = TestEnv::new();
    let address = site::kind().at(&[port]).endpoint;
    let words = ["run", "--endpoint", &address, "-w", "8s", "--name", "x", "--", "true"];
    let ended = env.finish(&mut env.dlock(words));
    assert_eq!(ended.code(), Some(69), "{}", ended.err);
    let told: Vec<_> = ended.err.lines().filter(|line| line.contains("has not answered yet")).collect();
    assert_eq!(told.len(), 1, "{}", ended.err);
    assert!(told[0].contains(&port.to_string()), "{}", ended.err);
    assert_eq!(ended.err.lines().count(), 2, "{}", ended.err);
}

#[test]
fn giving_up_on_a_silent_service_is_immediate_and_announced() {
    let _alone = quiet::measuring();
    let site = site::start();
    let env = TestEnv::on(site.part());
    let holder = env.held(&["--name", "x", "--ttl", "20s"]);
    let waiter =
        env.start(&mut env.run(["-w", "9s", "--ttl", "20s", "--name", "x", "--", "touch", "started"]));
    env.await_waiters("x", 1);
    // The service may show its entry before the waiter knows of it.
    until_true("a waiter", || waiter.err_so_far().contains("waiting for x"));
    site.freeze();
    let ended = waiter.finish();
    within(ended.took, Duration::from_secs(10));
    assert_eq!(ended.code(), Some(75), "{}", ended.err);
    assert!(ended.err.contains("cannot leave the queue for x"), "{}", ended.err);
    site.thaw();
    // Its lease may have expired meanwhile.
    holder.release();
    assert!(!env.exists("started"));
}

#[test]
fn unconfirmed_release_is_one_line_and_keeps_the_status() {
    let site = site::start();
    let env = TestEnv::on(site.part());
    let holder = env.held(&["--name", "x", "--ttl", "60s", "-q"]);
    site.freeze();
    holder.let_go();
    let ended = holder.running.finish();
    site.thaw();
    assert_eq!(ended.code(), Some(0), "{}", ended.err);
    ended.said_one_line(&["cannot release x", "within"]);
}
