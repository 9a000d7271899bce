//! The process table, as /proc shows it.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};

/// The flag of this name in the kernel's `include/linux/sched.h`.
const PF_EXITING: u32 = 4;

/// One process, living or dead.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    pub(crate) name: String,
    pub(crate) state: char,
    /// The number of its threads, including the first, which may have ended before the others.
    threads: u32,
    /// Whether it is exiting: it has no environment any more, and may still have open files.
    is_leaving: bool,
    pub(crate) parent: i32,
    pub(crate) group: i32,
    pub(crate) session: i32,
    /// Clock ticks after boot. With the PID it tells a process from a later one of the same number.
    pub(crate) started: u64,
}

impl Process {
    /// Returns whether one of its threads can still run.
    pub(crate) fn is_alive(&self) -> bool {
        !matches!(self.state, 'Z' | 'X') || self.threads > 1
    }
}

/// Returns the process `pid`, if there is one.
pub(crate) fn look(pid: i32) -> Option<Process> {
    let text = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let text = String::from_utf8_lossy(&text);
    let (open, close) = (text.find('(')?, text.rfind(')')?);
    let fields: Vec<&str> = text[close + 1..].split_ascii_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse().ok();
    Some(Process {
        pid,
        name: text[open + 1..close].to_owned(),
        state: fields.first()?.chars().next()?,
        threads: fields.get(17)?.parse().ok()?,
        is_leaving: fields.get(6)?.parse::<u32>().ok()? & PF_EXITING != 0,
        parent: number(1)?,
        group: number(2)?,
        session: number(3)?,
        started: fields.get(19)?.parse().ok()?,
    })
}

pub(crate) fn is_alive(pid: i32) -> bool {
    look(pid).is_some_and(|p| p.is_alive())
}

pub(crate) fn is_stopped(pid: i32) -> bool {
    look(pid).is_some_and(|p| p.state == 'T')
}

/// Waits until `pid` has taken every signal that it was sent, and sleeps again.
#[track_caller]
pub(crate) fn await_taken(pid: i32) {
    let none = format!("ShdPnd:\t{:016x}", 0);
    super::wait::until("a process that has taken its signals", || {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let sleeps = status.lines().any(|line| line.starts_with("State:\tS"));
        (sleeps && status.lines().any(|line| line == none)).then_some(())
    });
}

pub(crate) fn all_pids() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").expect("a process table").flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Returns every process, including dead ones.
pub(crate) fn all() -> Vec<Process> {
    all_pids().filter_map(look).collect()
}

/// Returns the children of `pid`, including dead ones.
pub(crate) fn children(pid: i32) -> Vec<Process> {
    all().into_iter().filter(|p| p.parent == pid).collect()
}

/// Returns the living processes whose environment has `variable=value`. A process cannot hide by moving to another
/// session or parent.
pub(crate) fn with_variable(variable: &str, value: &str) -> Vec<Process> {
    let entry = format!("{variable}={value}");
    all_pids().filter(|pid| has_variable(*pid, &entry)).filter_map(look).filter(Process::is_alive).collect()
}

/// Returns whether the environment of a process has the entry.
pub(crate) fn has_variable(pid: i32, entry: &str) -> bool {
    environment(pid).is_some_and(|text| text.split(|b| *b == 0).any(|each| each == entry.as_bytes()))
}

/// Returns the environment of a process, as far as it is readable. If the first thread has ended, only the others have
/// it.
fn environment(pid: i32) -> Option<Vec<u8>> {
    let of = |path: String| fs::read(path).ok().filter(|text| !text.is_empty());
    of(format!("/proc/{pid}/environ")).or_else(|| {
        let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
        threads.flatten().find_map(|thread| of(thread.path().join("environ").display().to_string()))
    })
}

/// Returns the numbers of the threads of `pid`.
pub(crate) fn threads(pid: i32) -> Vec<i32> {
    let entries = fs::read_dir(format!("/proc/{pid}/task")).expect("a process").flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Returns all processes that are exiting. Their environment can no longer be read.
pub(crate) fn leaving() -> Vec<Process> {
    let is_leaving = |p: &Process| p.is_leaving && p.is_alive() && environment(p.pid).is_none();
    all().into_iter().filter(is_leaving).collect()
}

/// Returns whether this process still exists, with the resources that the kernel frees at its end.
pub(crate) fn is_still(process: &Process) -> bool {
    look(process.pid).is_some_and(|now| now.started == process.started && now.is_alive())
}

/// Returns the keeper of the dlock whose front is `front`.
pub(crate) fn keeper_of(front: i32) -> Option<i32> {
    children(front).into_iter().find(|p| p.is_alive() && p.name == "lease-keeper").map(|p| p.pid)
}

/// Sends a signal. If the process is gone already, the test does not fail.
pub(crate) fn signal(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid) {
        let _ = kill_process(pid, signal);
    }
}

/// Kills these processes so that none of them runs in between: all are put on one processor, which the killer keeps to
/// itself until it is done. If that is not permitted, prints the reason and returns false.
pub(crate) fn kill_at_once(pids: &[i32]) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap_or("0");
    let processor = allowed.trim().split(['-', ',']).next().unwrap_or("0").to_owned();
    let script = r#"processor=$1; shift
        for pid; do taskset -pc "$processor" "$pid" >/dev/null || exit; done
        exec chrt -f 50 taskset -c "$processor" sh -c 'kill -KILL "$@"' sh "$@""#;
    let killer = std::process::Command::new("sh")
        .args(["-c", script, "sh", &processor])
        .args(pids.iter().map(ToString::to_string))
        .output()
        .expect("a shell");
    if !killer.status.success() {
        eprintln!("skipped: {}", String::from_utf8_lossy(&killer.stderr).trim());
    }
    killer.status.success()
}

/// Waits until `keeper` has reported to the front that the command runs. After that it leaves the caller's directory.
pub(crate) fn await_started(keeper: i32) {
    let place = format!("/proc/{keeper}/cwd");
    super::wait::until("a reported start", || {
        std::fs::read_link(&place).is_ok_and(|place| place.as_os_str() == "/").then_some(())
    });
}
