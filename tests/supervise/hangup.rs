//! Signals that the kernel sends to dlock alone, and signals to the job before the command has joined it.

use crate::support::TestEnv;
use crate::support::process::is_alive;
use crate::support::test_env::dlock;
use crate::support::wait::until_true;

/// Runs the words after the first two on a terminal of their own, as leader of its session. Prints how the program
/// ended. The first word is one of:
///
/// - `hang-up` waits for a line in the file named by the second word, and closes the terminal.
/// - `keys` types Ctrl-C that many seconds after the program was executed.
/// - `alarm` sets a timer of that many seconds.
const ON_A_TERMINAL: &str = r#"
import os, pty, select, signal, sys, time
what, second, words = sys.argv[1], sys.argv[2], sys.argv[3:]
pid, terminal = pty.fork()
if pid == 0:
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    if what == "alarm":
        signal.setitimer(signal.ITIMER_REAL, float(second))
    os.execvp(words[0], words)
def ended(within):
    until = time.monotonic() + within
    while time.monotonic() < until:
        if select.select([terminal], [], [], 0.001)[0]:
            try:
                os.read(terminal, 4096)
            except OSError:
                pass
        got, status = os.waitpid(pid, os.WNOHANG)
        if got:
            return status
    return None
if what == "hang-up":
    while not (os.path.exists(second) and open(second).read().endswith("\n")):
        time.sleep(0.005)
    os.close(terminal)
    print(os.waitpid(pid, 0)[1])
elif what == "keys":
    while open(f"/proc/{pid}/comm").read().strip() != os.path.basename(words[0]):
        pass
    time.sleep(float(second))
    os.write(terminal, b"\x03")
    status = ended(5)
    if status is None:
        os.kill(pid, signal.SIGKILL)
    print(status)
else:
    print(ended(10))
"#;

fn on_a_terminal(env: &TestEnv, what: &str, second: &str, words: &[&str]) -> std::process::Command {
    under(env, what, second, &[], words)
}

/// Does the same with dlock as the command of the words `first`.
fn under(env: &TestEnv, what: &str, second: &str, first: &[&str], words: &[&str]) -> std::process::Command {
    let mut command = env.command(TestEnv::python());
    command.args(["-c", ON_A_TERMINAL, what, second]).args(first);
    command.args([dlock(), "run", "--name", "x", "--endpoint"]).arg(env.locks()).arg("--").args(words);
    command
}

#[test]
fn hang_up_of_a_session_led_by_dlock_ends_the_command() {
    let env = TestEnv::new();
    let mut command = on_a_terminal(&env, "hang-up", "pid", &["sh", "-c", "echo $$ >pid; exec sleep 1000"]);
    let ended = env.finish(&mut command);
    // dlock died of SIGHUP, as the command would without dlock.
    assert_eq!((ended.text().as_str(), ended.err.as_str()), ("1\n", ""));
    let pid = env.await_line("pid").parse().expect("a pid");
    until_true("the end of the command", || !is_alive(pid));
    env.assert_free("x");
}

#[test]
fn a_timer_inherited_from_the_caller_reaches_the_command() {
    let env = TestEnv::new();
    let mut command = on_a_terminal(&env, "alarm", "0.3", &["sleep", "1000"]);
    assert_eq!(env.finish(&mut command).text(), "14\n");
    env.assert_free("x");
}

#[test]
fn keyboard_interrupt_during_the_start_is_not_lost() {
    let env = TestEnv::new();
    for step in 0..80 {
        let after = format!("{:.5}", f64::from(step) * 0.00006);
        let ended = env.finish(&mut on_a_terminal(&env, "keys", &after, &["sleep", "1000"]));
        assert_eq!(ended.text(), "2\n", "Ctrl-C after {after} s");
        env.assert_free("x");
    }
}

#[test]
fn interrupt_before_the_command_joins_the_job_is_forwarded() {
    // strace delays the keeper when it creates its group, and a second later the command when it joins the job's.
    let env = TestEnv::new();
    let strace = ["strace", "-f", "-qq", "-o", "trace", "-e", "trace=setpgid", "-e"];
    let first = [&strace[..], &["inject=setpgid:delay_enter=1000000"]].concat();
    let ended = env.finish(&mut under(&env, "keys", "1.5", &first, &["sleep", "1000"]));
    assert_eq!(ended.text(), "2\n", "{}", env.read("trace"));
    env.assert_free("x");
}
