//! Events of files, which the kernel reports by inotify.
//!
//! If a lock file of a hold is removed, replaced or moved, another process can acquire the lock. The kernel reports this
//! at once. Events of other files in the directory do not wake the holder. The look at each renewal finds changes further
//! up the path, and every change where inotify is not available.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::inotify::{CreateFlags, Event, ReadFlags, Reader, WatchFlags, add_watch, init};
use rustix::io::Errno;
use tokio::io::unix::AsyncFd;

use super::directory::Directory;
use super::fault;
use super::fifo;
use super::names::FileNames;
use crate::lock::{ErrorKind, LockName};
use crate::net::fault::{Fault, FaultResult};

/// The events of a file that is removed, replaced by a rename, or moved. The removal of an open file shows only as a
/// changed count of links.
const UNDONE: WatchFlags = WatchFlags::ATTRIB
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::DONT_FOLLOW);

/// The events of a directory that is moved, and none of those in it.
const MOVED: WatchFlags = WatchFlags::MOVE_SELF.union(WatchFlags::ONLYDIR);

/// The events of the files in a directory. The closing of a FIFO is the only sign of an owner that was killed.
const INSIDE: WatchFlags = WatchFlags::MODIFY
    .union(WatchFlags::CREATE)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::CLOSE)
    .union(WatchFlags::OPEN)
    .union(WatchFlags::MOVE)
    .union(WatchFlags::ONLYDIR);

/// The kernel's events about some files.
#[derive(Debug)]
pub(super) struct Events {
    inotify: AsyncFd<OwnedFd>,
    /// The queue that is observed in its directory.
    queue: Option<FileNames>,
}

impl Events {
    /// Watches the files `paths` of a hold in `directory`, and whether `directory` is moved. The caller must look at the
    /// files after that, since they may have changed before.
    pub(super) fn of_hold(directory: &Path, paths: &[PathBuf]) -> FaultResult<Self> {
        let files = paths.iter().map(|path| (path.as_path(), UNDONE));
        Self::watch(files.chain([(directory, MOVED)]), directory, None)
    }

    /// Watches the queue of `lock` from now on.
    pub(super) fn of_queue(directory: &Directory, lock: &LockName) -> FaultResult<Self> {
        let (path, files) = (directory.path(), directory.naming.of(lock)?);
        Self::watch([(path, INSIDE)], path, Some(files))
    }

    fn watch<'a>(
        what: impl IntoIterator<Item = (&'a Path, WatchFlags)>,
        directory: &Path,
        queue: Option<FileNames>,
    ) -> FaultResult<Self> {
        let inotify = instance(directory)?;
        for (path, flags) in what {
            match add_watch(&inotify, path, flags) {
                Ok(_) => {}
                // A missing file of a hold is found by the look that follows.
                Err(Errno::NOENT | Errno::NOTDIR) if queue.is_none() => {}
                Err(errno) => return Err(unwatched(path)(errno)),
            }
        }
        Ok(Self { inotify: fifo::register(inotify)?, queue })
    }

    /// Completes when something happened. Cancel-safe, but look at the files after a drop, too.
    pub(super) async fn next(&self) {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        loop {
            let Ok(mut ready) = self.inotify.readable().await else { return };
            let mut reader = Reader::new(self.inotify.get_ref(), &mut buffer);
            let mut any = false;
            while let Ok(event) = reader.next() {
                any |= self.concerns(&event);
            }
            ready.clear_ready();
            if any {
                return;
            }
        }
    }

    /// Returns whether the event is about what is watched.
    fn concerns(&self, event: &Event<'_>) -> bool {
        let Some(files) = &self.queue else { return true };
        // An overflow has no name: anything may have happened.
        let Some(file) = event.file_name().and_then(|file| file.to_str().ok()) else { return true };
        // A process that looks at a queue opens files for reading only. So such events concern the lock file alone.
        let passive = ReadFlags::OPEN | ReadFlags::CLOSE_NOWRITE;
        let changes = !event.events().difference(passive).is_empty();
        file == files.canonical() || (changes && file.contains(files.canonical()))
    }
}

/// Creates an inotify instance, of which a user can have few.
pub(super) fn instance(path: &Path) -> FaultResult<OwnedFd> {
    init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).map_err(unwatched(path))
}

/// The fault of a `path` that cannot be watched.
fn unwatched(path: &Path) -> impl FnOnce(Errno) -> Fault {
    move |errno| match errno {
        Errno::MFILE | Errno::NOSPC => Fault::new(
            ErrorKind::System,
            "the limit of inotify instances or watches is reached; raise fs.inotify.max_user_instances \
             or fs.inotify.max_user_watches",
        ),
        errno => fault::os("observe", path)(errno),
    }
}
