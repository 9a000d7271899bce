//! What each lock option does.

use std::time::Duration;

use rustix::process::Signal;

use crate::support::bed::release_all;
use crate::support::wait::{let_pass, until_true};
use crate::support::{Bed, process};

#[test]
fn slots_are_numbered_from_one_and_all_different() {
    let bed = Bed::new();
    let options = ["--name", "x", "--slots", "3"];
    let mut holders = vec![bed.held(&options), bed.held(&options), bed.held(&options)];
    let mut slots: Vec<u32> = holders.iter().map(crate::support::bed::Holder::slot).collect();
    slots.sort_unstable();
    assert_eq!(slots, [1, 2, 3]);
    bed.finish(&mut bed.run(["--name", "x", "--slots", "3", "-n", "--", "true"])).failed(75, &["x"]);
    // The slot that is given back is the one that the next gets.
    let freed = holders.remove(1);
    let slot = freed.slot();
    freed.release().silently(0);
    let next = bed.held(&options);
    assert_eq!(next.slot(), slot);
    holders.push(next);
    release_all(holders);
}

#[test]
fn shared_holds_go_together_and_exclude_an_exclusive_one() {
    let bed = Bed::new();
    let readers = [bed.held(&["--name", "x", "-s"]), bed.held(&["--name", "x", "--shared"])];
    assert_eq!(bed.holders("x"), 2);
    bed.finish(&mut bed.run(["--name", "x", "-n", "--", "true"])).failed(75, &["x"]);
    release_all(readers);
    let writer = bed.held(&["--name", "x", "-x"]);
    bed.finish(&mut bed.run(["--name", "x", "-s", "-n", "--", "true"])).failed(75, &["x"]);
    writer.release().silently(0);
}

#[test]
fn nobody_overtakes_shared_or_exclusive() {
    let bed = Bed::new();
    let holder = bed.held(&["--name", "x", "-s"]);
    let mut writer = bed.hold(&["--name", "x"]);
    bed.await_waiters("x", 1);
    // A reader behind a waiting writer waits, so that a writer is not starved.
    let mut reader = bed.hold(&["--name", "x", "-s"]);
    bed.await_waiters("x", 2);
    bed.finish(&mut bed.run(["--name", "x", "-s", "-n", "--", "true"])).failed(75, &["x"]);
    holder.release().silently(0);
    writer.await_start();
    assert!(!reader.has_started());
    let token = writer.token();
    assert_eq!(writer.release().code(), Some(0));
    reader.await_start();
    assert!(reader.token() > token);
    assert_eq!(reader.release().code(), Some(0));
}

#[test]
fn tokens_grow_from_hold_to_hold() {
    let bed = Bed::new();
    let mut last = 0;
    for mode in ["-x", "-s", "-x", "-s", "-s", "-x"] {
        let holder = bed.held(&["--name", "x", mode]);
        assert!(holder.token() > last, "{} after {last}", holder.token());
        last = holder.token();
        holder.release().silently(0);
    }
    // A killed holder's token is never given again.
    let holder = bed.held(&["--name", "x"]);
    let killed = holder.token();
    holder.running.signal(Signal::KILL);
    holder.running.finish();
    // It may have to wait for the end of the killed one's tree, and say so.
    let next = bed.held(&["-q", "--name", "x"]);
    assert!(next.token() > killed && killed > last);
    next.release().silently(0);
}

#[test]
fn hold_at_least_keeps_the_lock_after_the_command() {
    let bed = Bed::new();
    let ended =
        bed.finish(&mut bed.run(["--name", "x", "--hold-at-least", "600ms", "--", "sh", "-c", "exit 3"]));
    assert!(ended.took >= Duration::from_millis(600), "{:?}", ended.took);
    ended.silently(3);
    bed.assert_free("x");
}

