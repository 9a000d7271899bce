//! All processes stand still for longer than the TTL: locks that the kernel keeps survive that.

use std::time::Duration;

use rustix::process::Signal;

use crate::support::process::{is_alive, is_stopped};
use crate::support::test_env::{Holder, release_all};
use crate::support::wait::{let_pass, until_true};
use crate::support::{TestEnv, process, quiet};

const TTL: Duration = Duration::from_secs(2);

/// Returns the front, the keeper and the command.
fn members(holder: &Holder) -> [i32; 3] {
    [holder.running.pid(), holder.running.keeper(), holder.command()]
}

fn freeze(members: &[i32]) {
    for pid in members {
        process::signal(*pid, Signal::STOP);
    }
    until_true("a freeze", || members.iter().all(|pid| is_stopped(*pid)));
}

#[test]
fn freeze_of_any_length_and_thaw_order_ends_nothing() {
    let _alone = quiet::measuring();
    let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    let env = TestEnv::new();
    let holders: Vec<Holder> = (0..orders.len())
        .map(|n| env.held(&["--name", &format!("x{n}"), "--ttl", "2s", "--grace", "1h", "--max-run", "1h"]))
        .collect();
    let members: Vec<_> = holders.iter().map(members).collect();
    for _ in 0..3 {
        freeze(&members.concat());
        let_pass(TTL + TTL / 5);
        for (members, order) in members.iter().zip(orders) {
            for index in order {
                process::signal(members[index], Signal::CONT);
                let_pass(Duration::from_millis(20));
            }
        }
        let_pass(TTL / 4);
        for (n, members) in members.iter().enumerate() {
            assert!(members.iter().all(|pid| is_alive(*pid)), "{:?} was ended", orders[n]);
        }
    }
    release_all(holders);
    env.await_no_process();
}

#[test]
fn a_run_nested_in_a_frozen_one_goes_on_with_it() {
    let _alone = quiet::measuring();
    let env = TestEnv::new();
    let script =
        r#"exec "$dlock" run --endpoint "$locks" --name x --ttl 2s -- sh -c 'echo $$ >inner; read _ <gate'"#;
    let gate = env.gate("gate");
    let outer = env.start(&mut env.run(["--name", "x", "--ttl", "2s", "--", "sh", "-c", script]));
    env.await_line("inner");
    let all: Vec<i32> = env.processes().into_iter().map(|p| p.pid).collect();
    assert_eq!(all.len(), 5, "{:?}", env.processes());
    freeze(&all);
    let_pass(TTL + TTL / 5);
    for pid in &all {
        process::signal(*pid, Signal::CONT);
    }
    let_pass(TTL / 4 + TTL / 8);
    gate.open();
    outer.finish().silently(0);
    env.assert_free("x");
}

#[test]
fn stopped_keeper_of_a_kernel_lock_ends_nothing() {
    let _alone = quiet::measuring();
    let env = TestEnv::new();
    let holder = env.held(&["--name", "x", "--ttl", "1s", "--grace", "0"]);
    let [_, keeper, command] = members(&holder);
    process::await_started(keeper);
    freeze(&[keeper]);
    let_pass(TTL);
    assert!(is_alive(command));
    env.assert_busy("x");
    process::signal(keeper, Signal::CONT);
    holder.release().silently(0);
    env.assert_free("x");
    env.await_no_process();
}
