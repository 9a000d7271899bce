//! Job control: stopping, `fg`, `bg`, and the lock meanwhile.

use std::time::Duration;

use rustix::process::Signal;

use crate::support::process::{is_alive, is_stopped, look};
use crate::support::scripts::ZOMBIE_LEADER;
use crate::support::terminal::{Terminal, front_of, running};
use crate::support::wait::{let_pass, until_true};
use crate::support::{Bed, process};

/// Ctrl-Z, which stops `command` as well.
#[track_caller]
fn suspend(terminal: &mut Terminal, command: i32) {
    terminal.stop_job();
    until_true("a stopped command", || is_stopped(command));
}

/// `fg`, after which `command` goes on.
#[track_caller]
fn resume(terminal: &mut Terminal, command: i32) {
    terminal.type_line("fg");
    until_true("a command that goes on", || !is_stopped(command));
}

#[test]
fn ctrl_z_gives_the_prompt_back_and_keeps_the_lock_until_fg() {
    let bed = Bed::new();
    let gate = bed.gate("gate");
    let (mut terminal, command) = running(&bed, "--ttl 3s --grace 0", "read _ <gate; exit 6");
    suspend(&mut terminal, command);
    assert!(terminal.command("jobs").contains("Stopped"));
    // The lock stays held and renewed: longer than its ttl.
    let_pass(Duration::from_millis(3_300));
    bed.assert_busy("x");
    assert!(is_stopped(command));
    resume(&mut terminal, command);
    gate.open();
    terminal.await_status(6);
    bed.assert_free("x");
}

#[test]
fn ctrl_z_works_again_and_again() {
    let bed = Bed::new();
    let gate = bed.gate("gate");
    let (mut terminal, command) = running(&bed, "", "read _ <gate; exit 6");
    let group = look(command).expect("a command").group;
    for _ in 0..5 {
        terminal.await_foreground(group);
        terminal.stop_job();
        assert!(is_stopped(command));
        terminal.type_line("fg");
        until_true("a job that goes on", || !is_stopped(command) && !is_stopped(front_of(command)));
    }
    gate.open();
    terminal.await_status(6);
}

#[test]
fn ctrl_z_suspends_a_command_whose_first_thread_has_ended() {
    let bed = Bed::new();
    let script = bed.write("zombie-leader.py", ZOMBIE_LEADER);
    let words = format!("exec {} {} up.leader", Bed::python(), script.display());
    let (mut terminal, command) = running(&bed, "", &words);
    bed.await_line("up.leader");
    let front = front_of(command);
    let has_stopped = || process::threads(command).iter().any(|thread| is_stopped(*thread));
    for way in ["fg", "kill -CONT", "fg"] {
        terminal.await_foreground(look(command).expect("a command").group);
        terminal.stop_job();
        assert!(is_stopped(front) && has_stopped());
        if way == "fg" {
            terminal.type_line("fg");
        } else {
            // To dlock alone, which passes it on.
            process::signal(front, Signal::CONT);
            until_true("a command that goes on", || !has_stopped());
            terminal.type_line("fg");
        }
        until_true("a job that goes on", || !is_stopped(front) && !has_stopped());
    }
    process::signal(command, Signal::TERM);
    terminal.await_status(128 + 15);
    bed.assert_free("x");
}

#[test]
fn bg_lets_it_run_behind_the_prompt() {
    let bed = Bed::new();
    let gate = bed.gate("gate");
    let (mut terminal, command) = running(&bed, "", "read _ <gate; exit 6");
    terminal.ctrl_z();
    terminal.expect_prompt();
    terminal.command("bg");
    until_true("a command that goes on", || !is_stopped(command));
    assert!(terminal.command("jobs").contains("Running"));
    bed.assert_busy("x");
    gate.open();
    terminal.command("wait %1");
    assert_eq!(terminal.last_status(), 6);
    bed.assert_free("x");
}

