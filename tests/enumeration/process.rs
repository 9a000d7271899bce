//! Reads the state of processes from /proc.

use std::fs;

pub(crate) use crate::support::process::{all_pids, has_variable, look, signal};

/// Returns whether a process can still act: it exists, is no zombie or has other threads, and has no pending SIGKILL.
pub(crate) fn lives(pid: i32) -> bool {
    let Ok(text) = fs::read_to_string(format!("/proc/{pid}/status")) else { return false };
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map_or("", str::trim);
    let killed = ["SigPnd:", "ShdPnd:"].into_iter().any(|name| {
        u64::from_str_radix(field(name), 16).is_ok_and(|pending| pending & (1 << (libc::SIGKILL - 1)) != 0)
    });
    let is_zombie = field("State:").starts_with(['Z', 'X']) && matches!(field("Threads:"), "" | "0" | "1");
    !(killed || is_zombie || text.is_empty())
}

/// Returns whether the number is that of a thread of a process with another number.
pub(crate) fn is_thread(tid: i32) -> bool {
    let text = fs::read_to_string(format!("/proc/{tid}/status")).unwrap_or_default();
    let group = text.lines().find_map(|line| line.strip_prefix("Tgid:"));
    group.and_then(|group| group.trim().parse().ok()).is_some_and(|group: i32| group != tid)
}

/// Returns the children of this process, dead ones included.
pub(crate) fn own_children() -> Vec<i32> {
    let id = std::process::id();
    let text = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
    text.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// Returns number, name, state, parent and pending signals of a process, for display.
pub(crate) fn describe(pid: i32) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let shown = ["Name:", "State:", "PPid:", "SigPnd:", "ShdPnd:"];
    let fields = text.lines().filter(|line| shown.iter().any(|name| line.starts_with(name)));
    format!("{pid} ({})", fields.map(|line| line.replace('\t', " ")).collect::<Vec<_>>().join(", "))
}

/// Returns whether a process is, dead or alive, a child of this one.
pub(crate) fn is_own_child(pid: i32) -> bool {
    own_children().contains(&pid)
}
