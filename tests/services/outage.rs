//! A waiter that cannot reach its service for most of its lease.

use std::time::{Duration, Instant};

use super::forgotten::Ways;
use crate::servers::proxy::Conduct;
use crate::site;
use crate::support::TestEnv;
use crate::support::wait::{let_pass, until_true};

/// It renews its lease first, and only then reports that it holds the lock.
#[test]
fn waiter_granted_after_an_outage_keeps_its_turn() {
    let ttl = site::kind().ttl(Duration::from_secs(20));
    let ways = Ways::new();
    let set = |conduct| ways.each.iter().for_each(|way| way.set(conduct));
    let direct = &ways.past;
    let holder = direct.held(&["--name", "x"]);
    let length = format!("{}s", ttl.as_secs());
    let waiting = |env: &TestEnv, number: &str| {
        let mut command = env.run(["-v", "--name", "x", "--ttl", &length, "--", "sh", "-c"]);
        env.start(command.arg("echo $1 >>$0").arg(direct.path("order")).arg(number))
    };
    let first = waiting(&ways.over, "1");
    direct.await_waiters("x", 1);
    until_true("a waiter with an answer", || first.err_so_far().contains("waiting for x"));
    set(Conduct::Hole);
    let cut = Instant::now();
    let second = waiting(direct, "2");
    direct.await_waiters("x", 2);
    assert_eq!(holder.release().code(), Some(0));
    // So much of the lease has passed that a command may start only after a renewal. The lock still goes to the first
    // waiter.
    let_pass((ttl * 13 / 20).saturating_sub(cut.elapsed()));
    assert!(!direct.exists("order"), "the second waiter has overtaken");
    set(Conduct::Pass);
    let mut said = String::new();
    for (running, number) in [(first, 1), (second, 2)] {
        let ended = running.finish();
        said += &ended.err;
        assert_eq!(ended.code(), Some(0), "{number}: {}", ended.err);
        assert_eq!(ended.err.matches("acquired").count(), 1, "{number}: {}", ended.err);
    }
    assert_eq!(direct.read("order"), "1\n2\n", "{said}");
}
