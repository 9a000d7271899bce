//! The command's tree: every descendant of this process, wherever it moved.
//!
//! Front and keeper are child subreapers, so an orphan of the tree becomes a child of the keeper, or of the
//! front once the keeper is dead. The tree is therefore gone exactly when there is no child left, and every
//! member can be reached from the children. Members are found through /proc and signalled through pidfds
//! after checking who their parent is, so a reused pid is never hit.

use std::fs;
use std::time::Duration;

use rustix::event::poll;
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, getpid, kill_process, pidfd_open, pidfd_send_signal};

use super::signals::Signal;
use super::wait::{self, ChildChange, Children};
use crate::clock::now;

/// What has not ended so long after SIGKILL is in the kernel's hands, such as in an uninterruptible sleep.
pub const UNKILLABLE: Duration = Duration::from_secs(2);

/// One living member of the tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Member {
    /// Its pid.
    pub pid: i32,
    /// Its process group.
    pub group: i32,
}

/// What signalling the tree came to.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Reached {
    /// Members that the signal reached.
    pub signalled: Vec<i32>,
    /// Members that this process may not signal.
    pub denied: Vec<i32>,
}

struct Stat {
    state: u8,
    parent: i32,
    group: i32,
}

fn stat(pid: i32) -> Option<Stat> {
    Glance::at(pid)?.stat()
}

/// A process whose state is looked at again and again, or will be when there is no time.
#[derive(Debug)]
pub struct Glance(OwnedFd);

impl Glance {
    /// Makes ready to look at `pid`; `None` where /proc does not show it.
    pub fn at(pid: i32) -> Option<Self> {
        let path = format!("/proc/{pid}/stat");
        rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok().map(Self)
    }

    /// Whether it is stopped right now.
    pub fn is_stopped(&self) -> bool {
        self.stat().is_some_and(|s| s.state == b'T')
    }

    fn stat(&self) -> Option<Stat> {
        // The fields wanted stand right behind the name, which has at most 64 bytes.
        let mut text = [0; 256];
        let length = rustix::io::pread(&self.0, &mut text, 0).ok()?;
        parse(&text[..length])
    }
}

/// Field 3 and the next two of /proc/PID/stat; the name before them may contain anything.
fn parse(text: &[u8]) -> Option<Stat> {
    let rest = &text[text.iter().rposition(|b| *b == b')')? + 1..];
    let mut fields = rest.split(|b| *b == b' ').filter(|f| !f.is_empty());
    let state = *fields.next()?.first()?;
    let mut number = || std::str::from_utf8(fields.next()?).ok()?.parse().ok();
    Some(Stat { state, parent: number()?, group: number()? })
}

/// Whether `pid` is stopped right now.
pub fn is_stopped(pid: i32) -> bool {
    stat(pid).is_some_and(|s| s.state == b'T')
}

/// Whether /proc shows this process, so that the tree can be found.
pub fn can_be_found() -> bool {
    stat(getpid().as_raw_nonzero().get()).is_some()
}

/// The children of `pid`: by the kernel's own list where it is built in, else by a look at every process.
fn children(pid: i32) -> Vec<i32> {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let mut found = Vec::new();
    for thread in threads.flatten() {
        match fs::read_to_string(thread.path().join("children")) {
            Ok(list) => found.extend(list.split_ascii_whitespace().filter_map(|p| p.parse::<i32>().ok())),
            Err(error)
                if error.kind() == std::io::ErrorKind::NotFound
                    && fs::exists(thread.path()).unwrap_or(false) =>
            {
                return children_by_search(pid);
            }
            Err(_) => {}
        }
    }
    found
}

fn children_by_search(parent: i32) -> Vec<i32> {
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = processes.flatten().filter_map(|e| e.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| stat(*pid).is_some_and(|s| s.parent == parent)).collect()
}

/// Calls `visit` with each living member and a handle on it, parents before their children.
fn walk(mut visit: impl FnMut(Member, Option<&OwnedFd>)) {
    let root = getpid().as_raw_nonzero().get();
    let mut pending: Vec<(i32, i32)> = children(root).into_iter().map(|pid| (pid, root)).collect();
    while let Some((pid, parent)) = pending.pop() {
        // The handle first, then the look at who it is: were the pid reused in between, the handle would be
        // that of the dead process and the signal go nowhere.
        let handle = Pid::from_raw(pid).and_then(|p| pidfd_open(p, PidfdFlags::empty()).ok());
        let Some(stat) = stat(pid) else { continue };
        if (stat.parent != parent && stat.parent != root) || matches!(stat.state, b'Z' | b'X') {
            continue;
        }
        pending.extend(children(pid).into_iter().map(|child| (child, pid)));
        visit(Member { pid, group: stat.group }, handle.as_ref());
    }
}

fn send(pid: i32, handle: Option<&OwnedFd>, signal: Signal) -> Result<(), Errno> {
    let signal = rustix::process::Signal::from_named_raw(signal.number()).ok_or(Errno::INVAL)?;
    match handle {
        Some(handle) => pidfd_send_signal(handle, signal),
        // Linux before 5.3, or a container profile without pidfds.
        None => Pid::from_raw(pid).map_or(Err(Errno::SRCH), |pid| kill_process(pid, signal)),
    }
}

/// Sends `signal` to every living member that `wanted` picks.
pub fn signal(signal: Signal, wanted: impl Fn(Member) -> bool) -> Reached {
    let mut reached = Reached::default();
    walk(|member, handle| {
        if wanted(member) {
            match send(member.pid, handle, signal) {
                Ok(()) => reached.signalled.push(member.pid),
                Err(Errno::PERM) => reached.denied.push(member.pid),
                Err(_) => {}
            }
        }
    });
    reached
}

/// One round of ending the tree: stops every member, so that none forks meanwhile, then kills every member.
/// Repeat until no child is left; reap between the rounds.
pub fn kill_round() -> Reached {
    signal(Signal::STOP, |_| true);
    signal(Signal::KILL, |_| true)
}

/// Ends every descendant, and tells `each` of the changes of children meanwhile. Returns when none is left, or
/// with the pids of those that cannot be ended: that may not be signalled, or that the kernel keeps.
pub fn end(mut each: impl FnMut(i32, ChildChange)) -> Vec<i32> {
    let began = now();
    loop {
        let reached = kill_round();
        loop {
            match wait::next_change() {
                Children::Changed(pid, change) => each(pid, change),
                Children::None => return Vec::new(),
                Children::Quiet => break,
            }
        }
        if reached.signalled.is_empty() && !reached.denied.is_empty() {
            return reached.denied;
        }
        if now().since(began) > UNKILLABLE {
            return [reached.signalled, reached.denied].concat();
        }
        // What was killed turns into a zombie in a moment; SIGCHLD is blocked here, so wait for one briefly.
        let _ = poll(&mut [], Some(&rustix::time::Timespec { tv_sec: 0, tv_nsec: 1_000_000 }));
    }
}
