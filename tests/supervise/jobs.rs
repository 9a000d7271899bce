//! Job control: stopping, `fg`, `bg`, and the lock meanwhile.

use std::time::Duration;

use rustix::process::Signal;

use crate::support::process::{is_alive, is_stopped, look};
use crate::support::scripts::ZOMBIE_LEADER;
use crate::support::terminal::{Terminal, front_of, running};
use crate::support::wait::{let_pass, until_true};
use crate::support::{TestEnv, process};

/// Types Ctrl-Z, which stops `command` as well.
#[track_caller]
fn suspend(terminal: &mut Terminal, command: i32) {
    terminal.stop_job();
    until_true("a stopped command", || is_stopped(command));
}

/// Types `fg`, after which `command` continues.
#[track_caller]
fn resume(terminal: &mut Terminal, command: i32) {
    terminal.type_line("fg");
    until_true("a command that continues", || !is_stopped(command));
}

/// Returns the front of the only dlock.
fn front(env: &TestEnv) -> i32 {
    env.processes().iter().find(|process| process.name == "lease-keeper").expect("a keeper").parent
}

/// Returns a TTL for a lock that dlock renews while it is stopped.
fn ttl(env: &TestEnv) -> &'static str {
    if env.service().backend == "file" { "3s" } else { "9s" }
}

/// Waits until a lock with this TTL would have expired without renewals.
#[track_caller]
fn outlast_ttl(env: &TestEnv) {
    if env.service().backend == "file" {
        let_pass(Duration::from_millis(3_300));
    } else {
        env.await_renewals("x", 2);
    }
}

/// Starts a terminal whose session is led by dlock, so that no process can resume it.
fn leading(env: &TestEnv, words: &[&str]) -> Terminal {
    let words = [&["run", "--endpoint", &env.service().endpoint, "--name", "x"], words].concat();
    Terminal::start(env, crate::support::test_env::dlock(), &words)
}

#[test]
fn ctrl_z_gives_the_prompt_back_and_keeps_the_lock_until_fg() {
    let env = TestEnv::new();
    let gate = env.gate("gate");
    let (mut terminal, command) =
        running(&env, &format!("--ttl {} --grace 0", ttl(&env)), "read _ <gate; exit 6");
    suspend(&mut terminal, command);
    assert!(terminal.command("jobs").contains("Stopped"));
    outlast_ttl(&env);
    env.assert_busy("x");
    assert!(is_stopped(command));
    resume(&mut terminal, command);
    gate.open();
    terminal.await_status(6);
    env.assert_free("x");
}

#[test]
fn ctrl_z_suspends_a_command_without_its_first_thread() {
    let env = TestEnv::new();
    let script = env.write("zombie-leader.py", ZOMBIE_LEADER);
    let words = format!("exec {} {} up.leader", TestEnv::python(), script.display());
    let (mut terminal, command) = running(&env, "", &words);
    env.await_line("up.leader");
    let front = front_of(command);
    let has_stopped = || process::threads(command).iter().any(|thread| is_stopped(*thread));
    for way in ["fg", "kill -CONT", "fg"] {
        terminal.await_foreground(look(command).expect("a command").group);
        terminal.stop_job();
        assert!(is_stopped(front) && has_stopped());
        if way == "fg" {
            terminal.type_line("fg");
        } else {
            // SIGCONT to dlock alone, which passes it on.
            process::signal(front, Signal::CONT);
            until_true("a command that continues", || !has_stopped());
            terminal.type_line("fg");
        }
        until_true("a job that continues", || !is_stopped(front) && !has_stopped());
    }
    process::signal(command, Signal::TERM);
    terminal.await_status(128 + 15);
    env.assert_free("x");
}

#[test]
fn ctrl_z_gives_the_prompt_back_also_when_the_command_has_ended() {
    let env = TestEnv::new();
    let (mut terminal, command) = running(&env, &format!("--ttl {} --hold-at-least 1h", ttl(&env)), "exit 6");
    until_true("the end of the command", || look(command).is_none());
    let front = front(&env);
    terminal.stop_job();
    assert!(is_stopped(front));
    outlast_ttl(&env);
    env.assert_busy("x");
    terminal.type_line("fg");
    until_true("a job that continues", || !is_stopped(front));
    terminal.await_foreground(look(front).expect("a front").group);
    terminal.stop_job();
    terminal.command("bg");
    until_true("a job that continues", || !is_stopped(front));
    env.assert_busy("x");
    terminal.command("kill %1; wait %1");
    assert_eq!(terminal.last_status(), 6);
    env.assert_free("x");
}

