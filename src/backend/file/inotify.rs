//! inotify(7), as far as several parts need the same of it.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::inotify::{CreateFlags, init};
use rustix::io::Errno;

use super::fault::{Fault, FaultResult};
use crate::lock::ErrorKind;

/// An instance, of which a user has few.
pub(super) fn instance(path: &Path) -> FaultResult<OwnedFd> {
    init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).map_err(failed(path))
}

/// Why `path` cannot be watched.
pub(super) fn failed(path: &Path) -> impl FnOnce(Errno) -> Fault {
    move |errno| match errno {
        Errno::MFILE | Errno::NOSPC => Fault::said(
            ErrorKind::System,
            "the limit of inotify instances or watches is reached; raise fs.inotify.max_user_instances \
             or fs.inotify.max_user_watches",
        ),
        errno => Fault::os("observe", path)(errno),
    }
}
