//! A process that dlock did not start and that it kills as it would kill its own command.

use std::io;

use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open, test_kill_process};

use tokio::io::unix::AsyncFd;

use super::process_table::ProcessTable;
use super::signals::Signal;
use super::unlisted::Unlisted;
use super::{sys, wait};
use crate::fd;

/// One process, also after another has got its pid.
#[derive(Debug)]
pub struct Adopted {
    /// Its pid, which may belong to another process once it has ended.
    pub pid: i32,
    /// Its pidfd, which becomes readable when it ends.
    pub handle: OwnedFd,
    /// The session that it was in when it was adopted.
    pub session: Option<i32>,
    /// The processes of its session that /proc hides, if it hides any.
    pub(super) unlisted: Option<Unlisted>,
}

/// Why a process cannot be adopted.
#[derive(Debug)]
pub enum Unfit {
    /// There is no such process, or it has ended.
    Gone,
    /// This process may not signal it, so could not kill it.
    Denied,
    /// Its descendants cannot be found, for this reason.
    Hidden(String),
    /// A system call failed.
    System(io::Error),
}

impl Adopted {
    /// Adopts the process that has the number `pid` now.
    ///
    /// Errors: [`Unfit`]; without effect.
    pub fn open(pid: i32) -> Result<Self, Unfit> {
        let number = if pid > 0 { Pid::from_raw(pid) } else { None }.ok_or(Unfit::Gone)?;
        let handle = match pidfd_open(number, PidfdFlags::empty()) {
            Ok(handle) => handle,
            // Threads have numbers, too.
            Err(Errno::SRCH | Errno::INVAL | Errno::NOENT) => return Err(Unfit::Gone),
            Err(error) => return Err(Unfit::System(error.into())),
        };
        let session = sys::session_of(pid);
        let mut adopted = Self { pid, handle, session, unlisted: None };
        let may_signal = test_kill_process(number);
        // As long as the process has not ended, the number belongs to it.
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
        let unseen =
            |error| Unfit::Hidden(format!("dlock cannot determine whether /proc hides processes ({error})"));
        adopted.unlisted =
            session.map_or(Ok(None), |session| Unlisted::new(session, &table)).map_err(unseen)?;
        Ok(adopted)
    }

    /// Copies it with a descriptor of its own, for a process that is forked from this one.
    ///
    /// Errors: no descriptor is left.
    pub fn again(&self) -> io::Result<Self> {
        Ok(Self { handle: self.handle.try_clone()?, unlisted: self.unlisted.clone(), ..*self })
    }

    /// Returns whether it has ended; it may not be reaped yet.
    pub fn has_ended(&self) -> bool {
        wait::has_ended(&self.handle)
    }

    /// Sends `signal` to it, unless it has ended.
    pub fn signal(&self, signal: Signal) {
        // A container profile may deny pidfds.
        if sys::signal_by_handle(self.handle.as_fd(), signal, false).is_err() && !self.has_ended() {
            drop(sys::kill(self.pid, signal));
        }
    }
}

/// The end of one process, to be waited for in a running tokio runtime.
#[derive(Debug)]
pub struct AwaitedEnd(AsyncFd<OwnedFd>);

impl AwaitedEnd {
    /// Watches the process behind `handle`, a pidfd.
    ///
    /// Errors: the runtime has no descriptor or memory left.
    pub fn of(handle: OwnedFd) -> io::Result<Self> {
        fd::watch(handle).map(Self)
    }

    /// Completes when the process has ended, even if it is not reaped. Cancel-safe.
    pub async fn come(&self) {
        // Completes on an error as well: the waiting task checks the process itself.
        drop(self.0.readable().await);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonexistent_process_is_not_adopted() {
        for pid in [0, -1, i32::MAX] {
            assert!(matches!(Adopted::open(pid), Err(Unfit::Gone)), "{pid}");
        }
    }
}
