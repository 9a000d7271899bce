//! A process that was there before dlock, and that dlock ends as it would end a command of its own.

use std::io;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open, pidfd_send_signal, test_kill_process};

use tokio::io::unix::AsyncFd;

use super::process_table::{Layout, ProcessTable};
use super::signals::Signal;
use super::sys;
use crate::fd;

/// One process, whoever gets its number after it. See the module.
#[derive(Debug)]
pub struct Adopted {
    pid: i32,
    handle: OwnedFd,
    /// By which its forks are known, if the kernel gives each program another one.
    layout: Option<Layout>,
}

/// Why a process cannot be adopted.
#[derive(Debug)]
pub enum Unfit {
    /// There is no such process, or it has ended.
    Gone,
    /// This process may not signal it, so could not end it.
    Denied,
    /// What belongs to it cannot be seen; this is why.
    Hidden(String),
    /// The system refused what is needed for it.
    System(io::Error),
}

impl Adopted {
    /// The process that has the number `pid` now.
    pub fn open(pid: i32) -> Result<Self, Unfit> {
        let number = if pid > 0 { Pid::from_raw(pid) } else { None }.ok_or(Unfit::Gone)?;
        let handle = match pidfd_open(number, PidfdFlags::empty()) {
            Ok(handle) => handle,
            // A thread has a number, too.
            Err(Errno::SRCH | Errno::INVAL | Errno::NOENT) => return Err(Unfit::Gone),
            Err(error) => return Err(Unfit::System(error.into())),
        };
        let mut adopted = Self { pid, handle, layout: None };
        let may_signal = test_kill_process(number);
        // As long as it has not ended the number is its own.
        if adopted.has_ended() {
            return Err(Unfit::Gone);
        }
        match may_signal {
            Ok(()) => {}
            Err(Errno::PERM) => return Err(Unfit::Denied),
            Err(error) => return Err(Unfit::System(error.into())),
        }
        let table = match ProcessTable::open() {
            Ok(Ok(table)) => table,
            Ok(Err(hidden)) => return Err(Unfit::Hidden(hidden.to_string())),
            Err(error) => return Err(Unfit::System(error)),
        };
        let layout = if layouts_differ() { table.layout(pid) } else { None };
        if adopted.has_ended() {
            return Err(Unfit::Gone);
        }
        adopted.layout = layout;
        Ok(adopted)
    }

    /// The same for a process that is to be forked from this one.
    pub fn again(&self) -> io::Result<Self> {
        Ok(Self { pid: self.pid, handle: self.handle.try_clone()?, layout: self.layout })
    }

    /// Its number, which is somebody else's once it has ended.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// By which its forks are known, if they can be.
    pub fn layout(&self) -> Option<Layout> {
        self.layout
    }

    /// What can be read from once it has ended.
    pub fn handle(&self) -> &OwnedFd {
        &self.handle
    }

    /// Whether it has ended; it may not be reaped yet.
    pub fn has_ended(&self) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        loop {
            match poll(&mut [PollFd::new(&self.handle, PollFlags::IN)], Some(&now)) {
                Err(Errno::INTR) => {}
                // Not known is not gone.
                ended => return ended.is_ok_and(|ready| ready > 0),
            }
        }
    }

    /// Sends `signal` to it. One that has ended needs none.
    pub fn signal(&self, signal: Signal) {
        match rustix::process::Signal::from_named_raw(signal.number()) {
            Some(named) => drop(pidfd_send_signal(&self.handle, named)),
            // A real-time signal.
            None if !self.has_ended() => drop(sys::kill(self.pid, signal)),
            None => {}
        }
    }
}

/// Whether the kernel puts each program somewhere else; for this process, and whoever has started it.
fn layouts_differ() -> bool {
    /// What `personality(2)` calls `ADDR_NO_RANDOMIZE`.
    const FIXED: u32 = 0x4_0000;
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let is_on = matches!(read("/proc/sys/kernel/randomize_va_space").trim(), "1" | "2");
    is_on && u32::from_str_radix(read("/proc/self/personality").trim(), 16).is_ok_and(|own| own & FIXED == 0)
}

/// The end of one process, which can be waited for; needs a running tokio runtime.
#[derive(Debug)]
pub struct AwaitedEnd(AsyncFd<OwnedFd>);

impl AwaitedEnd {
    /// That of the process behind `handle`.
    pub fn of(handle: OwnedFd) -> io::Result<Self> {
        fd::watch(handle).map(Self)
    }

    /// Completes when it has ended, also if it is not reaped. Cancel-safe.
    pub async fn come(&self) {
        // If that cannot be told, whoever waits looks for itself.
        drop(self.0.readable().await);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_living_process_of_this_user_may_be_adopted_and_is_known_to_end() {
        let mut child = std::process::Command::new("sleep").arg("100").spawn().expect("a process");
        let pid = i32::try_from(child.id()).expect("a pid");
        let adopted = Adopted::open(pid).expect("fit");
        assert!(!adopted.has_ended());
        adopted.signal(Signal::KILL);
        // Not reaped yet: a zombie has ended.
        assert!(poll(&mut [PollFd::new(adopted.handle(), PollFlags::IN)], None).is_ok());
        assert!(adopted.has_ended());
        assert!(matches!(Adopted::open(pid), Err(Unfit::Gone)));
        child.wait().expect("a status");
    }

    #[test]
    fn what_is_no_process_is_not_adopted() {
        for pid in [0, -1, i32::MAX] {
            assert!(matches!(Adopted::open(pid), Err(Unfit::Gone)), "{pid}");
        }
    }
}
