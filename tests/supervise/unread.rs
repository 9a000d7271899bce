//! A standard error without a reader: dlock never waits for it.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::support::terminal::Terminal;
use crate::support::unread::{Kind, Unread};
use crate::support::wait::{let_pass, until};
use crate::support::{TestEnv, process, within};

/// Every stream that can be full, with every format of messages.
const KINDS: [(Kind, &str); 4] =
    [(Kind::Pipe, "human"), (Kind::Pipe, "json"), (Kind::Socket, "human"), (Kind::Socket, "json")];

#[test]
fn ctrl_s_on_a_waiters_terminal_delays_no_command() {
    let env = TestEnv::new();
    let holder = env.held(&["--name", "x"]);
    let mut terminal = Terminal::bash(&env);
    terminal.type_line("run --name x -- sh -c 'echo up >started; read _ <gate'");
    let gate = env.gate("gate");
    terminal.expect("next in queue");
    terminal.press("\x13");
    // dlock draws the line once a second.
    let_pass(Duration::from_millis(1_500));
    let next = env.start(&mut env.run(["-q", "--name", "x", "--", "touch", "next"]));
    env.await_waiters("x", 2);
    holder.release().silently(0);
    env.await_line("started");
    gate.open();
    next.finish().silently(0);
    assert!(env.exists("next"));
    terminal.press("\x11");
    terminal.await_status(0);
}

#[test]
fn wait_with_unread_output_ends_in_time() {
    for (kind, format) in KINDS {
        let env = TestEnv::new();
        let holder = env.held(&["--name", "x"]);
        let unread = Unread::full(kind);
        let words = ["--log-format", format, "-w", "4s", "--name", "x", "--", "touch", "started"];
        let ended = env.start_saying_to(&mut env.run(words), unread.writer()).finish();
        assert_eq!(ended.code(), Some(75), "{kind:?} {format}");
        assert!(ended.took >= Duration::from_secs(4), "{kind:?} {format}: {:?}", ended.took);
        within(ended.took, Duration::from_secs(5));
        assert!(!env.exists("started"));
        holder.release().silently(0);
    }
}

#[test]
fn dlock_with_unread_output_ends_with_the_commands_status() {
    for (kind, format) in KINDS {
        let env = TestEnv::new();
        let unread = Unread::full(kind);
        for (options, script, code) in [("-v", "exit 7", 7), ("--max-run=200ms", "sleep 1000", 124)] {
            let words = [options, "--log-format", format, "--name", "x", "--", "sh", "-c", script];
            let ended = env.start_saying_to(&mut env.run(words), unread.writer()).finish();
            assert_eq!(ended.code(), Some(code), "{kind:?} {format}");
            within(ended.took, Duration::from_millis(800));
        }
        env.assert_free("x");
        env.await_no_process();
    }
}

#[test]
fn a_usage_error_is_not_waited_for() {
    let env = TestEnv::new();
    let unread = Unread::full(Kind::Pipe);
    let ended = env.start_saying_to(&mut env.run(["--nonsense"]), unread.writer()).finish();
    assert_eq!(ended.code(), Some(64));
}

#[test]
fn front_with_unread_output_ends() {
    let env = TestEnv::new();
    let unread = Unread::full(Kind::Pipe);
    let words = ["-q", "--name", "x", "--", "sh", "-c", "echo up >up; exec sleep 1000"];
    let running = env.start_saying_to(&mut env.run(words), unread.writer());
    env.await_line("up");
    process::signal(running.keeper(), Signal::KILL);
    assert_eq!(running.finish().code(), Some(76));
    env.assert_free("x");
}

#[test]
fn stopped_waiter_with_unread_output_leaves_the_queue() {
    let env = TestEnv::new();
    let holder = env.held(&["--name", "x"]);
    let unread = Unread::full(Kind::Pipe);
    let words = ["--name", "x", "--ttl", "3s", "--", "sh", "-c", "exit 5"];
    let waiter = env.start_saying_to(&mut env.run(words), unread.writer());
    env.await_waiters("x", 1);
    process::signal(waiter.keeper(), Signal::STOP);
    assert_eq!(waiter.finish().code(), Some(69));
    env.assert_busy("x");
    holder.release().silently(0);
    env.assert_free("x");
}

