//! Names that lie in different slots of a Redis cluster.

use std::sync::OnceLock;

use rustix::process::Signal;

use crate::redis_many::{cluster, env_at};
use crate::servers::{Server, redis};
use crate::support::TestEnv;
use crate::support::test_env::Holder;
use crate::support::wait::until_true;

/// One cluster for all tests here, which use names of their own.
fn nodes() -> &'static [Server] {
    static NODES: OnceLock<Vec<Server>> = OnceLock::new();
    NODES.get_or_init(cluster)
}

fn env() -> TestEnv {
    env_at(format!("redis+cluster://127.0.0.1:{}", nodes()[0].port()))
}

fn slot(name: &str) -> u16 {
    let said = redis::raw(nodes()[0].port(), &["CLUSTER", "KEYSLOT", &format!("dlock:{name}")]);
    said.trim_start_matches(':').trim_end().parse().expect("a slot")
}

/// Two names for this test, one on the first node and one on the last, in the order in which they are taken.
fn names(test: &str) -> (String, String) {
    let named = |wanted: fn(u16) -> bool| {
        (0..100_000).map(|n| format!("{test}{n}")).find(|name| wanted(slot(name))).expect("some number does")
    };
    (named(|slot| slot < 5461), named(|slot| slot > 10_922))
}

/// Lets its command end. It may have warned of the replicas that a cluster is taken to have.
fn done(holder: Holder) {
    assert_eq!(holder.release().code(), Some(0));
}

#[test]
fn they_are_taken_together_or_not_at_all() {
    let (env, (first, last)) = (env(), names("together"));
    let both = ["--name", &last, "--name", &first];
    let script = "printf '%s\n' \"$DLOCK_NAMES\" && printf '%s\n' \"$DLOCK_TOKENS\"";
    let ran = env.finish(&mut env.run([&both[..], &["-n", "--", "sh", "-c", script]].concat())).silently(0);
    let text = ran.text();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[..2], [last.as_str(), first.as_str()], "in the order given");
    assert!(lines[2..].iter().all(|token| token.parse::<u64>().is_ok()) && lines.len() == 4, "{text}");
    for taken in [&first, &last] {
        let holder = env.held(&["--name", taken]);
        env.finish(&mut env.run([&both[..], &["-n", "--", "true"]].concat())).failed(75, &["held by"]);
        assert_eq!((env.holders(&first) + env.holders(&last), env.waiters(taken)), (1, 0), "nothing is left");
        done(holder);
    }
    let holder = env.held(&both);
    for taken in [&first, &last] {
        env.assert_busy(taken);
        assert_eq!(env.status(taken)["holders"][0]["claim"], holder.claim());
    }
    done(holder);
    env.assert_free(&first);
    env.assert_free(&last);
}

#[test]
fn whoever_waits_for_the_last_keeps_the_first_and_gives_it_back() {
    let (env, (first, last)) = (env(), names("waits"));
    let both = ["--name", &last, "--name", &first, "-q"];
    let holder = env.held(&["--name", &last]);
    let waiter = env.hold(&both);
    env.await_waiters(&last, 1);
    assert_eq!(env.holders(&first), 1);
    // Told to stop, or out of time, it leaves both.
    waiter.running.signal(Signal::TERM);
    assert_eq!(waiter.running.finish().signal(), Some(Signal::TERM.as_raw()));
    env.assert_free(&first);
    assert_eq!(env.waiters(&last), 0);
    let late = env.finish(&mut env.run([&both[..4], &["--wait", "2s", "--", "true"]].concat()));
    assert_eq!(late.code(), Some(75), "{}", late.err);
    env.assert_free(&first);
    // Killed, its claim on both goes at once: the front takes it out.
    let waiter = env.hold(&both);
    env.await_waiters(&last, 1);
    crate::support::process::signal(waiter.running.keeper(), Signal::KILL);
    until_true("both lines without it", || env.holders(&first) == 0 && env.waiters(&last) == 0);
    assert_ne!(waiter.running.finish().code(), Some(0));
    // And one that stays gets both.
    let mut waiter = env.hold(&both);
    env.await_waiters(&last, 1);
    done(holder);
    waiter.await_start();
    assert_eq!((env.holders(&first), env.holders(&last)), (1, 1));
    done(waiter);
}

#[test]
fn what_is_held_is_given_back_though_a_node_does_not_answer() {
    let nodes = cluster();
    let env = env_at(format!("redis+cluster://127.0.0.1:{}", nodes[0].port()));
    let (first, last) = names("silent");
    nodes[2].freeze();
    let both = ["--name", &last, "--name", &first, "--ttl", "60s"];
    let given_up = env.finish(&mut env.run([&both[..], &["--wait", "2s", "--", "true"]].concat()));
    assert_eq!(given_up.code(), Some(69), "{}", given_up.err);
    env.assert_free(&first);
    nodes[2].thaw();
}

