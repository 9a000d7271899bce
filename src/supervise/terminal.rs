//! The controlling terminal.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::atomic::{AtomicBool, Ordering};

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

static OUTPUT_IS_NEEDED: AtomicBool = AtomicBool::new(false);

/// Has [`let_go_of_streams`] leave standard output alone: this program itself will write to it.
pub fn keep_output() {
    OUTPUT_IS_NEEDED.store(true, Ordering::Relaxed);
}

/// Puts /dev/null in the place of standard input and output, so that only the command keeps them open: whoever
/// is at the other end of a pipe then sees its end when the command lets go of it. Standard error stays.
pub fn let_go_of_streams() {
    if let Ok(null) = File::options().read(true).write(true).open("/dev/null") {
        // Should the table of descriptors be full, they stay open until dlock ends; nothing is lost.
        let _ = rustix::stdio::dup2_stdin(&null);
        if !OUTPUT_IS_NEEDED.load(Ordering::Relaxed) {
            let _ = rustix::stdio::dup2_stdout(&null);
        }
    }
}
