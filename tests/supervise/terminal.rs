//! An interactive bash on a terminal, with dlock in its jobs.

use std::time::Duration;

use rustix::process::Signal;

use crate::support::scripts::Logger;
use crate::support::terminal::{Terminal, front_of, running};
use crate::support::wait::{let_pass, until_true};
use crate::support::{TestEnv, process};

#[test]
fn ctrl_c_reaches_the_command_once() {
    let env = TestEnv::new();
    let (logger, words) = Logger::words(&env, "command", &[10]);
    let mut terminal = Terminal::bash(&env);
    terminal.type_line(&format!("run --name x -- {}", words.join(" ")));
    let command = logger.await_ready(&env);
    let front = front_of(command);
    terminal.ctrl_c();
    logger.await_signal(&env, 2);
    // A signal that the front passed on would have arrived before this one.
    process::signal(front, Signal::USR2);
    logger.await_signal(&env, 12);
    assert_eq!(logger.signals(&env), [2, 12]);
    // No grace period began: a second Ctrl-C also reaches only the command.
    let_pass(Duration::from_millis(250));
    terminal.ctrl_c();
    until_true("a second one", || logger.count(&env, 2) == 2);
    process::signal(front, Signal::USR1);
    terminal.await_status(0);
    env.assert_free("x");
}

#[test]
fn ctrl_c_and_ctrl_backslash_end_a_command_with_its_status() {
    for (key, status) in [("\x03", 130), ("\x1c", 131)] {
        let env = TestEnv::new();
        let (mut terminal, _) = running(&env, "", "ulimit -c 0; exec sleep 1000");
        terminal.press(key);
        terminal.await_status(status);
        env.assert_free("x");
    }
}

#[test]
fn ctrl_c_ends_a_script_around_dlock() {
    let env = TestEnv::new();
    env.write(
        "outer.sh",
        "\"$dlock\" run --endpoint \"$locks\" --name x -- sh -c 'echo up >ready; exec sleep 1000'\ntouch after\n",
    );
    let mut terminal = Terminal::bash(&env);
    terminal.type_line("bash outer.sh");
    env.await_line("ready");
    terminal.ctrl_c();
    terminal.await_status(130);
    assert!(!env.exists("after"), "the script went on");
    env.assert_free("x");
}

#[test]
fn ctrl_c_while_waiting_leaves_the_queue() {
    let env = TestEnv::new();
    let holder = env.held(&["--name", "x"]);
    let mut terminal = Terminal::bash(&env);
    terminal.type_line("run --name x -- touch started");
    env.await_waiters("x", 1);
    terminal.ctrl_c();
    terminal.await_status(130);
    assert_eq!(env.waiters("x"), 0);
    holder.release().silently(0);
    assert!(!env.exists("started"));
}

#[test]
fn the_wait_is_shown_on_one_live_line() {
    let env = TestEnv::new();
    let holder = env.held(&["--name", "x", "--label", "first"]);
    let mut terminal = Terminal::bash(&env);
    // Wide enough for the names of any host and user.
    terminal.resize(24, 300);
    terminal.type_line("run --name x -- sh -c 'echo it r''uns'");
    terminal.expect("waiting for x");
    terminal.expect("next in queue");
    terminal.expect("held by");
    terminal.expect(&format!("pid {} (sh, \"first\") for ", holder.running.pid()));
    holder.release().silently(0);
    terminal.expect("it runs");
    terminal.expect_prompt();
}

#[test]
fn nothing_is_shown_of_a_wait_in_the_background() {
    let env = TestEnv::new();
    let holder = env.held(&["--name", "x"]);
    let mut terminal = Terminal::bash(&env);
    terminal.command("run --name x -- true &");
    env.await_waiters("x", 1);
    let_pass(Duration::from_millis(700));
    assert!(!terminal.shown().contains("waiting for"), "{}", terminal.shown());
    assert!(terminal.command("jobs").contains("Running"));
    holder.release().silently(0);
    terminal.command("wait");
}