#[test]
fn a_right_that_is_missing_when_the_turn_has_come_ends_the_wait() {
    let nodes = cluster();
    let env = env_at(format!("redis+cluster://127.0.0.1:{}", nodes[0].port()));
    let (first, last) = names("denied");
    let holder = env.held(&["--name", &first]);
    let both = ["--name", &last, "--name", &first, "-v"];
    let waiter = env.hold(&both);
    until_true("a waiter", || waiter.running.err_so_far().contains("waiting for"));
    let denied = redis::raw(nodes[2].port(), &["ACL", "SETUSER", "default", "resetkeys", "~other"]);
    assert_eq!(denied, "+OK\r\n");
    done(holder);
    let said = format!("cannot join the queue of {last} (redis)");
    for ended in [waiter.running.finish(), env.finish(&mut env.run([&both[..], &["--", "true"]].concat()))] {
        assert_eq!(ended.code(), Some(77), "{}", ended.err);
        assert!(ended.err.contains(&said) && ended.err.contains("NOPERM"), "{}", ended.err);
        env.assert_free(&first);
    }
}

#[test]
fn opposite_orders_never_wait_for_each_other() {
    let (env, (first, last)) = (env(), names("opposite"));
    let script = r#"for i in 1 2 3 4 5; do run -q --wait 60s --name "$0" --name "$1" -- sh -c 'mkdir in && rmdir in' || exit; done"#;
    let running: Vec<_> = [(&first, &last), (&last, &first), (&first, &last), (&last, &first)]
        .map(|(one, other)| env.start(env.bash(script).args([one, other])))
        .into();
    for one in running {
        assert_eq!(one.finish().code(), Some(0));
    }
}

#[test]
fn a_loss_of_one_ends_the_command_and_frees_the_other() {
    let (env, (first, last)) = (env(), names("loss"));
    let holder = env.held(&["--name", &first, "--name", &last]);
    assert_eq!(redis::raw(nodes()[2].port(), &["DEL", &format!("dlock:{last}")]), ":1\r\n");
    holder.running.finish().failed(76, &["lost"]);
    env.assert_free(&first);
    env.assert_free(&last);
}

#[test]
fn breaking_one_ends_the_whole_claim() {
    let (env, (first, last)) = (env(), names("break"));
    for how in [&["--yes"][..], &["--yes", "--force"]] {
        let holder = env.held(&["--name", &first, "--name", &last]);
        let broken = env.finish(&mut env.verb("break", [&[last.as_str(), "--all"], how].concat()));
        assert_eq!(broken.code(), Some(0), "{}", broken.err);
        assert_eq!(holder.running.finish().code(), Some(76));
        env.assert_free(&first);
        env.assert_free(&last);
    }
}

#[test]
fn leases_of_all_are_renewed_while_waiting_and_while_holding() {
    let (env, (first, last)) = (env(), names("renewed"));
    let holder = env.held(&["--name", &last]);
    let mut waiter = env.hold(&["--name", &first, "--name", &last, "-q", "--ttl", "4s"]);
    env.await_waiters(&last, 1);
    // The server's own clock: a lease of four seconds that counts down and is long again was renewed.
    let life = |node: usize, name: &str| -> i64 {
        let said = redis::raw(nodes()[node].port(), &["PTTL", &format!("dlock:{name}")]);
        said.trim_start_matches(':').trim_end().parse().expect("a number")
    };
    let renewed = |node: usize, name: &str| {
        for _ in 0..2 {
            until_true("less than is left after a renewal", || life(node, name) < 3300);
            until_true("a renewal", || life(node, name) > 3600);
        }
    };
    renewed(0, &first);
    done(holder);
    waiter.await_start();
    renewed(2, &last);
    done(waiter);
}

#[test]
fn kinds_that_do_not_mix_are_told_when_the_turn_has_come() {
    let (env, (first, last)) = (env(), names("kinds"));
    let three = env.held(&["--name", &last, "--slots", "3"]);
    let both = ["--name", &first, "--name", &last];
    env.finish(&mut env.run([&both[..], &["--", "true"]].concat())).failed(64, &["a lock with 3 slots"]);
    let holder = env.held(&["--name", &first]);
    let waiter = env.hold(&[&both[..], &["-q"]].concat());
    env.await_waiters(&first, 1);
    done(holder);
    waiter.running.finish().failed(64, &["a lock with 3 slots"]);
    env.assert_free(&first);
    done(three);
}

#[test]
fn a_circle_that_is_closed_by_what_is_held_already_is_told() {
    let (env, (first, last)) = (env(), names("circle"));
    let gate = env.gate("gate");
    let holder = env.held(&["--name", &first]);
    let script =
        format!(r#"echo up >up; read _ <gate; "$dlock" run --endpoint "$locks" -q --name {first} -- true"#);
    let outer = env.start(&mut env.run(["--name", &last, "--", "bash", "-c", &script]));
    env.await_line("up");
    let both = env.start(&mut env.run(["-q", "--name", &first, "--name", &last, "--", "true"]));
    env.await_waiters(&first, 1);
    gate.open();
    env.await_waiters(&first, 2);
    // Now it gets the first, behind which the nested one waits, and would wait for the last, which that one is under.
    done(holder);
    let told = both.finish();
    assert_eq!(told.code(), Some(75), "{}", told.err);
    assert_eq!(outer.finish().code(), Some(0));
}
