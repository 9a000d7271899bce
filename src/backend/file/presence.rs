//! Whether the files of a hold are still the ones at their paths.
//!
//! A lock file that is removed, replaced or moved lets somebody else in. The kernel tells of it at once, by inotify on the
//! files and their directory, so that others who come and go beside them wake nobody. What happens further up the path is seen by
//! the look at each renewal, as is everything where inotify cannot be had.

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

/// What happens to a file that is removed (its count of links changes, and while it is open that is all), replaced by a
/// rename, or moved.
const UNDONE: WatchFlags = WatchFlags::ATTRIB
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::DONT_FOLLOW);

/// What happens to a directory that is moved; nothing of what happens in it.
const MOVED: WatchFlags = WatchFlags::MOVE_SELF.union(WatchFlags::ONLYDIR);

/// The kernel's news of some files.
#[derive(Debug)]
pub(super) struct Presence(AsyncFd<OwnedFd>);

impl Presence {
    /// Watches the files `paths` in `directory`, and whether that is moved. That they are what they should be is for the caller to look at
    /// afterwards.
    pub(super) fn watch(directory: &Path, paths: &[PathBuf]) -> FaultResult<Self> {
        let events = instance(directory)?;
        let files = paths.iter().map(|path| (path.as_path(), UNDONE));
        for (path, what) in files.chain([(directory, MOVED)]) {
            match add_watch(&events, path, what) {
                // What is not there is seen by looking.
                Ok(_) | Err(Errno::NOENT | Errno::NOTDIR) => {}
                Err(errno) => return Err(unwatched(path)(errno)),
            }
        }
        fifo::register(events).map(Self)
    }

    /// Completes when something happened to one of them. Cancel-safe: look at them after a drop, too.
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

/// An inotify instance, of which a user has few.
pub(super) fn instance(path: &Path) -> FaultResult<OwnedFd> {
    init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).map_err(unwatched(path))
}

/// Why `path` cannot be watched.
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
