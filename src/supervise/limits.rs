//! Features that an emulator or a container withholds from dlock.

use std::io;

use rustix::io::Errno;
use rustix::process::{Pid, child_subreaper, geteuid, getpid, set_child_subreaper, test_kill_process};

/// The message about user-mode emulation.
const EMULATED: &str = "user-mode emulation (qemu-user) does not report orphaned processes to dlock";

/// Makes this process adopt the orphans of its descendants.
///
/// Errors: this is user-mode emulation, which lacks that feature of Linux; or others of the system.
pub fn become_subreaper() -> io::Result<()> {
    match set_child_subreaper(Some(getpid())) {
        Err(Errno::INVAL) => Err(io::Error::other(EMULATED)),
        set => Ok(set?),
    }
}

/// Returns what user-mode emulation lacks, if this process runs in one.
pub fn emulation() -> Option<&'static str> {
    (child_subreaper() == Err(Errno::INVAL)).then_some(EMULATED)
}

/// Returns whether this process is root's and yet may not signal `pid`: in a container without `CAP_KILL`.
pub fn lacks_kill(pid: i32) -> bool {
    let target = Pid::from_raw(pid);
    geteuid().is_root() && target.is_some_and(|pid| test_kill_process(pid) == Err(Errno::PERM))
}
