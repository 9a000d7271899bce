//! The running command.

use std::os::fd::OwnedFd;

use rustix::process::{Pid, PidfdFlags, pidfd_open, pidfd_send_signal};

use super::signals::Signal;
use super::sys;
use super::tree;

/// The command's first process, a child of this one.
#[derive(Debug)]
pub struct Child {
    pid: i32,
    own_group: bool,
    handle: Option<OwnedFd>,
}

impl Child {
    /// Takes the just started `pid`, which has a group of its own or not.
    pub(super) fn new(pid: i32, own_group: bool) -> Self {
        let handle = Pid::from_raw(pid).and_then(|p| pidfd_open(p, PidfdFlags::empty()).ok());
        Self { pid, own_group, handle }
    }

    /// Its pid.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Sends `signal` to the command alone.
    pub fn signal(&self, signal: Signal) {
        let named = rustix::process::Signal::from_named_raw(signal.number());
        match (&self.handle, named) {
            // A command that has ended meanwhile needs no signal.
            (Some(handle), Some(named)) => drop(pidfd_send_signal(handle, named)),
            // Real-time signals, or a kernel without pidfds; the child is ours and not yet reaped.
            _ => drop(sys::kill(self.pid, signal)),
        }
    }

    /// Sends `signal` to the command and to those of its descendants that are still in its process group, then
    /// lets the stopped ones among them go on, so that they can act on it.
    pub fn signal_group(&self, signal: Signal) {
        if self.own_group {
            drop(sys::kill(-self.pid, signal));
            drop(sys::kill(-self.pid, Signal::CONT));
            return;
        }
        let group = sys::group_of(self.pid);
        self.signal(signal);
        tree::signal(signal, |member| member.group == group && member.pid != self.pid);
        tree::signal(Signal::CONT, |member| member.group == group);
    }
}