#[test]
fn ctrl_z_while_waiting_leaves_the_line_and_fg_joins_it_at_the_end() {
    let bed = Bed::new();
    let holder = bed.held(&["--name", "x"]);
    let mut terminal = Terminal::bash(&bed);
    terminal.type_line("run --name x -- sh -c 'echo mine >>order'");
    bed.await_waiters("x", 1);
    terminal.stop_job();
    bed.await_waiters("x", 0);
    let other = bed.start(&mut bed.run(["--name", "x", "--", "sh", "-c", "echo other >>order"]));
    bed.await_waiters("x", 1);
    terminal.type_line("fg");
    bed.await_waiters("x", 2);
    holder.release().silently(0);
    assert_eq!(other.finish().code(), Some(0));
    terminal.await_status(0);
    assert_eq!(bed.read("order"), "other\nmine\n");
}

/// After `fg` the service is asked anew: that the job has stood still for longer than a service may be silent says nothing of it.
#[test]
fn a_service_is_not_called_silent_for_the_time_that_a_waiting_job_was_stopped() {
    let bed = Bed::new();
    let holder = bed.held(&["--name", "x"]);
    let mut terminal = Terminal::bash(&bed);
    terminal.type_line("run --name x -- true 2>said");
    bed.await_waiters("x", 1);
    terminal.stop_job();
    bed.await_waiters("x", 0);
    let_pass(Duration::from_millis(2500));
    terminal.type_line("fg");
    bed.await_waiters("x", 1);
    holder.release().silently(0);
    terminal.await_status(0);
    let said = bed.read("said");
    assert!(said.contains("waiting for x") && !said.contains("has not answered"), "{said}");
}

#[test]
fn a_background_job_that_wants_the_terminal_stops_until_fg() {
    let bed = Bed::new();
    bed.write("ask.sh", "echo $$ >pid; read a; echo \"<$a>\"\n");
    let mut terminal = Terminal::bash(&bed);
    terminal.command("run --name x -- sh ask.sh &");
    let command: i32 = bed.await_line("pid").parse().expect("a pid");
    until_true("a job that waits for the terminal", || is_stopped(command) && is_stopped(front_of(command)));
    bed.assert_busy("x");
    terminal.type_line("fg");
    terminal.type_line("typed");
    terminal.expect("<typed>");
    terminal.expect_prompt();
    bed.assert_free("x");
}

#[test]
fn a_command_stopped_by_another_hand_gives_the_prompt_back() {
    let bed = Bed::new();
    let gate = bed.gate("gate");
    let (mut terminal, command) = running(&bed, "", "read _ <gate; exit 6");
    process::signal(command, Signal::STOP);
    terminal.expect("Stopped");
    terminal.expect_prompt();
    bed.assert_busy("x");
    // Continued by another hand, the job goes on behind the prompt.
    process::signal(command, Signal::CONT);
    // The shell hears of it a moment after the kernel shows it.
    until_true("a job that the shell knows to run", || terminal.command("jobs").contains("Running"));
    assert!(!is_stopped(front_of(command)));
    gate.open();
    terminal.command("wait %1");
    assert_eq!(terminal.last_status(), 6);
}

#[test]
fn a_stop_sent_to_dlock_alone_ends_in_a_job_that_fg_resumes() {
    let bed = Bed::new();
    let gate = bed.gate("gate");
    let (mut terminal, command) = running(&bed, "", "read _ <gate; exit 6");
    process::signal(front_of(command), Signal::TSTP);
    terminal.expect("Stopped");
    terminal.expect_prompt();
    until_true("a stopped command", || is_stopped(command));
    bed.assert_busy("x");
    resume(&mut terminal, command);
    gate.open();
    terminal.await_status(6);
}

#[test]
fn where_nobody_could_resume_it_a_stop_is_undone_at_once() {
    let bed = Bed::new();
    let script = "echo up >ready; read a; echo \"<$a>\"; read b; echo \"<$b>\"";
    let locks = bed.service().endpoint.clone();
    let words = ["run", "--endpoint", &locks, "--name", "x", "--", "sh", "-c", script];
    let mut terminal = Terminal::start(&bed, crate::support::bed::dlock(), &words);
    bed.await_line("ready");
    terminal.ctrl_z();
    terminal.type_line("one");
    terminal.expect("<one>");
    terminal.ctrl_z();
    terminal.type_line("two");
    terminal.expect("<two>");
    until_true("the end of dlock", || !is_alive(terminal.leader()));
    bed.assert_free("x");
}