#[test]
fn ctrl_z_stops_dlock_with_the_rest_of_its_command() {
    let env = TestEnv::new();
    let gate = env.gate("gate");
    let script = "sh -c 'echo $$ >left; read _ <gate' & until [ -s left ]; do :; done; exit 6";
    let (mut terminal, command) = running(&env, "--whole-tree", script);
    let left = env.await_line("left").parse().expect("a pid");
    until_true("the end of the command", || look(command).is_none());
    suspend(&mut terminal, left);
    env.assert_busy("x");
    resume(&mut terminal, left);
    gate.open();
    terminal.await_status(6);
    env.assert_free("x");
}

#[test]
fn stopped_job_ends_when_its_command_is_gone() {
    let env = TestEnv::new();
    let gate = env.gate("gate");
    // A process in a session of its own is not stopped.
    let script = "setsid sh -c 'echo $$ >left; read _ <gate' & until [ -s left ]; do :; done; exit 6";
    let (mut terminal, command) = running(&env, "--whole-tree", script);
    until_true("the end of the command", || look(command).is_none());
    let front = front(&env);
    terminal.stop_job();
    gate.open();
    until_true("a front that the shell has reaped", || look(front).is_none());
    terminal.command("wait %1");
    assert_eq!(terminal.last_status(), 6);
    env.assert_free("x");
}

#[test]
fn ctrl_z_while_waiting_leaves_the_queue_and_fg_rejoins_it() {
    let env = TestEnv::new();
    let holder = env.held(&["--name", "x"]);
    let mut terminal = Terminal::bash(&env);
    terminal.type_line("run --name x -- sh -c 'echo mine >>order'");
    env.await_waiters("x", 1);
    terminal.stop_job();
    env.await_waiters("x", 0);
    let other = env.start(&mut env.run(["--name", "x", "--", "sh", "-c", "echo other >>order"]));
    env.await_waiters("x", 1);
    terminal.type_line("fg");
    env.await_waiters("x", 2);
    holder.release().silently(0);
    assert_eq!(other.finish().code(), Some(0));
    terminal.await_status(0);
    assert_eq!(env.read("order"), "other\nmine\n");
}

/// After `fg` dlock asks the service anew. The job stood still for longer than a service may be silent, but that does
/// not make the service silent.
#[test]
fn stopped_time_of_a_waiting_job_is_no_service_silence() {
    let env = TestEnv::new();
    let holder = env.held(&["--name", "x"]);
    let mut terminal = Terminal::bash(&env);
    terminal.type_line("run --name x -- true 2>said");
    env.await_waiters("x", 1);
    terminal.stop_job();
    env.await_waiters("x", 0);
    let_pass(Duration::from_millis(2500));
    terminal.type_line("fg");
    env.await_waiters("x", 1);
    holder.release().silently(0);
    terminal.await_status(0);
    let said = env.read("said");
    assert!(said.contains("waiting for x") && !said.contains("has not answered"), "{said}");
}

#[test]
fn background_job_reading_the_terminal_stops_until_fg() {
    let env = TestEnv::new();
    env.write("ask.sh", "echo $$ >pid; read a; echo \"<$a>\"\n");
    let mut terminal = Terminal::bash(&env);
    terminal.command("run --name x -- sh ask.sh &");
    let command: i32 = env.await_line("pid").parse().expect("a pid");
    until_true("a job that waits for the terminal", || is_stopped(command) && is_stopped(front_of(command)));
    env.assert_busy("x");
    terminal.type_line("fg");
    terminal.type_line("typed");
    terminal.expect("<typed>");
    terminal.expect_prompt();
    env.assert_free("x");
}

#[test]
fn a_command_stopped_by_another_hand_gives_the_prompt_back() {
    let env = TestEnv::new();
    let gate = env.gate("gate");
    let (mut terminal, command) = running(&env, "", "read _ <gate; exit 6");
    process::signal(command, Signal::STOP);
    terminal.expect("Stopped");
    terminal.expect_prompt();
    env.assert_busy("x");
    // If another process continues the command, the job runs in the background.
    process::signal(command, Signal::CONT);
    // The shell learns of it a moment after the kernel shows it.
    until_true("a job that the shell knows to run", || terminal.command("jobs").contains("Running"));
    assert!(!is_stopped(front_of(command)));
    gate.open();
    terminal.command("wait %1");
    assert_eq!(terminal.last_status(), 6);
}

#[test]
fn stop_sent_to_dlock_alone_is_resumable_by_fg() {
    let env = TestEnv::new();
    let gate = env.gate("gate");
    let (mut terminal, command) = running(&env, "", "read _ <gate; exit 6");
    process::signal(front_of(command), Signal::TSTP);
    terminal.expect("Stopped");
    terminal.expect_prompt();
    until_true("a stopped command", || is_stopped(command));
    env.assert_busy("x");
    resume(&mut terminal, command);
    gate.open();
    terminal.await_status(6);
}

