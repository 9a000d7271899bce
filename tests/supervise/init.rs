//! dlock as process 1 of a container.

use std::process::Command;

use rustix::process::Signal;

use crate::support::wait::until;
use crate::support::{Bed, Running, process};

/// `dlock run` with these words as process 1 of a fresh PID namespace; `None`, said aloud, where that is not
/// permitted.
fn as_init(bed: &Bed, words: &[&str]) -> Option<Command> {
    const ALONE: [&str; 4] = ["--pid", "--fork", "--mount-proc", "--kill-child"];
    let probe = bed.finish(bed.command("unshare").args(ALONE).arg("true"));
    if !probe.status.success() {
        eprintln!("skipped: no PID namespace may be made here: {}", probe.err.trim());
        return None;
    }
    let mut command = bed.command("unshare");
    // A container's runtime gives process 1 a session.
    command.args(ALONE).args(["setsid", crate::support::bed::dlock(), "run", "--endpoint"]);
    command.arg(bed.locks()).args(words);
    Some(command)
}

/// Process 1 whose command is the shell `script`, which has made `ready`; as [`as_init`].
fn started(bed: &Bed, script: &str) -> Option<Running> {
    let running = bed.start(&mut as_init(bed, &["--name", "x", "--", "sh", "-c", script])?);
    bed.await_line("ready");
    Some(running)
}

/// The pid that process 1 of the namespace has out here.
fn outer_pid(unshare: &Running) -> i32 {
    until("process 1 of the namespace", || {
        process::children(unshare.pid()).into_iter().find(|p| p.name == "dlock").map(|p| p.pid)
    })
}

#[test]
fn the_status_is_the_commands() {
    let bed = Bed::new();
    for status in [0, 1, 42, 255] {
        let script = format!("exit {status}");
        let Some(mut command) = as_init(&bed, &["--name", "x", "--", "sh", "-c", &script]) else { return };
        bed.finish(&mut command).silently(status);
    }
    bed.assert_free("x");
}

#[test]
fn a_session_and_group_from_outside_the_namespace_are_no_obstacle() {
    // Both are 0 as seen from within.
    let bed = Bed::new();
    let Some(probe) = as_init(&bed, &["--name", "x", "--", "sh", "-c", "exit 5"]) else { return };
    let mut command = bed.command("unshare");
    let prefix = ["--default-signal", "setsid", "unshare"];
    command.args(probe.get_args().filter(|word| !prefix.iter().any(|p| word == p)));
    bed.finish(&mut command).silently(5);
}

#[test]
fn where_it_cannot_die_of_a_signal_it_exits_with_128_and_its_number() {
    let bed = Bed::new();
    for signal in [1, 2, 6, 9, 10, 11, 15, 34] {
        let script = format!("ulimit -c 0; kill -{signal} $$");
        let Some(mut command) = as_init(&bed, &["--name", "x", "--", "bash", "-c", &script]) else { return };
        bed.finish(&mut command).silently(128 + signal);
    }
    bed.assert_free("x");
}

#[test]
fn a_signal_from_outside_reaches_the_command() {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let bed = Bed::new();
        let Some(running) = started(&bed, "echo up >ready; exec sleep 1000") else { return };
        process::signal(outer_pid(&running), signal);
        running.finish().silently(128 + signal.as_raw());
        bed.assert_free("x");
        bed.await_no_process();
    }
}

#[test]
fn a_signal_while_waiting_leaves_the_line() {
    let bed = Bed::new();
    let holder = bed.held(&["--name", "x"]);
    let Some(mut command) = as_init(&bed, &["--name", "x", "--", "touch", "started"]) else { return };
    let running = bed.start(&mut command);
    bed.await_waiters("x", 1);
    process::signal(outer_pid(&running), Signal::TERM);
    assert_eq!(running.finish().code(), Some(143));
    assert_eq!(bed.waiters("x"), 0);
    holder.release().silently(0);
    bed.assert_free("x");
    assert!(!bed.exists("started"));
}

#[test]
fn orphans_are_reaped() {
    let bed = Bed::new();
    // The namespace's own process table has no zombie left although everybody was orphaned.
    let script = r#"
        for i in 1 2 3 4 5 6 7 8; do (setsid sh -c 'true &' &); done
        i=0
        # Not by the status of grep, for which a process that ends under its eyes is an error.
        while grep -l "^State:.Z" /proc/[0-9]*/status 2>/dev/null >zombies; [ -s zombies ] && [ $i -lt 2000 ]; do
            i=$((i + 1)); sleep 0.01
        done
        cat zombies"#;
    let Some(mut command) = as_init(&bed, &["--name", "x", "--", "bash", "-c", script]) else { return };
    let ended = bed.finish(&mut command).silently(0);
    assert_eq!(ended.text(), "");
}

#[test]
fn a_hold_inside_is_busy_and_seen_outside_and_the_other_way_round() {
    let bed = Bed::new();
    let gate = bed.gate("gate");
    let words = ["--name", "x", "--label", "within", "--", "sh", "-c", "echo up >ready; read _ <gate"];
    let Some(mut command) = as_init(&bed, &words) else { return };
    let running = bed.start(&mut command);
    bed.await_line("ready");
    bed.assert_busy("x");
    assert_eq!(bed.status("x")["holders"][0]["label"], "within");
    // A waiter out here gets it when the hold inside ends.
    let waiter = bed.start(&mut bed.run(["--name", "x", "--", "true"]));
    bed.await_waiters("x", 1);
    gate.open();
    running.finish().silently(0);
    assert_eq!(waiter.finish().code(), Some(0));
    // And the other way round.
    let holder = bed.held(&["--name", "x"]);
    let Some(mut command) = as_init(&bed, &["-n", "--name", "x", "--", "true"]) else { return };
    bed.finish(&mut command).failed(75, &["x"]);
    let Some(mut command) = as_init(&bed, &["--name", "x", "--", "true"]) else { return };
    let inside = bed.start(&mut command);
    bed.await_waiters("x", 1);
    holder.release().silently(0);
    assert_eq!(inside.finish().code(), Some(0));
    bed.assert_free("x");
}

#[test]
fn killed_from_outside_it_leaves_no_claim() {
    let bed = Bed::new();
    let Some(running) = started(&bed, "echo up >ready; exec sleep 1000") else { return };
    process::signal(outer_pid(&running), Signal::KILL);
    running.finish();
    bed.await_no_process();
    bed.assert_free("x");
}

#[test]
fn a_killed_keeper_takes_the_tree_with_it() {
    let bed = Bed::new();
    let Some(running) = started(&bed, "setsid sleep 1000 & echo up >ready; wait") else { return };
    let keeper = until("a keeper", || process::keeper_of(outer_pid(&running)));
    process::await_told(keeper);
    process::signal(keeper, Signal::KILL);
    running.finish().failed(76, &["the command was ended"]);
    bed.await_no_process();
    bed.assert_free("x");
}
