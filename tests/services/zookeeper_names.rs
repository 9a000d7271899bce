//! Slots of several names. A claim counts in each queue that admits it, while it waits in others.

use rustix::process::Signal;

use super::zookeeper_kinds::envs;
use crate::servers::zookeeper::{self, Raw};
use crate::support::TestEnv;
use crate::support::running::CROWD;
use crate::support::test_env::release_all;
use crate::support::wait::{until, until_true};

const X: [&str; 5] = ["-q", "--slots", "2", "--name", "x"];
const Y: [&str; 5] = ["-q", "--slots", "2", "--name", "y"];
const BOTH: [&str; 7] = ["-q", "--slots", "2", "--name", "x", "--name", "y"];

/// The number of claims that start at once.
const CLAIMS: usize = 36;

#[test]
fn leaving_waiter_releases_slots_already_granted() {
    for env in envs("gone") {
        let holders = [env.held(&X), env.held(&X)];
        let beside = env.held(&Y);
        for how in ["ended", "killed", "broken", "superseded"] {
            let supersede: &[&str] = if how == "superseded" { &["--supersede"] } else { &[] };
            let waiter = env.hold(&[&BOTH, supersede].concat());
            env.await_waiters("x", 1);
            let mut third = env.hold(&Y);
            env.await_waiters("y", 1);
            let claim = env.status("x")["waiters"][0]["claim"].as_str().expect("a claim").to_owned();
            let mut newer = None;
            match how {
                "ended" => waiter.running.signal(Signal::TERM),
                "killed" => crate::support::process::signal(waiter.running.keeper(), Signal::KILL),
                "broken" => {
                    let words = ["x", "--claim", &claim, "--yes", "--force"];
                    assert_eq!(env.finish(&mut env.verb("break", words)).code(), Some(0));
                }
                _ => newer = Some(env.hold(&[&X[..], &["--supersede"]].concat())),
            }
            third.await_start();
            third.release().silently(0);
            // A broken waiter has gone to the end of the queue.
            waiter.running.signal(Signal::TERM);
            assert_ne!(waiter.running.finish().code(), Some(0), "{how}");
            if let Some(newer) = newer {
                newer.running.signal(Signal::TERM);
                assert_eq!(newer.running.finish().signal(), Some(Signal::TERM.as_raw()));
            }
            until_true("no run waits", || env.waiters("x") == 0 && env.holders("y") == 1);
        }
        release_all(holders);
        beside.release().silently(0);
        env.assert_free("y");
    }
}

#[test]
fn holders_requesting_a_name_of_a_later_waiter_proceed() {
    for env in envs("inside") {
        let gate = env.gate("gate");
        let script = r#"read _ <gate; "$dlock" run --endpoint "$locks" "$@" -- true"#;
        let mut holders = Vec::new();
        for n in 1..=2 {
            let mut command = env.run([&X[..], &["--", "bash", "-c", script, "bash"], &Y].concat());
            holders.push(env.start(&mut command));
            until_true("one more on x", || env.holders("x") == n);
        }
        let waiter = env.hold(&BOTH);
        env.await_waiters("x", 1);
        gate.open();
        gate.open();
        for holder in holders {
            holder.finish().silently(0);
        }
        waiter.release().silently(0);
    }
}

/// Expects that no name has more holders than slots, and that no two claims share a slot.
#[test]
fn a_crowd_on_names_in_any_order_comes_through() {
    let orders: [&[&str]; 6] = [&["x"], &["y", "x"], &["x", "y", "z"], &["z"], &["z", "y"], &["y"]];
    let script = r#"mkdir "$1.$DLOCK_SLOT" || echo "$*: twice" >>wrong
        for name; do
            mkdir "in.$name.$DLOCK_CLAIM"
            [ "$(ls -d in."$name".* | wc -l)" -le 2 ] || echo "$name: too many" >>wrong
        done
        for name; do rmdir "in.$name.$DLOCK_CLAIM"; done; rmdir "$1.$DLOCK_SLOT""#;
    for env in envs("crowd") {
        let all: Vec<_> = (0..CLAIMS)
            .map(|n| {
                let mut command = env.run(["-q", "--slots", "2", "--wait", "60s"]);
                let order = orders[n % orders.len()];
                command.args(order.iter().flat_map(|name| ["--name", name]));
                env.start(command.args(["--", "sh", "-c", script, "sh"]).args(order))
            })
            .collect();
        for one in all {
            let ended = one.finish_within(CROWD);
            assert_eq!(ended.code(), Some(0), "{}", ended.err);
        }
        assert_eq!(env.read("wrong"), "");
    }
}

/// Creates a foreign client's place in the queue of `name`. It stays until it is removed.
fn foreign_mutex(env: &TestEnv, raw: &mut Raw, test: &str, name: &str) -> String {
    let stem = format!("/{test}/raw/{name}/_c_foreign-lock-");
    until("a directory that is there", || {
        // The servers remove an unused one.
        env.finish(&mut env.run(["-q", "--slots", "2", "--name", name, "--", "true"])).silently(0);
        raw.create(&stem)
    })
}

#[test]
fn a_foreign_client_is_waited_for_where_it_stands_alone() {
    let [_, env] = envs("foreign");
    let mut raw = Raw::connect(zookeeper::shared_port(), 0);
    let mutex = foreign_mutex(&env, &mut raw, "foreign", "x");
    let mut waiter = env.hold(&BOTH);
    env.await_waiters("x", 1);
    until_true("a slot of y", || env.holders("y") == 1);
    let beside = env.held(&Y);
    assert!(!waiter.has_started(), "a foreign client is ahead");
    raw.delete(&mutex);
    waiter.await_start();
    release_all([waiter, beside]);
}
