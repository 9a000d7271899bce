//! What an emulator or a container withholds from dlock.

use std::io;

use rustix::io::Errno;
use rustix::process::{Pid, child_subreaper, geteuid, getpid, set_child_subreaper, test_kill_process};

/// What is said of user-mode emulation.
const EMULATED: &str = "user-mode emulation (qemu-user) cannot tell dlock of orphaned processes";

/// Makes this process the one that orphans of its descendants come to.
///
/// Errors: user-mode emulation knows no such thing, as every Linux does; others of the system.
pub fn become_subreaper() -> io::Result<()> {
    match set_child_subreaper(Some(getpid())) {
        Err(Errno::INVAL) => Err(io::Error::other(EMULATED)),
        set => Ok(set?),
    }
}

/// What user-mode emulation lacks, if this process runs under one.
pub fn emulation() -> Option<&'static str> {
    (child_subreaper() == Err(Errno::INVAL)).then_some(EMULATED)
}

/// Whether this process is root's, and may not signal `pid` all the same: a container without `CAP_KILL`.
pub fn lacks_kill(pid: i32) -> bool {
    let target = Pid::from_raw(pid);
    geteuid().is_root() && target.is_some_and(|pid| test_kill_process(pid) == Err(Errno::PERM))
}
