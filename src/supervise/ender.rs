//! Ends the command's tree: every descendant of this process, wherever it moved.
//!
//! Front and keeper are child subreapers, so an orphan of the tree becomes a child of the keeper, or of the front
//! once the keeper is dead. The tree is therefore *gone* exactly when the kernel says that no child is left
//! (`ECHILD`), and never because something could not be read. Members are found in a proved process table
//! and signalled through handles. Without such a table the command and its process group are ended all the same,
//! and whatever else there may be is not known to be gone.
//!
//! What it needs it has before the command starts: on its way it prints nothing, takes no memory, and opens only
//! what the descriptors that it keeps to spare have room for.

use std::io;
use std::time::Duration;

use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;

use super::adopted::Adopted;
use super::process_table::{Process, ProcessTable};
use super::proof::Hidden;
use super::shared::Shared;
use super::signals::Signal;
use super::sys;
use super::tree_state::{Reached, TreeState};
use super::wait::{self, ChildChange, Children};
use crate::clock::now;

/// How long whoever forks just now may take for that before it stops.
const STOPPING: Duration = Duration::from_millis(50);
/// What has not ended so long after SIGKILL is in the kernel's hands, such as in an uninterruptible sleep.
pub const UNKILLABLE: Duration = Duration::from_secs(2);

/// See the module.
#[derive(Debug)]
pub struct Ender {
    pub(super) table: Result<ProcessTable, Hidden>,
    /// Children that this process had before it was dlock: they are nobody's tree.
    outside: Vec<i32>,
    pub(super) shared: Shared,
    /// The command has a process group of its own.
    own_group: bool,
    /// A handle on the command, once it has started, where there are handles.
    command: Option<OwnedFd>,
    /// What stands in the place of a command, if something does.
    pub(super) adopted: Option<Adopted>,
    /// The pid of the front.
    pub(super) front: i32,
}

impl Ender {
    /// One for this process, which has started nothing yet. `own_group`: the command will have a process group of
    /// its own.
    ///
    /// Errors: the system has no descriptors or memory for what it needs to have beforehand.
    pub fn new(shared: Shared, own_group: bool) -> io::Result<Self> {
        let mut table = ProcessTable::open()?;
        let own = sys::own_pid();
        let mut outside = Vec::new();
        // The usual answer costs no look at anybody.
        if wait::have_children()
            && let Ok(table) = &mut table
        {
            if !table.find_members(&[]) {
                // A child that is not seen now would be taken for the command's later.
                return Err(io::Error::other(
                    "not every process can be seen, and some are children of this one",
                ));
            }
            outside = table.members().filter(|p| p.parent == own).map(|p| p.pid).collect();
            table.forget_members();
        }
        Ok(Self { table, outside, shared, own_group, command: None, adopted: None, front: own })
    }

    /// That of this process, which was just forked from the one that this ender is of and has no children yet. What
    /// is left of this one has no descriptors any more.
    ///
    /// Errors: as for [`Ender::new`].
    pub fn hand_over(&mut self) -> io::Result<Self> {
        // A directory that two processes share has one position for both.
        self.table = Err(Hidden::NotProc);
        let adopted = self.adopted.as_ref().map(Adopted::again).transpose()?;
        Ok(Self { adopted, front: self.front, ..Self::new(self.shared, self.own_group)? })
    }

    /// Why not every member can be found, if so.
    pub fn hidden(&self) -> Option<&Hidden> {
        self.table.as_ref().err()
    }

    /// The command has started; `handle` is a pidfd of it, where there are any.
    pub fn started(&mut self, handle: Option<OwnedFd>) {
        self.command = handle;
    }

    /// A descriptor for the other process, which is to become its handle on the command.
    pub fn handle(&self) -> Option<&OwnedFd> {
        self.command.as_ref()
    }

    /// `pid` was reaped; its number may come to mean another process.
    pub fn forget(&mut self, pid: i32) {
        self.outside.retain(|outside| *outside != pid);
    }

    /// Whether `pid` is stopped; `None` if that cannot be told, also because no such process is seen.
    pub fn is_stopped(&self, pid: i32) -> Option<bool> {
        let table = self.table.as_ref().ok()?;
        table.look(pid).ok().flatten().map(Process::is_stopped)
    }

    /// Whether the command has ended, as far as known; it may not be reaped yet.
    pub fn command_has_ended(&self) -> bool {
        self.shared.outcome().is_some() || self.command.as_ref().is_some_and(wait::has_ended)
    }

    /// The command's pid if it is a child of this process, living or not reaped: then the number is its own.
    fn child(&self) -> Option<i32> {
        self.shared.gate.command().filter(|pid| self.adopted.is_none() && wait::is_child(*pid))
    }

    /// Sends `signal` to the command alone. One that has ended needs none.
    pub fn signal_command(&self, signal: Signal) {
        if let Some(adopted) = self.protected() {
            adopted.signal(signal);
        } else if let Some(pid) = self.child() {
            drop(sys::kill(pid, signal));
        }
    }