#[test]
fn where_nobody_could_resume_it_a_wait_is_not_stopped_either() {
    let bed = Bed::new();
    let holder = bed.held(&["--name", "x"]);
    let locks = bed.service().endpoint.clone();
    let words = ["run", "--endpoint", &locks, "--name", "x", "--", "touch", "started"];
    let mut terminal = Terminal::start(&bed, crate::support::bed::dlock(), &words);
    bed.await_waiters("x", 1);
    terminal.ctrl_z();
    terminal.expect("^Z");
    assert_eq!(bed.waiters("x"), 1);
    holder.release().silently(0);
    until_true("the command", || bed.exists("started"));
}

#[test]
fn a_stopped_job_can_be_ended_by_the_shell() {
    let bed = Bed::new();
    let (mut terminal, command) = running(&bed, "", "exec sleep 1000");
    suspend(&mut terminal, command);
    let front = front_of(command);
    terminal.command("kill %1");
    until_true("a front that the shell has reaped", || look(front).is_none());
    terminal.command("wait %1");
    assert_eq!(terminal.last_status(), 143);
    bed.assert_free("x");
}

#[test]
fn a_stopped_job_does_not_outlive_a_hang_up() {
    // The kernel tells the shell, and the shell its jobs.
    let bed = Bed::new();
    let (mut terminal, command) = running(&bed, "", "exec sleep 1000");
    suspend(&mut terminal, command);
    terminal.signal_shell(Signal::HUP);
    bed.await_no_process();
    bed.assert_free("x");
}

#[test]
fn a_stopped_job_does_not_outlive_a_killed_shell() {
    // The kernel ends a stopped job that nobody can resume any more, unless somebody of its session is the
    // parent of one of its members, as the keeper is.
    let bed = Bed::new();
    let (mut terminal, command) = running(&bed, "", "exec sleep 1000");
    suspend(&mut terminal, command);
    drop(terminal);
    bed.await_no_process();
    bed.assert_free("x");
}

#[test]
fn a_pipeline_stops_and_resumes_as_a_whole() {
    let bed = Bed::new();
    let gate = bed.gate("gate");
    bed.write("command.sh", "echo $$ >pid; read _ <gate; echo done by $$\n");
    let mut terminal = Terminal::bash(&bed);
    terminal.type_line("cat bashrc | run --name x -- sh command.sh | sed s/done/finished/ | cat");
    let command: i32 = bed.await_line("pid").parse().expect("a pid");
    suspend(&mut terminal, command);
    bed.assert_busy("x");
    resume(&mut terminal, command);
    gate.open();
    terminal.expect("finished by");
    terminal.expect_prompt();
    bed.assert_free("x");
}

#[test]
fn a_shell_under_dlock_has_job_control_of_its_own() {
    let bed = Bed::new();
    let mut terminal = Terminal::bash(&bed);
    let outer = terminal.leader();
    terminal.type_line("run --name x -- bash --noprofile --rcfile bashrc -i");
    terminal.expect_prompt();
    terminal.type_line("echo $$ >pid; sleep 1000");
    let inner: i32 = bed.await_line("pid").parse().expect("a pid");
    until_true("a command of the inner shell", || {
        process::children(inner).iter().any(|p| p.name == "sleep" && p.group == p.pid)
    });
    let sleeping = process::children(inner)[0].pid;
    terminal.await_foreground(sleeping);
    // The inner job stops, not dlock and its command.
    terminal.stop_job();
    assert!(!is_stopped(inner) && !is_stopped(front_of(inner)));
    terminal.type_line("fg");
    terminal.await_foreground(sleeping);
    terminal.ctrl_c();
    terminal.expect_prompt();
    assert!(is_alive(inner));
    bed.assert_busy("x");
    terminal.type_line("exit 7");
    terminal.await_status(7);
    terminal.await_foreground(outer);
    bed.assert_free("x");
}
