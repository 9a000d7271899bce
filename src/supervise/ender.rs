//! Kills the command's tree: every descendant of this process, wherever it moved.
//!
//! Front and keeper are child subreapers. An orphan of the tree therefore becomes a child of the keeper, or of the
//! front once the keeper is dead. So the tree is *gone* exactly when the kernel reports no child left (`ECHILD`), and
//! never because something could not be read. The ender finds members in a process table that is proved to be this
//! namespace's, and signals them through pidfds. Without such a table it kills the command and its process group, and
//! whether others are left is unknown.
//!
//! The ender has all it needs before the command starts. On its way it prints nothing and allocates nothing, and it
//! opens only what its spare descriptors leave room for.

use std::io;
use std::time::Duration;

use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;

use super::adopted::Adopted;
use super::exit_status::ExitStatus;
use super::process_table::{Process, ProcessTable};
use super::proof::Hidden;
use super::shared::Shared;
use super::signals::Signal;
use super::sys;
use super::tree_state::{Progress, Reached, TreeState};
use super::wait::{self, ChildChange, Children};
use crate::clock::now;

/// How long a process that is just forking may take before it stops.
const STOPPING: Duration = Duration::from_millis(50);

/// The means of one process, front or keeper, to kill the tree.
#[derive(Debug)]
pub struct Ender {
    /// The processes, or why not every member can be found.
    pub table: Result<ProcessTable, Hidden>,
    /// Children of this process from before it executed dlock. They do not belong to the tree.
    outside: Vec<i32>,
    pub(super) shared: Shared,
    /// Whether the command has a process group of its own.
    own_group: bool,
    /// A pidfd of the command, once it has started, if the kernel has pidfds.
    pub command: Option<OwnedFd>,
    /// The adopted process, if there is one instead of a command.
    pub adopted: Option<Adopted>,
    /// The pid of the front.
    pub(super) front: i32,
    /// The process group that was sent SIGTERM or SIGHUP. A background job of a shell ignores the other ending signals.
    told: Option<i32>,
}

impl Ender {
    /// Creates an ender for this process, which has started no command yet. `own_group`: the command will have a
    /// process group of its own.
    ///
    /// Errors: the system has no descriptors or memory left; or this process has children and cannot see all processes.
    pub fn new(shared: Shared, own_group: bool) -> io::Result<Self> {
        let mut table = ProcessTable::open()?;
        let own = sys::own_pid();
        let mut outside = Vec::new();
        // Usually there are no children, and no search is needed.
        if wait::have_children()
            && let Ok(table) = &mut table
        {
            if !table.find_members(&[]) {
                // dlock would later take a child that it does not see now for the command's.
                return Err(io::Error::other(
                    "not every process can be seen, and some are children of this one",
                ));
            }
            outside = table.members().filter(|p| p.parent == own).map(|p| p.pid).collect();
            table.members.clear();
        }
        Ok(Self { table, outside, shared, own_group, command: None, adopted: None, front: own, told: None })
    }

    /// Creates an ender for this process, which was just forked from the owner of this one and has no children yet.
    /// Closes the descriptors of this one in the new process.
    ///
    /// Errors: as for [`Ender::new`].
    pub fn hand_over(&mut self) -> io::Result<Self> {
        let table = match std::mem::replace(&mut self.table, Err(Hidden::NotProc)) {
            Ok(table) => table.reopen()?,
            Err(_) => ProcessTable::open()?,
        };
        let adopted = self.adopted.as_ref().map(Adopted::again).transpose()?;
        Ok(Self { table, outside: Vec::new(), command: None, adopted, ..*self })
    }

    /// Notes that `pid` was reaped: its number may come to mean another process.
    pub fn forget(&mut self, pid: i32) {
        self.outside.retain(|outside| *outside != pid);
    }

    /// Returns whether `pid` is stopped, or `None` if that is unknown or there is no such process.
    pub fn is_stopped(&self, pid: i32) -> Option<bool> {
        let table = self.table.as_ref().ok()?;
        table.look(pid).ok().flatten().map(Process::is_stopped)
    }

    /// Returns whether the command is known to have ended; it may not be reaped yet.
    pub fn command_has_ended(&self) -> bool {
        self.shared.outcome().is_some() || self.command.as_ref().is_some_and(wait::has_ended)
    }

    /// Returns the command's pid if it is a child of this process, living or not reaped. Its number then belongs to it.
    fn child(&self) -> Option<i32> {
        self.shared.gate.command().filter(|pid| self.adopted.is_none() && wait::is_child(*pid))
    }