#[test]
fn a_pager_at_the_end_of_a_pipeline_works() {
    let env = TestEnv::new();
    let mut terminal = Terminal::bash(&env);
    terminal.type_line("run --name x -- seq 100 400 | less");
    terminal.expect("100\r\n101");
    terminal.expect(":");
    terminal.press("G");
    terminal.expect("400");
    terminal.press("q");
    terminal.await_status(0);
    env.assert_free("x");
}

#[test]
fn an_editor_under_dlock_edits_stops_and_resumes() {
    let env = TestEnv::new();
    let mut terminal = Terminal::bash(&env);
    terminal.type_line("run --name x -- vim.tiny -u NONE -N edited");
    terminal.expect("[New]");
    terminal.press("ihello\x1b");
    terminal.expect("hello");
    // vim sends the stop to its whole group itself.
    terminal.stop_job();
    env.assert_busy("x");
    terminal.type_line("fg");
    terminal.expect("hello");
    terminal.press(":wq\r");
    terminal.await_status(0);
    assert_eq!(env.read("edited"), "hello\n");
}

#[test]
fn a_password_prompt_reads_the_terminal_without_echo() {
    let env = TestEnv::new();
    env.write(
        "ask.sh",
        "stty -echo </dev/tty; printf 'Pass%s: ' word >/dev/tty; read p </dev/tty; stty echo </dev/tty\n\
         echo \"$p\" >answer\n",
    );
    let mut terminal = Terminal::bash(&env);
    terminal.type_line("run --name x -- sh ask.sh </dev/null | cat");
    terminal.expect("Password: ");
    terminal.type_line("hunter2");
    terminal.expect_prompt();
    assert_eq!(env.read("answer"), "hunter2\n");
    assert!(!terminal.shown().contains("hunter2"));
}

#[test]
fn a_resize_reaches_the_command_once() {
    let env = TestEnv::new();
    let (logger, words) = Logger::words(&env, "command", &[10]);
    let mut terminal = Terminal::bash(&env);
    terminal.type_line(&format!("run --name x -- {}", words.join(" ")));
    let front = front_of(logger.await_ready(&env));
    terminal.resize(30, 100);
    logger.await_signal(&env, 28);
    process::signal(front, Signal::USR1);
    terminal.expect_prompt();
    assert_eq!(logger.signals(&env), [28, 10]);
    assert_eq!(terminal.command("run --name x -- stty size"), "30 100");
}

#[test]
fn timeout_around_dlock_ends_the_command_once() {
    let env = TestEnv::new();
    let (logger, words) = Logger::words(&env, "command", &[10]);
    let mut terminal = Terminal::bash(&env);
    let line = r#"timeout 1h "$dlock" run --endpoint "$locks" --grace 1h --name x --"#;
    terminal.type_line(&format!("{line} {}", words.join(" ")));
    let command = logger.await_ready(&env);
    let front = front_of(command);
    // This signal makes timeout take its time for over.
    process::signal(process::look(front).expect("a front").parent, Signal::ALARM);
    logger.await_signal(&env, 15);
    process::signal(front, Signal::USR1);
    terminal.await_status(124);
    assert!(logger.count(&env, 10) == 1 && logger.count(&env, 15) <= 2, "{:?}", logger.signals(&env));
    env.assert_free("x");
}

#[test]
fn a_command_reads_its_terminal_where_dev_tty_cannot_be_opened() {
    let env = TestEnv::new();
    let probe = env.finish(env.command("unshare").args(["--mount", "true"]));
    if probe.code() != Some(0) {
        return eprintln!("skipped: no mount namespace may be made here: {}", probe.err.trim());
    }
    let script = r#"mount --bind /dev/tty /dev/tty && mount -o remount,bind,nodev /dev/tty || exit
        true </dev/tty && exit 3
        exec "$dlock" run --endpoint "$locks" --name x -- sh -c 'echo up >up; read -r line; echo "<$line>"'"#;
    env.write("hidden.sh", script);
    let mut terminal = Terminal::bash(&env);
    terminal.type_line("unshare --mount bash hidden.sh");
    env.await_line("up");
    terminal.type_line("word");
    terminal.expect("<word>");
    terminal.await_status(0);
    env.assert_free("x");
}
