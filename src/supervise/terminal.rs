//! The controlling terminal.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;

use rustix::process::getppid;

use super::sys;

/// What the process was started on.
#[derive(Debug)]
pub struct Terminal {
    /// The controlling terminal.
    pub device: File,
    /// Whether the parent is in another session, so that nobody could resume a stopped job.
    pub nobody_resumes: bool,
}

impl Terminal {
    /// The controlling terminal, if the process has one.
    pub fn controlling() -> Option<Self> {
        let flags = libc::O_NOCTTY | libc::O_CLOEXEC;
        let device = File::options().read(true).write(true).custom_flags(flags).open("/dev/tty").ok()?;
        let parent = getppid().map(|parent| sys::session_of(parent.as_raw_nonzero().get()));
        let nobody_resumes = parent.flatten() != sys::session_of(0);
        Some(Self { device, nobody_resumes })
    }
}