    /// Sends `signal` to the command and to those of its descendants that are still in its process group, then lets
    /// the stopped ones among them go on, so that they can act on it.
    pub fn signal_group(&mut self, signal: Signal) {
        let Some(pid) = self.protected().map(Adopted::pid).or_else(|| self.child()) else { return };
        let group = sys::group_of(pid);
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

    /// Lets those go on that the terminal has stopped with the job, although the command itself has ended.
    pub fn resume_job(&mut self) {
        if self.own_group {
            return;
        }
        let group = sys::group_of(self.front);
        self.find_members();
        self.signal_found(Signal::CONT, |member| member.group == group);
    }

    /// Sends `signal` to every member, once, and then lets the stopped ones go on.
    ///
    /// All are stopped before. Else whoever is forked meanwhile would get nothing; and were the signal sent again to those that
    /// are new, it would reach what others have started on account of it.
    pub fn signal_tree(&mut self, signal: Signal) {
        if self.table.is_err() {
            self.signal_known(signal);
            return self.signal_known(Signal::CONT);
        }
        self.stop_members();
        self.signal_found(signal, |_| true);
        self.signal_found(Signal::CONT, |_| true);
    }

    /// Stops the members until a look finds nobody who runs, and so nobody who forks. Some may not stop in time, or ever: they
    /// may not be signalled, or sleep in the kernel.
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

    /// One round of ending the tree: kills those that need not be looked for, stops every other member, so that none
    /// forks meanwhile, then kills them. Repeat until no child is left; reap between the rounds.
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

    /// Ends every member, and tells `each` of the changes of children meanwhile. Returns when none is left, or when
    /// those that are cannot be ended: they may not be signalled, the kernel keeps them, or they are not seen.
    pub fn end(&mut self, mut each: impl FnMut(i32, ChildChange)) -> TreeState {
        let began = now();
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
            if (reached.is_in_vain() && !reached.denied.is_empty()) || now().since(began) > UNKILLABLE {
                return reached.state();
            }
            // What was killed turns into a zombie in a moment; SIGCHLD is blocked here, so wait for one briefly.
            wait::pause(Duration::from_millis(1));
        }
    }

    /// Takes all changes of children; whether none is left.
    fn reap(&mut self, mut each: impl FnMut(i32, ChildChange)) -> bool {
        loop {
            match wait::next_change() {
                Children::Changed(pid, change) => {
                    if change.is_end() {
                        self.forget(pid);
                    }
                    each(pid, change);
                }
                Children::None => return true,
                Children::Quiet => return false,
            }
        }
    }

    /// Whether the children that are left are those from before. Looked at twice, since a process may be born behind
    /// the first look's back.
    fn only_outside_is_left(&mut self) -> bool {
        let Self { table: Ok(table), outside, .. } = self else { return false };
        !outside.is_empty() && (0..2).all(|_| table.find_members(outside) && table.members().next().is_none())
    }

    /// Sends `signal` to those that need no table: the command's group if that is its own, else the command.
    pub(super) fn signal_known(&self, signal: Signal) {
        if let Some(adopted) = self.protected() {
            return adopted.signal(signal);
        }
        match (&self.command, self.child()) {
            // A handle knows the group for ever, its number only as long as the command is not reaped.
            (Some(handle), _) if self.own_group && sys::signal_group_of(handle.as_fd(), signal).is_ok() => {}
            (_, Some(pid)) if self.own_group => to_group(pid, signal),
            (_, Some(pid)) => drop(sys::kill(pid, signal)),
            (_, None) => {}
        }
    }

    /// Looks for the members; whether all were seen.
    pub(super) fn find_members(&mut self) -> bool {
        if self.adopted.is_some() {
            return self.find_adopted();
        }
        self.table.as_mut().is_ok_and(|table| table.find_members(&self.outside))
    }

    /// Sends `signal` to every member that the last look found and `wanted` picks; to parents before their children, but
    /// SIGCONT the other way round, so that nobody sees its children stopped.
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

/// Sends `signal` to `member`. Errors: `PERM` if this process may not, `SRCH` if it has ended, others if that cannot be done
/// this time.
fn signal_member(table: &ProcessTable, member: Process, signal: Signal) -> Result<(), Errno> {
    match table.with_handle(member, |handle| send(member.pid, handle, signal)) {
        Ok(Some(answer @ (Ok(()) | Err(Errno::PERM | Errno::SRCH)))) => answer,
        Ok(None) => Err(Errno::SRCH),
        // No handle, or no answer. The number of a child of this process is its own, and nobody minds a SIGCONT.
        Ok(Some(Err(_))) | Err(_) if signal == Signal::CONT || wait::is_child(member.pid) => {
            sys::kill(member.pid, signal).map_err(|_| Errno::AGAIN)
        }
        Ok(Some(Err(errno))) | Err(errno) => Err(errno),
    }
}

/// Sends `signal` to the group of the command, and to the command alone if it leads none or the group is refused.
fn to_group(command: i32, signal: Signal) {
    if sys::kill(-command, signal).is_err() {
        drop(sys::kill(command, signal));
    }
}

fn send(pid: i32, handle: Option<&OwnedFd>, signal: Signal) -> Result<(), Errno> {
    let errno = |error: io::Error| Errno::from_io_error(&error).unwrap_or(Errno::INVAL);
    let by_number = || if pid > 0 { sys::kill(pid, signal).map_err(errno) } else { Err(Errno::SRCH) };
    let Some(handle) = handle else { return by_number() };
    match sys::signal_process_of(handle.as_fd(), signal).map_err(errno) {
        // Handles may be had here, but not be used; a profile may say EPERM. Who may really not be signalled may not be by its
        // number, either.
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