    /// Sends `signal` to the command alone, unless it has ended.
    pub fn signal_command(&self, signal: Signal) {
        if let Some(adopted) = self.protected() {
            adopted.signal(signal);
        } else if let Some(pid) = self.child() {
            drop(sys::kill(pid, signal));
        }
    }

    /// Sends `signal` to the command and to those descendants that are still in its process group. Then resumes the
    /// stopped ones, so that they can act on it.
    pub fn signal_group(&mut self, signal: Signal) {
        let Some(pid) = self.protected().map(|adopted| adopted.pid).or_else(|| self.child()) else { return };
        let group = sys::group_of(pid);
        self.told = self.told.or(matches!(signal, Signal::TERM | Signal::HUP).then_some(group));
        let is_searched = self.adopted.is_some() || !self.own_group;
        if is_searched {
            self.find_members();
        }
        for signal in [signal, Signal::CONT] {
            self.signal_known(signal);
            if is_searched {
                self.signal_found(signal, |member| member.group == group && member.pid != pid);
            }
        }
    }

    /// Resumes the members that the terminal stopped with the job, after the command itself has ended.
    pub fn resume_job(&mut self) {
        if self.own_group {
            return;
        }
        let group = sys::group_of(self.front);
        self.find_members();
        self.signal_found(Signal::CONT, |member| member.group == group);
    }

    /// Sends `signal` to every member once, and then resumes the stopped ones. A process group that was sent SIGTERM or
    /// SIGHUP before is left out.
    ///
    /// Stops all of them first. Otherwise a process that is forked meanwhile would miss the signal. Sending the signal
    /// to the new ones afterwards would not do: it would reach processes that others started in response to it.
    pub fn signal_tree(&mut self, signal: Signal) {
        if self.table.is_err() {
            self.signal_known(signal);
            return self.signal_known(Signal::CONT);
        }
        self.stop_members();
        self.signal_found(signal, |member| Some(member.group) != self.told);
        self.signal_found(Signal::CONT, |_| true);
    }

    /// Stops the members until a search finds none running, and so none that can fork. Some may not stop in time, or
    /// ever: this process may not signal them, or they sleep in the kernel.
    fn stop_members(&mut self) {
        let until = now() + STOPPING;
        for look in 1.. {
            let complete = self.find_members();
            let reached = self.signal_found(Signal::STOP, |member| !member.is_stopped());
            let all_stopped = complete && reached.signalled.is_empty() && !reached.incomplete;
            if all_stopped || (look > 1 && now() >= until) {
                return;
            }
            wait::pause(Duration::from_millis(1));
        }
    }

    /// Does one round of killing the tree: kills the members that need no search, stops all others, so that none forks
    /// meanwhile, then kills those. Repeat until no child is left, and reap between the rounds.
    pub fn kill_round(&mut self) -> Reached {
        if self.adopted.is_some() {
            return self.kill_adopted_round();
        }
        self.signal_known(Signal::KILL);
        let complete = self.find_members();
        self.signal_found(Signal::STOP, |_| true);
        let reached = self.signal_found(Signal::KILL, |_| true);
        Reached { incomplete: reached.incomplete || !complete, ..reached }
    }

    /// Kills every member, and calls `each` for the children that end meanwhile. Blocks until none is left, or the
    /// rest cannot be killed: this process may not signal them, no more of them end ([`Progress`]), or they cannot be
    /// seen.
    pub fn end(&mut self, mut each: impl FnMut(i32, ExitStatus)) -> TreeState {
        let mut progress = Progress::default();
        loop {
            let reached = self.kill_round();
            let none_left = self.reap(&mut each);
            let gone = match &self.adopted {
                Some(_) => none_left && self.adopted_is_gone(),
                None => none_left || self.only_outside_is_left(),
            };
            if gone {
                return TreeState::Gone;
            }
            if (reached.is_in_vain() && !reached.denied.is_empty()) || progress.is_stuck(&reached, now()) {
                return reached.state();
            }
            // Killed processes become zombies in a moment. SIGCHLD is blocked here, so wait for one briefly.
            wait::pause(Duration::from_millis(1));
        }
    }

    /// Takes all changes of children. Returns whether no child is left.
    fn reap(&mut self, mut each: impl FnMut(i32, ExitStatus)) -> bool {
        loop {
            match wait::next_change() {
                Children::Changed(pid, ChildChange::Ended(end)) => {
                    self.forget(pid);
                    each(pid, end);
                }
                Children::Changed(..) => {}
                Children::None => return true,
                Children::Quiet => return false,
            }
        }
    }

    /// Returns whether only children from before dlock are left. Searches twice, since a process may start behind the
    /// first search's back.
    fn only_outside_is_left(&mut self) -> bool {
        let Self { table: Ok(table), outside, .. } = self else { return false };
        !outside.is_empty() && (0..2).all(|_| table.find_members(outside) && table.members().next().is_none())
    }

