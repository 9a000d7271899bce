//! Descriptors that dlock inherits for the command only: standard streams, other descriptors, the working directory. dlock closes
//! its copies once the command has them, so that the reader of a pipe sees its end when the command closes it.

use std::fs::File;
use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::sync::{Mutex, OnceLock};

use rustix::fs::{Mode, OFlags, RawDir};

use super::sys;
use crate::sync::locked;

/// The descriptors that this program itself will write to.
static NEEDED: Mutex<Vec<RawFd>> = Mutex::new(Vec::new());

/// The descriptors that were open at the first [`look`].
static OPEN: OnceLock<Vec<RawFd>> = OnceLock::new();

/// How many descriptors to try if /proc cannot list them.
const WITHOUT_LIST: RawFd = 1024;

/// Makes [`let_go`] keep this descriptor, since this program itself will write to it.
pub fn keep(descriptor: RawFd) {
    locked(&NEEDED).push(descriptor);
}

/// Lists the open descriptors for [`let_go`] in this process and in those that it forks. A process opens its own ones
/// only with `FD_CLOEXEC`, so one list, taken at any time, has all inherited ones.
pub fn look() -> &'static [RawFd] {
    OPEN.get_or_init(open_descriptors)
}

/// Replaces standard input and output by /dev/null, and closes all other inherited descriptors. Standard error stays.
pub fn let_go() {
    let needed = locked(&NEEDED);
    if let Ok(null) = File::options().read(true).write(true).open("/dev/null") {
        // If the table of descriptors is full, the streams stay open until dlock exits; that does no harm.
        let _ = rustix::stdio::dup2_stdin(&null);
        if !needed.contains(&1) {
            let _ = rustix::stdio::dup2_stdout(&null);
        }
    }
    for &descriptor in look() {
        if descriptor > 2 && !needed.contains(&descriptor) {
            sys::close_if_inherited(descriptor);
        }
    }
}

/// Replaces standard error by /dev/null too, when its reader may be gone.
pub fn let_go_of_errors() {
    if let Ok(null) = File::options().read(true).write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stderr(&null);
    }
}

/// Leaves the directory that dlock was started in, so that its file system can be unmounted once the command is gone.
pub fn leave_directory() {
    // If that fails, the directory stays in use until dlock exits.
    let _ = rustix::process::chdir("/");
}

/// Lists the open descriptors. Not through the standard library, which treats an error of close(2) as a defect.
fn open_descriptors() -> Vec<RawFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(directory) = rustix::fs::open(c"/proc/self/fd", flags, Mode::empty()) else {
        return (3..WITHOUT_LIST).collect();
    };
    let mut found = Vec::new();
    let mut buffer = [MaybeUninit::uninit(); 4 << 10];
    let mut entries = RawDir::new(&directory, &mut buffer);
    while let Some(Ok(entry)) = entries.next() {
        found.extend(entry.file_name().to_str().ok().and_then(|name| name.parse::<RawFd>().ok()));
    }
    found
}
