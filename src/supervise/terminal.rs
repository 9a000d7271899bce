//! The controlling terminal.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;

use rustix::process::getppid;

use super::sys;

/// The terminal that the process was started on.
#[derive(Debug)]
pub struct Terminal {
    /// The controlling terminal.
    pub device: File,
    /// Whether the parent is in another session, so that no shell could resume a stopped job.
    pub nobody_resumes: bool,
}

impl Terminal {
    /// Returns the controlling terminal, if the process has one.
    pub fn controlling() -> Option<Self> {
        let flags = libc::O_NOCTTY | libc::O_CLOEXEC;
        let opened = File::options().read(true).write(true).custom_flags(flags).open("/dev/tty");
        let device = match opened {
            Ok(device) => device,
            // Only this error proves the absence of a terminal. Taken wrongly, a command that reads the terminal from a group
            // of its own would stop for ever.
            Err(error) if error.raw_os_error() == Some(libc::ENXIO) => return None,
            // The node is missing or forbidden, as in a container or a chroot.
            Err(_) => File::from(sys::terminal_among_streams()?),
        };
        let parent = getppid().map(|parent| sys::session_of(parent.as_raw_nonzero().get()));
        let nobody_resumes = parent.flatten() != sys::session_of(0);
        Some(Self { device, nobody_resumes })
    }
}
