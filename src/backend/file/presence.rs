//! Whether the files of a hold are still the ones at their paths.
//!
//! A lock file that is removed, replaced or moved lets somebody else in. The kernel tells of it at once, by inotify on the
//! files themselves, so that others who come and go in the directory wake nobody. Without inotify each renewal looks.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use rustix::fs::inotify::{Reader, WatchFlags, add_watch};
use rustix::io::Errno;
use tokio::io::unix::AsyncFd;

use super::directory::Directory;
use super::fault::FaultResult;
use super::{fifo, inotify};

/// What happens to a file that is removed (its count of links changes, and while it is open that is all), replaced by a
/// rename, or moved.
const UNDONE: WatchFlags = WatchFlags::ATTRIB.union(WatchFlags::DELETE_SELF).union(WatchFlags::MOVE_SELF);

/// The kernel's news of some files.
#[derive(Debug)]
pub(super) struct Presence(AsyncFd<OwnedFd>);

impl Presence {
    /// Watches what stands at `paths` now, and whether `directory` is moved away. That it is what it should be is for
    /// the caller to look at afterwards.
    pub(super) fn watch(directory: &Directory, paths: &[PathBuf]) -> FaultResult<Self> {
        let events = inotify::instance(directory.path())?;
        let moved = WatchFlags::DELETE_SELF | WatchFlags::MOVE_SELF | WatchFlags::ONLYDIR;
        let files = paths.iter().map(|path| (path.as_path(), UNDONE | WatchFlags::DONT_FOLLOW));
        for (path, what) in files.chain([(directory.path(), moved)]) {
            match add_watch(&events, path, what) {
                // What is not there is seen by looking.
                Ok(_) | Err(Errno::NOENT | Errno::NOTDIR) => {}
                Err(errno) => return Err(inotify::failed(path)(errno)),
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

    /// Stops watching, in a thread: the kernel takes milliseconds to take an instance apart.
    pub(super) fn end(self: Arc<Self>) {
        // Without a thread to spare it is done here.
        drop(
            std::thread::Builder::new().name("unwatch".to_owned()).stack_size(64 * 1024).spawn(|| drop(self)),
        );
    }
}
