//! What becomes of children.

use std::time::Duration;

use rustix::event::{Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, WaitOptions, WaitStatus, wait, waitpid};

use super::signals::Signal;
use crate::clock::now;

/// How a child changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChildChange {
    /// It exited with this status.
    Exited(u8),
    /// It died of this signal.
    Killed(Signal),
    /// It was stopped by this signal.
    Stopped(Signal),
    /// It goes on.
    Continued,
}

/// What [`next_change`] found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Children {
    /// This child changed; if it ended it is reaped.
    Changed(i32, ChildChange),
    /// There are children, and none has changed.
    Quiet,
    /// There is no child, living or dead.
    None,
}

fn change(status: WaitStatus) -> ChildChange {
    let signal = |number: Option<i32>| number.and_then(Signal::new).unwrap_or(Signal::KILL);
    if let Some(code) = status.exit_status() {
        // The kernel keeps eight bits.
        ChildChange::Exited(u8::try_from(code & 0xff).unwrap_or(0))
    } else if status.stopped() {
        ChildChange::Stopped(signal(status.stopping_signal()))
    } else if status.continued() {
        ChildChange::Continued
    } else {
        ChildChange::Killed(signal(status.terminating_signal()))
    }
}

/// Takes the next change of any child, without waiting.
pub fn next_change() -> Children {
    let options = WaitOptions::NOHANG | WaitOptions::UNTRACED | WaitOptions::CONTINUED;
    loop {
        match wait(options) {
            Ok(Some((pid, status))) => {
                return Children::Changed(pid.as_raw_nonzero().get(), change(status));
            }
            Ok(None) => return Children::Quiet,
            Err(Errno::INTR) => {}
            Err(_) => return Children::None,
        }
    }
}

/// Waits until the child `pid` has ended, reaps it and says how it ended; `None` if it is no child.
pub fn await_end(pid: i32) -> Option<ChildChange> {
    loop {
        match waitpid(Pid::from_raw(pid), WaitOptions::empty()) {
            Ok(Some((_, status))) => return Some(change(status)),
            Err(Errno::INTR) => {}
            Ok(None) | Err(_) => return None,
        }
    }
}

/// Waits until the child `pid` has ended, but only so long; reaps it and says how it ended. Other children that
/// end meanwhile are reaped.
pub fn end_within(pid: i32, length: Duration) -> Option<ChildChange> {
    let until = now() + length;
    while now() < until {
        match next_change() {
            Children::Changed(child, change @ (ChildChange::Exited(_) | ChildChange::Killed(_)))
                if child == pid =>
            {
                return Some(change);
            }
            Children::Changed(..) => {}
            Children::Quiet => {
                let _ = poll(&mut [], Some(&Timespec { tv_sec: 0, tv_nsec: 1_000_000 }));
            }
            Children::None => return None,
        }
    }
    None
}