#[test]
fn unresumable_stop_is_undone_at_once() {
    let env = TestEnv::new();
    let script = "echo up >ready; read a; echo \"<$a>\"; read b; echo \"<$b>\"";
    let mut terminal = leading(&env, &["--", "sh", "-c", script]);
    env.await_line("ready");
    terminal.ctrl_z();
    terminal.type_line("one");
    terminal.expect("<one>");
    terminal.ctrl_z();
    terminal.type_line("two");
    terminal.expect("<two>");
    until_true("the end of dlock", || !is_alive(terminal.leader()));
    env.assert_free("x");
}

#[test]
fn unresumable_stop_lets_the_rest_of_the_command_continue() {
    let env = TestEnv::new();
    let gate = env.gate("gate");
    let script = "sh -c 'echo $$ >left; read _ <gate' & until [ -s left ]; do :; done; echo $$ >pid";
    let mut terminal = leading(&env, &["--whole-tree", "--", "sh", "-c", script]);
    let command = env.await_line("pid").parse().expect("a pid");
    until_true("the end of the command", || look(command).is_none());
    terminal.ctrl_z();
    terminal.expect("^Z");
    gate.open();
    until_true("the end of dlock", || !is_alive(terminal.leader()));
    env.assert_free("x");
}

#[test]
fn unresumable_stop_does_not_stop_a_wait() {
    let env = TestEnv::new();
    let holder = env.held(&["--name", "x"]);
    let mut terminal = leading(&env, &["--", "touch", "started"]);
    env.await_waiters("x", 1);
    terminal.ctrl_z();
    terminal.expect("^Z");
    assert_eq!(env.waiters("x"), 1);
    holder.release().silently(0);
    until_true("the command", || env.exists("started"));
}

#[test]
fn a_stopped_job_can_be_ended_by_the_shell() {
    let env = TestEnv::new();
    let (mut terminal, command) = running(&env, "", "exec sleep 1000");
    suspend(&mut terminal, command);
    let front = front_of(command);
    terminal.command("kill %1");
    until_true("a front that the shell has reaped", || look(front).is_none());
    terminal.command("wait %1");
    assert_eq!(terminal.last_status(), 143);
    env.assert_free("x");
}

/// The kernel sends SIGHUP to the shell, and the shell to its jobs. If the shell is killed, the kernel ends a stopped job
/// that no process can resume. It does not if a process of the session outside the job is the parent of a member. The
/// keeper is such a parent.
#[test]
fn a_stopped_job_outlives_neither_a_hang_up_nor_its_shell() {
    for kills in [false, true] {
        let env = TestEnv::new();
        let (mut terminal, command) = running(&env, "", "exec sleep 1000");
        suspend(&mut terminal, command);
        if kills {
            drop(terminal);
        } else {
            terminal.signal_shell(Signal::HUP);
        }
        env.await_no_process();
        env.assert_free("x");
    }
}

#[test]
fn a_pipeline_stops_and_resumes_as_a_whole() {
    let env = TestEnv::new();
    let gate = env.gate("gate");
    env.write("command.sh", "echo $$ >pid; read _ <gate; echo done by $$\n");
    let mut terminal = Terminal::bash(&env);
    terminal.type_line("cat bashrc | run --name x -- sh command.sh | sed s/done/finished/ | cat");
    let command: i32 = env.await_line("pid").parse().expect("a pid");
    suspend(&mut terminal, command);
    env.assert_busy("x");
    resume(&mut terminal, command);
    gate.open();
    terminal.expect("finished by");
    terminal.expect_prompt();
    env.assert_free("x");
}

#[test]
fn a_shell_under_dlock_has_job_control_of_its_own() {
    let env = TestEnv::new();
    let mut terminal = Terminal::bash(&env);
    let outer = terminal.leader();
    terminal.type_line("run --name x -- bash --noprofile --rcfile bashrc -i");
    terminal.expect_prompt();
    terminal.type_line("echo $$ >pid; sleep 1000");
    let inner: i32 = env.await_line("pid").parse().expect("a pid");
    until_true("a command of the inner shell", || {
        process::children(inner).iter().any(|p| p.name == "sleep" && p.group == p.pid)
    });
    let sleeping = process::children(inner)[0].pid;
    terminal.await_foreground(sleeping);
    // The inner job stops, dlock and its command do not.
    terminal.stop_job();
    assert!(!is_stopped(inner) && !is_stopped(front_of(inner)));
    terminal.type_line("fg");
    terminal.await_foreground(sleeping);
    terminal.ctrl_c();
    terminal.expect_prompt();
    assert!(is_alive(inner));
    env.assert_busy("x");
    terminal.type_line("exit 7");
    terminal.await_status(7);
    terminal.await_foreground(outer);
    env.assert_free("x");
}
