//! Processes that a /proc mounted with `hidepid` does not show.
//!
//! The kernel returns the session of every process, even of a hidden one. A hidden process in the session of the
//! adopted one may belong to its tree, unless it is older than the claim. Such a process is not known to be gone. It is
//! known to be none of the tree once its line of parents is known to come from elsewhere: since Linux 6.13 the kernel
//! returns the parent of a hidden process, and /proc that of one that is no longer hidden.

use std::{fs, io};

use rustix::fd::{AsFd as _, OwnedFd};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::process_table::ProcessTable;
use super::sys;
use super::tree_state::Pids;
use super::wait::has_ended;

/// The largest number that a process can have on Linux.
const LARGEST: i32 = 1 << 22;
/// The longest line of parents to follow.
const LONGEST: u32 = 1000;

/// The hidden processes of one session.
#[derive(Clone, Debug)]
pub(super) struct Unlisted {
    session: i32,
    /// Those from before the claim.
    before: Vec<i32>,
    /// Those that the last search found in addition.
    found: Pids,
}

impl Unlisted {
    /// Lists the hidden processes of `session`. Returns `None` if /proc shows all processes.
    ///
    /// Errors: it is unknown whether /proc hides processes.
    pub(super) fn new(session: i32, table: &ProcessTable) -> io::Result<Option<Self>> {
        let hides = hides(&fs::read_to_string("/proc/self/mountinfo")?);
        let of_session =
            || Self { session, before: hidden(session, table).collect(), found: Pids::default() };
        Ok(hides.then(of_session))
    }

    /// Searches for hidden processes that may descend from the adopted one, which has ended: those younger than the
    /// claim. A process that an earlier search found stays until it ends or is known to come from elsewhere. `reaper` is
    /// the process that adopts orphans of the adopted one.
    pub(super) fn find(&mut self, table: &ProcessTable, reaper: Option<i32>) {
        let may_descend = |pid: &i32| self.may_descend(*pid, table, reaper);
        let mut found: Pids = self.found().named().iter().copied().filter(may_descend).collect();
        if found.is_empty() {
            let young = hidden(self.session, table).filter(|pid| !self.before.contains(pid));
            found = young.filter(may_descend).collect();
        }
        self.found = found;
    }

    /// Returns those of the last search that are still there.
    pub(super) fn found(&self) -> Pids {
        self.found.named().iter().copied().filter(|pid| may_live(*pid)).collect()
    }

    /// Returns whether `pid` may descend from an orphan of the adopted process. Its line of parents would lead to the
    /// `reaper` then. It comes from elsewhere if the line first leads to a process from before the claim, such as the
    /// leader of the session.
    fn may_descend(&self, pid: i32, table: &ProcessTable, reaper: Option<i32>) -> bool {
        let mut pid = pid;
        for _ in 0..LONGEST {
            let shown = table.look(pid).ok().flatten().map(|process| process.parent);
            let parent = shown.or_else(|| sys::parent_of(handle(pid)?.as_fd()));
            match parent.filter(|parent| *parent > 0 && reaper.is_some_and(|reaper| reaper != *parent)) {
                None => return true,
                Some(parent) if parent == self.session || self.before.contains(&parent) => return false,
                Some(parent) => pid = parent,
            }
        }
        true
    }
}

/// Returns a pidfd of `pid`, unless it is a thread or a process that has ended.
pub(super) fn handle(pid: i32) -> Option<OwnedFd> {
    let handle = pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
    (!has_ended(&handle)).then_some(handle)
}

/// Lists the processes of `session` that `table` does not show.
fn hidden(session: i32, table: &ProcessTable) -> impl Iterator<Item = i32> {
    let largest =
        fs::read_to_string("/proc/sys/kernel/pid_max").ok().and_then(|text| text.trim().parse().ok());
    let of_session =
        (1..=largest.unwrap_or(LARGEST)).filter(move |pid| sys::session_of(*pid) == Some(session));
    of_session.filter(|pid| !matches!(table.look(*pid), Ok(Some(_))) && may_live(*pid))
}

/// Returns whether `pid` may be a process that has not ended. A thread is not a process.
fn may_live(pid: i32) -> bool {
    let Some(pid) = Pid::from_raw(pid) else { return false };
    match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(handle) => !has_ended(&handle),
        // Not known is not gone.
        Err(errno) => !matches!(errno, Errno::SRCH | Errno::INVAL | Errno::NOENT),
    }
}

/// Returns whether /proc has the option `hidepid`, by the last mount in /proc/self/mountinfo.
fn hides(mounts: &str) -> bool {
    let last = mounts.lines().rfind(|line| line.split(' ').nth(4) == Some("/proc"));
    let options = last.into_iter().flat_map(|line| line.split([' ', ',']));
    options.filter_map(|option| option.strip_prefix("hidepid=")).any(|how| !matches!(how, "0" | "off"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidepid_is_found_in_both_lists_of_options() {
        let line = |own: &str, all: &str| format!("22 1 0:5 / /proc {own} shared:1 - proc proc {all}\n");
        assert!(hides(&line("rw,nosuid", "rw,hidepid=invisible")));
        assert!(hides(&line("rw,hidepid=2", "rw")));
        assert!(!hides(&line("rw,nosuid", "rw,hidepid=off")));
        assert!(!hides(&(line("rw", "rw,hidepid=2") + &line("rw", "rw"))), "the last one counts");
    }
}