    /// Sends `signal` to the members that need no search: the command's group if it has its own, otherwise the command.
    pub(super) fn signal_known(&self, signal: Signal) {
        if let Some(adopted) = self.protected() {
            return adopted.signal(signal);
        }
        match (&self.command, self.child()) {
            // A pidfd means the group for ever; its number is safe only until the command is reaped.
            (Some(handle), _)
                if self.own_group && sys::signal_by_handle(handle.as_fd(), signal, true).is_ok() => {}
            (_, Some(pid)) if self.own_group => to_group(pid, signal),
            (_, Some(pid)) => drop(sys::kill(pid, signal)),
            (_, None) => {}
        }
    }

    /// Searches for the members. Returns whether the search saw all processes.
    pub(super) fn find_members(&mut self) -> bool {
        if self.adopted.is_some() {
            return self.find_adopted();
        }
        self.table.as_mut().is_ok_and(|table| table.find_members(&self.outside))
    }

    /// Sends `signal` to every member of the last search that `wanted` accepts. Parents come before their children;
    /// with SIGCONT children come first, so that no parent sees its children stopped.
    pub(super) fn signal_found(&self, signal: Signal, wanted: impl Fn(Process) -> bool) -> Reached {
        let mut reached = Reached::default();
        let Ok(table) = &self.table else { return reached };
        if self.adopted.is_some() && self.protected().is_none() {
            return reached;
        }
        let one = |member: Process| match signal_member(table, member, signal) {
            Ok(()) => reached.signalled.add(member.pid),
            Err(Errno::PERM) => reached.denied.add(member.pid),
            Err(Errno::SRCH) => {}
            Err(_) => reached.incomplete = true,
        };
        let members = table.members().filter(|member| wanted(*member));
        if signal == Signal::CONT {
            members.rev().for_each(one);
        } else {
            members.for_each(one);
        }
        reached
    }
}

/// Sends `signal` to `member`.
///
/// Errors: `PERM` if this process may not, `SRCH` if `member` has ended, others if it cannot be done this time.
fn signal_member(table: &ProcessTable, member: Process, signal: Signal) -> Result<(), Errno> {
    match table.with_handle(member, |handle| send(member.pid, handle, signal)) {
        Ok(Some(answer @ (Ok(()) | Err(Errno::PERM | Errno::SRCH)))) => answer,
        Ok(None) => Err(Errno::SRCH),
        // No pidfd, or no answer. The number of a child belongs to that child, and a stray SIGCONT does no harm.
        Ok(Some(Err(_))) | Err(_) if signal == Signal::CONT || wait::is_child(member.pid) => {
            sys::kill(member.pid, signal).map_err(|_| Errno::AGAIN)
        }
        Ok(Some(Err(errno))) | Err(errno) => Err(errno),
    }
}

/// Sends `signal` to the group of the command; to the command alone if it leads no group or the group refuses it.
fn to_group(command: i32, signal: Signal) {
    if sys::kill(-command, signal).is_err() {
        drop(sys::kill(command, signal));
    }
}

fn send(pid: i32, handle: Option<&OwnedFd>, signal: Signal) -> Result<(), Errno> {
    let errno = |error: io::Error| Errno::from_io_error(&error).unwrap_or(Errno::INVAL);
    let by_number = || if pid > 0 { sys::kill(pid, signal).map_err(errno) } else { Err(Errno::SRCH) };
    let Some(handle) = handle else { return by_number() };
    match sys::signal_by_handle(handle.as_fd(), signal, false).map_err(errno) {
        // A pidfd may exist here and yet be unusable; a container profile may return EPERM. If this process really may
        // not signal the target, the attempt by number fails, too.
        Err(Errno::NOSYS | Errno::PERM) => by_number(),
        sent => sent,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    use rustix::process::{Pid, PidfdFlags, pidfd_open};

    use super::*;

    #[test]
    fn a_real_time_signal_reaches_a_member() {
        let signal = Signal::named("RTMIN+1").expect("a signal");
        for by_handle in [true, false] {
            let mut child = Command::new("sleep").arg("100").spawn().expect("a process");
            let pid = i32::try_from(child.id()).expect("a pid");
            let handle =
                Pid::from_raw(pid).map(|pid| pidfd_open(pid, PidfdFlags::empty()).expect("a handle"));
            let sent = send(pid, handle.as_ref().filter(|_| by_handle), signal);
            drop(sys::kill(pid, Signal::KILL));
            let ended = child.wait().expect("a status").signal();
            assert_eq!((sent, ended), (Ok(()), Some(signal.number())));
        }
    }
}