#[test]
fn a_slow_reader_gets_every_line_in_order() {
    for (kind, format) in KINDS {
        let env = TestEnv::new();
        let holder = env.held(&["--name", "x"]);
        let unread = Unread::full(kind);
        let words =
            ["-v", "--log-format", format, "--hold-at-least", "1s", "--max-run", "200ms", "--name", "x"];
        let mut command = env.run(words);
        command.args(["--", "sh", "-c", "echo up >up; exec sleep 1000"]);
        let running = env.start_saying_to(&mut command, unread.writer());
        drop(command);
        env.await_waiters("x", 1);
        holder.release().silently(0);
        env.await_line("up");
        let said = unread.rest(1 << 15, || let_pass(Duration::from_millis(20)));
        assert_eq!(running.finish().code(), Some(124), "{said}");
        let lines: Vec<&str> = said.lines().collect();
        let wanted = ["waiting for x", "acquired x", "started the command", "--max-run"];
        assert!(lines.len() == wanted.len() && said.ends_with('\n'), "{kind:?} {format}: {said}");
        for (line, wanted) in lines.iter().zip(wanted) {
            assert!(line.contains(wanted) && line.starts_with('{') == (format == "json"), "{line}");
        }
    }
}

#[test]
fn unread_report_stream_delays_dlock_two_seconds_at_most() {
    for stream in ["/dev/stdout", "/dev/stderr", "/dev/fd/1", "/dev/fd/2"] {
        let env = TestEnv::new();
        let unread = Unread::full(Kind::Pipe);
        let begun = Instant::now();
        let words = ["--report", stream, "--name", "x", "--", "sh", "-c", "echo up >up; exit 7"];
        let mut command = env.run(words);
        command.stdout(unread.writer()).stderr(unread.writer());
        let mut child = command.spawn().expect("a program that starts");
        env.await_line("up");
        // The command has not ended yet. The lock is free long before dlock gives up its report.
        env.finish(&mut env.run(["-q", "--wait", "1s", "--name", "x", "--", "true"])).silently(0);
        let status = until("the end of dlock", || child.try_wait().expect("a child to wait for"));
        assert_eq!(status.code(), Some(7), "{stream}");
        within(begun.elapsed(), Duration::from_secs(3));
    }
}

#[test]
fn report_to_standard_error_follows_the_messages() {
    let env = TestEnv::new();
    let words = ["--report", "/dev/stderr", "--name", "x", "--max-run", "100ms", "--", "sleep", "1000"];
    let ended = env.finish(&mut env.run(words));
    let lines: Vec<&str> = ended.err.lines().collect();
    assert!(lines.len() >= 2 && lines[0].contains("--max-run") && lines[1].starts_with('{'), "{}", ended.err);
}

#[test]
fn a_full_device_takes_nothing_and_stops_nothing() {
    let env = TestEnv::new();
    let full = || std::fs::File::options().write(true).open("/dev/full").expect("a full device").into();
    let ended = env.start_saying_to(&mut env.run(["-v", "--name", "x", "--", "true"]), full()).finish();
    assert_eq!(ended.code(), Some(0));
    let holder = env.held(&["--name", "x"]);
    let ended = env.start_saying_to(&mut env.run(["-n", "--name", "x", "--", "true"]), full()).finish();
    assert_eq!(ended.code(), Some(75));
    holder.release().silently(0);
}

#[test]
fn terminal_with_tostop_stops_no_dlock_in_the_background() {
    let env = TestEnv::new();
    let holder = env.held(&["--name", "x"]);
    let mut terminal = Terminal::bash(&env);
    terminal.command("stty tostop");
    let shown = terminal.command("run -n --name x -- true & wait $!; echo \"<$?>\"");
    assert!(shown.contains("x is busy") && shown.contains("<75>"), "{shown}");
    holder.release().silently(0);
}
