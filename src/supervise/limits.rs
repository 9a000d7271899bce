//! Features that an emulator or a container withholds from dlock.

use std::io;

use rustix::io::Errno;
use rustix::process::{Pid, geteuid, getpid, set_child_subreaper, test_kill_process};

/// Makes this process adopt the orphans of its descendants. User-mode emulation (qemu-user) cannot do that.
pub fn become_subreaper() -> io::Result<()> {
    let unable = |errno| io::Error::other(format!("cannot adopt orphans: {}", io::Error::from(errno)));
    set_child_subreaper(Some(getpid())).map_err(unable)
}

/// Returns whether this process is root's and yet may not signal `pid`: in a container without `CAP_KILL`.
pub fn lacks_kill(pid: i32) -> bool {
    let target = Pid::from_raw(pid);
    geteuid().is_root() && target.is_some_and(|pid| test_kill_process(pid) == Err(Errno::PERM))
}
