//! Scripts that several tests run as their commands.

use super::process::{self, Process};
use super::test_env::TestEnv;

/// A process whose first thread has ended, so that the process table shows a zombie. It then writes a line to `$1`.
pub(crate) const ZOMBIE_LEADER: &str = r#"
import ctypes, os, sys, threading, time
def stay():
    while open("/proc/self/stat").read().rpartition(")")[2].split()[0] != "Z":
        time.sleep(0.001)
    os.write(os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT), b"up\n")
    while True:
        time.sleep(1000)
threading.Thread(target=stay).start()
exit_of_a_thread = {"x86_64": 60, "aarch64": 93}[os.uname().machine]
ctypes.CDLL(None).syscall(exit_of_a_thread, 0)
"#;

/// A tree that tries to escape: other groups, other sessions, double forks, processes that ignore every signal to stop,
/// one without a first thread. It writes its PID to `$1` when all of it runs.
const TREE: &str = r#"
deaf='trap "" TERM HUP INT QUIT; echo up >>"$0"; while :; do sleep 1000; done'
sleep 1000 &
setsid sleep 1000 &
(sh -c 'sleep 1000 & echo up >>"$0"; wait' "$1.up" &)
(setsid sh -c 'sleep 1000 & echo up >>"$0"; wait' "$1.up" &)
sh -c "$deaf" "$1.up" &
(setsid sh -c "$deaf" "$1.up" &)
"$2" "$3" "$1.up" &
(setsid "$2" "$3" "$1.up" &)
until [ "$(grep -c up "$1.up" 2>/dev/null)" = 6 ]; do sleep 0.01; done
echo $$ >"$1"
wait
"#;

/// Writes each PID in the file `$1` that is still alive, and then that it has checked.
const OVERLAP: &str = r#"
for pid in $(cat "$1"); do
    stat=$(cat "/proc/$pid/stat" 2>/dev/null) || continue
    set -- "$1" "$2" ${stat##*) }
    case $3 in
    X | '') ;;
    # A zombie whose other threads are alive.
    Z) [ "${20}" -le 1 ] || echo "alive: $stat" ;;
    *) echo "alive: $stat" ;;
    esac
done >"$2"
echo looked >>"$2"
"#;

/// Writes a line "NUMBER SENDER CODE" for every signal that arrives, and ends on those named after the log.
const LOGGER: &str = r#"
import os, signal, sys
every = set(signal.valid_signals()) - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD}
signal.pthread_sigmask(signal.SIG_BLOCK, every)
log = open(sys.argv[1], "a", buffering=1)
ends = {int(word) for word in sys.argv[2:]}
log.write(f"ready {os.getpid()}\n")
while True:
    got = signal.sigwaitinfo(every)
    log.write(f"{got.si_signo} {got.si_pid} {got.si_code}\n")
    if got.si_signo in ends:
        os._exit(0)
"#;

/// A command's tree. Each member inherits a variable that identifies the tree.
pub(crate) struct Tree {
    tag: String,
    ready: String,
}

impl Tree {
    /// Returns the tree called `name`, and the words of the command that grows it.
    pub(crate) fn words(env: &TestEnv, name: &str) -> (Self, Vec<String>) {
        let script = env.write("tree.sh", TREE);
        let ready = format!("{name}.tree");
        let tag = env.path(&ready).display().to_string();
        let (script, leader) = (script.display().to_string(), env.write("zombie-leader.py", ZOMBIE_LEADER));
        let leader = leader.display().to_string();
        let words = ["env", &format!("TEST_TREE={tag}"), "sh", &script, &tag, TestEnv::python(), &leader];
        let words = words.iter().map(ToString::to_string).collect();
        (Self { tag, ready }, words)
    }

    /// Waits until the whole tree runs. Returns its members.
    #[track_caller]
    pub(crate) fn await_grown(&self, env: &TestEnv) -> Vec<Process> {
        env.await_line(&self.ready);
        let members = self.members();
        assert!(members.len() >= 12, "the tree is small: {members:?}");
        members
    }

    /// Returns its living members.
    pub(crate) fn members(&self) -> Vec<Process> {
        process::with_variable("TEST_TREE", &self.tag)
    }
}

/// A command that checks at its start which of `members` are still alive.
pub(crate) struct Overlap {
    report: String,
}

impl Overlap {
    pub(crate) fn words(env: &TestEnv, members: &[Process]) -> (Self, Vec<String>) {
        let script = env.write("overlap.sh", OVERLAP);
        let pids: Vec<String> = members.iter().map(|p| p.pid.to_string()).collect();
        let pids = env.write("members", &pids.join("\n"));
        let report = env.path("overlap");
        let words = [&"sh".into(), &script, &pids, &report];
        let words = words.iter().map(|w| w.display().to_string()).collect();
        (Self { report: "overlap".to_owned() }, words)
    }

    /// Expects that it has checked and found none alive.
    #[track_caller]
    pub(crate) fn assert_none(&self, env: &TestEnv) {
        assert_eq!(env.read(&self.report), "looked\n");
    }
}

/// A process that logs every signal it gets.
pub(crate) struct Logger {
    log: String,
}

impl Logger {
    /// Returns a logger called `name` that ends on the signals `ends`, and its words.
    pub(crate) fn words(env: &TestEnv, name: &str, ends: &[i32]) -> (Self, Vec<String>) {
        let script = env.write("logger.py", LOGGER);
        let log = format!("{name}.signals");
        let mut words = vec![TestEnv::python().to_owned(), script.display().to_string()];
        words.push(env.path(&log).display().to_string());
        words.extend(ends.iter().map(ToString::to_string));
        (Self { log }, words)
    }

    /// Waits until it handles signals. Returns its PID.
    #[track_caller]
    pub(crate) fn await_ready(&self, env: &TestEnv) -> i32 {
        let line = super::until(&format!("a listener {}", self.log), || {
            env.read(&self.log).lines().next().map(str::to_owned)
        });
        line.trim_start_matches("ready ").parse().expect("its pid")
    }

    /// Returns the signals that arrived, in order.
    pub(crate) fn signals(&self, env: &TestEnv) -> Vec<i32> {
        let text = env.read(&self.log);
        let lines = text.lines().filter(|line| !line.starts_with("ready"));
        lines.map(|line| line.split(' ').next().expect("a word").parse().expect("a number")).collect()
    }

    /// Returns how often `signal` arrived.
    pub(crate) fn count(&self, env: &TestEnv, signal: i32) -> usize {
        self.signals(env).into_iter().filter(|s| *s == signal).count()
    }

    #[track_caller]
    pub(crate) fn await_signal(&self, env: &TestEnv, signal: i32) {
        super::until(&format!("signal {signal} in {}: {:?}", self.log, self.signals(env)), || {
            (self.count(env, signal) > 0).then_some(())
        });
    }
}
