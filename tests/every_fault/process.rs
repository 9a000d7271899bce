//! Looks at processes as /proc shows them.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};

/// Sends a signal; the process may be gone already.
pub(crate) fn signal(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid) {
        let _ = kill_process(pid, signal);
    }
}

/// The state of `pid` as in /proc/PID/stat; `None` if it is gone.
pub(crate) fn state(pid: i32) -> Option<char> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    text.rsplit_once(") ")?.1.chars().next()
}

/// Whether it can still do something: it is there, no zombie, or one that has other threads, and no SIGKILL is on its
/// way to it.
pub(crate) fn lives(pid: i32) -> bool {
    let Ok(text) = fs::read_to_string(format!("/proc/{pid}/status")) else { return false };
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map_or("", str::trim);
    let killed = ["SigPnd:", "ShdPnd:"].into_iter().any(|name| {
        u64::from_str_radix(field(name), 16).is_ok_and(|pending| pending & (1 << (libc::SIGKILL - 1)) != 0)
    });
    let is_zombie = field("State:").starts_with(['Z', 'X']) && matches!(field("Threads:"), "" | "0" | "1");
    !(killed || is_zombie || text.is_empty())
}

/// Whether the number is that of a thread of a process with another number.
pub(crate) fn is_thread(tid: i32) -> bool {
    let text = fs::read_to_string(format!("/proc/{tid}/status")).unwrap_or_default();
    let group = text.lines().find_map(|line| line.strip_prefix("Tgid:"));
    group.and_then(|group| group.trim().parse().ok()).is_some_and(|group: i32| group != tid)
}

/// The children of this process, dead ones included.
pub(crate) fn own_children() -> Vec<i32> {
    let id = std::process::id();
    let text = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
    text.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// Number, name and state of a process, its parent, and the signals that are on their way to it, to be shown.
pub(crate) fn describe(pid: i32) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let shown = ["Name:", "State:", "PPid:", "SigPnd:", "ShdPnd:"];
    let fields = text.lines().filter(|line| shown.iter().any(|name| line.starts_with(name)));
    format!("{pid} ({})", fields.map(|line| line.replace('\t', " ")).collect::<Vec<_>>().join(", "))
}

/// Whether a process is, dead or alive, a child of this one.
pub(crate) fn is_own_child(pid: i32) -> bool {
    own_children().contains(&pid)
}

/// Whether the environment of a process has the entry.
pub(crate) fn has_variable(pid: i32, entry: &str) -> bool {
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environment.split(|b| *b == 0).any(|each| each == entry.as_bytes())
}

/// Every process that is there.
pub(crate) fn all() -> Vec<i32> {
    let pids = fs::read_dir("/proc").expect("a process table").flatten();
    pids.filter_map(|found| found.file_name().to_str()?.parse().ok()).collect()
}

/// Living processes whose environment has the entry.
pub(crate) fn with_variable(entry: &str) -> Vec<i32> {
    all().into_iter().filter(|pid| lives(*pid)).filter(|pid| has_variable(*pid, entry)).collect()
}
