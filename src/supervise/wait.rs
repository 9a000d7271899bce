//! Changes of children.

use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::process::{
    Pid, WaitId, WaitIdOptions, WaitIdStatus, WaitOptions, WaitStatus, wait, waitid, waitpid,
};

use super::exit_status::ExitStatus;
use super::signals::Signal;
use crate::clock::now;

/// How a child changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChildChange {
    /// It ended like this.
    Ended(ExitStatus),
    /// This signal stopped it.
    Stopped(Signal),
    /// It was continued.
    Continued,
}

/// The result of [`next_change`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Children {
    /// This child changed; if it ended it is reaped.
    Changed(i32, ChildChange),
    /// There are children, and none has changed.
    Quiet,
    /// There is no child, living or dead.
    None,
}

pub(super) fn change(status: WaitStatus) -> ChildChange {
    let signal = |number: Option<i32>| number.and_then(Signal::new).unwrap_or(Signal::KILL);
    if let Some(code) = status.exit_status() {
        // The kernel keeps eight bits.
        ChildChange::Ended(ExitStatus::Exited(u8::try_from(code & 0xff).unwrap_or(0)))
    } else if status.stopped() {
        ChildChange::Stopped(signal(status.stopping_signal()))
    } else if status.continued() {
        ChildChange::Continued
    } else {
        ChildChange::Ended(ExitStatus::Signaled(signal(status.terminating_signal())))
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
            Err(Errno::INTR) => {}
            Err(Errno::CHILD) => return Children::None,
            // Not known is not gone.
            Ok(None) | Err(_) => return Children::Quiet,
        }
    }
}

/// Reads a child's end without taking it; `None` if the child has not ended.
///
/// Errors: `CHILD` if there is no such child.
fn peek(id: &WaitId<'_>) -> Result<Option<WaitIdStatus>, Errno> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    loop {
        match waitid(id.clone(), options) {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}

/// Returns whether `pid` is a child of this process, living or not reaped. Its number then belongs to it.
pub fn is_child(pid: i32) -> bool {
    Pid::from_raw(pid).is_some_and(|pid| peek(&WaitId::Pid(pid)).is_ok())
}

/// Returns how the child `pid` has ended, if it has. Does not reap it.
pub fn ended(pid: i32) -> Option<ExitStatus> {
    let status = peek(&WaitId::Pid(Pid::from_raw(pid)?)).ok()??;
    if let Some(code) = status.exit_status() {
        return Some(ExitStatus::Exited(u8::try_from(code & 0xff).unwrap_or(0)));
    }
    status.terminating_signal().and_then(Signal::new).map(ExitStatus::Signaled)
}

/// Returns whether this process has children, living or not reaped.
pub fn have_children() -> bool {
    !matches!(peek(&WaitId::All), Err(Errno::CHILD))
}

/// Sleeps for `length`; less if an unblocked signal arrives.
pub fn pause(length: Duration) {
    let Ok(length) = Timespec::try_from(length) else { return };
    // The result does not matter: every caller checks again what it waits for.
    let _ = poll(&mut [], Some(&length));
}

/// Waits until the child `pid` has ended, and reaps it.
pub fn await_end(pid: i32) {
    while let Err(Errno::INTR) = waitpid(Pid::from_raw(pid), WaitOptions::empty()) {}
}

/// Waits at most `length` until the child `pid` has ended, reaps it and returns how it ended. Reaps other children that
/// end meanwhile.
pub fn end_within(pid: i32, length: Duration) -> Option<ExitStatus> {
    let until = now() + length;
    while now() < until {
        match next_change() {
            Children::Changed(child, ChildChange::Ended(end)) if child == pid => return Some(end),
            Children::Changed(..) => {}
            Children::Quiet => pause(Duration::from_millis(1)),
            Children::None => return None,
        }
    }
    None
}

/// Returns whether the process behind `handle` has ended; it may not be reaped yet.
pub(super) fn has_ended(handle: &OwnedFd) -> bool {
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    loop {
        match poll(&mut [PollFd::new(handle, PollFlags::IN)], Some(&at_once)) {
            Err(Errno::INTR) => {}
            // Not known is not gone.
            ended => return ended.is_ok_and(|ready| ready > 0),
        }
    }
}
