//! Proof that a directory is the /proc of this process's PID namespace.

use std::fmt;
use std::io;
use std::mem::MaybeUninit;

use rustix::fd::OwnedFd;
use rustix::fs::{fstatfs, readlinkat_raw};
use rustix::io::Errno;

use super::proc_files::number;
use super::sys;

/// The type that statfs(2) returns for a /proc.
const PROC_MAGIC: u32 = 0x9fa0;

/// Why there is no usable /proc.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Hidden {
    /// It is not mounted, or may not be opened.
    Unreadable(Errno),
    /// /proc is not a process table.
    NotProc,
    /// It is that of another PID namespace: its numbers mean other processes.
    Foreign,
}

impl fmt::Display for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(errno) => write!(f, "/proc cannot be read ({})", io::Error::from(*errno)),
            Self::NotProc => f.write_str("/proc is not the process table"),
            Self::Foreign => f.write_str("/proc shows another PID namespace"),
        }
    }
}

/// Checks that `directory` is a /proc that shows this process under its own pid.
fn prove(directory: &OwnedFd) -> Result<(), Hidden> {
    let kind = fstatfs(directory).map_err(Hidden::Unreadable)?.f_type;
    if u32::try_from(kind) != Ok(PROC_MAGIC) {
        return Err(Hidden::NotProc);
    }
    let mut name = [MaybeUninit::<u8>::uninit(); 24];
    let own = match readlinkat_raw(directory, c"self", &mut name) {
        // A process of another namespace has no number there.
        Err(Errno::NOENT) => return Err(Hidden::Foreign),
        Err(errno) => return Err(Hidden::Unreadable(errno)),
        Ok((own, _)) => number(own),
    };
    if own == Some(sys::own_pid()) { Ok(()) } else { Err(Hidden::Foreign) }
}

/// Returns the directory that `open` opens, if it is a /proc of this process's PID namespace. Tries an unreadable one
/// twice: dlock promises less without a table.
///
/// Errors: the system has no descriptors or memory left (`EMFILE`, `ENFILE`, `ENOMEM`).
pub(super) fn proved(open: impl Fn() -> Result<OwnedFd, Errno>) -> io::Result<Result<OwnedFd, Hidden>> {
    match try_proved(&open)? {
        Err(Hidden::Unreadable(_)) => try_proved(&open),
        proved => Ok(proved),
    }
}

fn try_proved(open: impl Fn() -> Result<OwnedFd, Errno>) -> io::Result<Result<OwnedFd, Hidden>> {
    loop {
        match open() {
            Err(Errno::INTR) => {}
            Err(scarce @ (Errno::MFILE | Errno::NFILE | Errno::NOMEM)) => return Err(scarce.into()),
            Err(errno) => return Ok(Err(Hidden::Unreadable(errno))),
            Ok(directory) => return Ok(prove(&directory).map(|()| directory)),
        }
    }
}
