//! Whether the files of a hold are still the ones at their paths.
//!
//! If a lock file is removed, replaced or moved, another process can acquire the lock. The kernel reports this at once,
//! by inotify on the files and their directory. Events of other files in the directory do not wake the holder.
//!
//! The look at each renewal finds changes further up the path, and every change where inotify is not available.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::inotify::{CreateFlags, Reader, WatchFlags, add_watch, init};
use rustix::io::Errno;
use tokio::io::unix::AsyncFd;

use super::fault;
use super::fifo;
use crate::lock::ErrorKind;
use crate::net::fault::{Fault, FaultResult};

/// The events of a file that is removed, replaced by a rename, or moved. The removal of an open file shows only as a
/// changed count of links.
const UNDONE: WatchFlags = WatchFlags::ATTRIB
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::DONT_FOLLOW);

/// The events of a directory that is moved, and none of those in it.
const MOVED: WatchFlags = WatchFlags::MOVE_SELF.union(WatchFlags::ONLYDIR);

/// The kernel's events about some files.
#[derive(Debug)]
pub(super) struct Presence(AsyncFd<OwnedFd>);

impl Presence {
    /// Watches the files `paths` in `directory`, and whether `directory` is moved. The caller must look at the files
    /// after that, since they may have changed before.
    pub(super) fn watch(directory: &Path, paths: &[PathBuf]) -> FaultResult<Self> {
        let events = instance(directory)?;
        let files = paths.iter().map(|path| (path.as_path(), UNDONE));
        for (path, what) in files.chain([(directory, MOVED)]) {
            match add_watch(&events, path, what) {
                // A missing file is found by the look that follows.
                Ok(_) | Err(Errno::NOENT | Errno::NOTDIR) => {}
                Err(errno) => return Err(unwatched(path)(errno)),
            }
        }
        fifo::register(events).map(Self)
    }

    /// Completes when something happened to one of the files. Cancel-safe, but look at them after a drop, too.
    pub(super) async fn disturbed(&self) {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        loop {
            let Ok(mut ready) = self.0.readable().await else { return };
            let mut reader = Reader::new(self.0.get_ref(), &mut buffer);
            let mut any = false;
            while reader.next().is_ok() {
                any = true;
            }
            ready.clear_ready();
            if any {
                return;
            }
        }
    }
}

/// Creates an inotify instance, of which a user can have few.
pub(super) fn instance(path: &Path) -> FaultResult<OwnedFd> {
    init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).map_err(unwatched(path))
}

/// The fault of a `path` that cannot be watched.
pub(super) fn unwatched(path: &Path) -> impl FnOnce(Errno) -> Fault {
    move |errno| match errno {
        Errno::MFILE | Errno::NOSPC => Fault::new(
            ErrorKind::System,
            "the limit of inotify instances or watches is reached; raise fs.inotify.max_user_instances \
             or fs.inotify.max_user_watches",
        ),
        errno => fault::os("observe", path)(errno),
    }
}