#[test]
fn hold_at_least_is_cut_short_by_a_signal_and_the_status_stays() {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT] {
        let bed = Bed::new();
        let script = "echo up >ready; exit 3";
        let running =
            bed.start(&mut bed.run(["--name", "x", "--hold-at-least", "1h", "--", "sh", "-c", script]));
        bed.await_line("ready");
        let keeper = running.keeper();
        until_true("the end of the command", || process::children(keeper).is_empty());
        bed.assert_busy("x");
        running.signal(signal);
        running.finish().silently(3);
        bed.assert_free("x");
    }
}

#[test]
fn once_per_skips_after_a_success_only() {
    let bed = Bed::new();
    let once = |script: &str| {
        bed.finish(&mut bed.run(["--name", "x", "--once-per", "1h", "--", "sh", "-c", script]))
    };
    once("echo failed >>log; exit 3").silently(3);
    once("echo done >>log").silently(0);
    once("echo again >>log").silently(0);
    assert_eq!(bed.read("log"), "failed\ndone\n");
    // Another name, and a period that is over, run.
    bed.finish(&mut bed.run(["--name", "y", "--once-per", "1h", "--", "sh", "-c", "echo y >>log"]))
        .silently(0);
    let_pass(Duration::from_millis(20));
    bed.finish(&mut bed.run(["--name", "x", "--once-per", "10ms", "--", "sh", "-c", "echo x >>log"]))
        .silently(0);
    assert_eq!(bed.read("log"), "failed\ndone\ny\nx\n");
    let told = bed.finish(&mut bed.run(["-v", "--name", "x", "--once-per", "1h", "--", "touch", "started"]));
    assert!(told.code() == Some(0) && told.err.lines().count() >= 1, "{}", told.err);
    assert!(!bed.exists("started"));
    bed.assert_free("x");
}

#[test]
fn once_per_is_asked_again_under_the_lock() {
    let bed = Bed::new();
    let gate = bed.gate("gate");
    let words = |who: &str| {
        let script = format!("echo {who} >>log; echo up >ready; read _ <gate");
        bed.run(["--name", "x", "--once-per", "1h", "--", "sh", "-c", &script])
    };
    let first = bed.start(&mut words("first"));
    bed.await_line("ready");
    let second = bed.start(&mut words("second"));
    bed.await_waiters("x", 1);
    gate.open();
    first.finish().silently(0);
    let ended = second.finish();
    assert_eq!(ended.code(), Some(0), "{}", ended.err);
    assert_eq!(bed.read("log"), "first\n");
    bed.assert_free("x");
}

#[test]
fn a_command_string_is_the_shells() {
    let bed = Bed::new();
    let ended = bed.finish(&mut bed.run(["--name", "x", "-c", "echo a | tr a b; exit 4"]));
    assert_eq!(ended.silently(4).text(), "b\n");
    let ended = bed.finish(&mut bed.run(["--name", "x", "--command", "readlink /proc/$$/exe"])).silently(0);
    assert!(ended.text().contains("sh"), "{}", ended.text());
}

#[test]
fn waiting_is_announced_in_one_plain_line_without_a_terminal() {
    let bed = Bed::new();
    let holder = bed.held(&["--name", "x"]);
    let waiter = bed.start(&mut bed.run(["--name", "x", "--", "echo", "ran"]));
    let silent = bed.start(&mut bed.run(["-q", "--name", "x", "--", "true"]));
    bed.await_waiters("x", 2);
    until_true("a line about the wait", || waiter.err_so_far().ends_with('\n'));
    holder.release().silently(0);
    let ended = waiter.finish().said_one_line(&["waiting", "x"]);
    assert_eq!((ended.code(), ended.text().as_str()), (Some(0), "ran\n"));
    silent.finish().silently(0);
}

#[test]
fn durations_read_as_documented() {
    let bed = Bed::new();
    for wait in ["90500ms", "91.5s", "30s", "5m", "1h30m", "2d", "70", "0", "90.5", "5min", "1h 30m", "1w"] {
        bed.finish(&mut bed.run(["--name", "x", "--wait", wait, "--", "true"])).silently(0);
    }
}
