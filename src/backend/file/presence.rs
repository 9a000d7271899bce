//! Whether the files of a hold are still the ones at their paths.
//!
//! A lock file that is removed, replaced or moved lets somebody else in, and so does a path that leads to another
//! directory. The kernel tells of it at once, by inotify on the files themselves and on all that leads to them, so that
//! others who come and go beside those wake nobody, and by the table of mounts. Without inotify each renewal looks.

use std::ffi::OsString;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use rustix::fs::inotify::{Reader, WatchFlags, add_watch};
use rustix::fs::{CWD, Mode, OFlags, openat, readlinkat};
use rustix::io::Errno;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::directory::Directory;
use super::fault::FaultResult;
use super::{fifo, inotify};
use crate::fd;

/// What happens to a file that is removed (its count of links changes, and while it is open that is all), replaced by a
/// rename, or moved.
const UNDONE: WatchFlags = WatchFlags::ATTRIB.union(WatchFlags::DELETE_SELF).union(WatchFlags::MOVE_SELF);

/// What happens to a directory that is moved away.
const MOVED: WatchFlags = WatchFlags::DELETE_SELF.union(WatchFlags::MOVE_SELF).union(WatchFlags::ONLYDIR);

/// As many links follow one another at most, as with the kernel.
const LINKS: usize = 40;

/// The kernel's news of some files.
#[derive(Debug)]
pub(super) struct Presence {
    events: AsyncFd<OwnedFd>,
    /// The table of mounts, if there is one to be seen.
    mounts: Option<AsyncFd<OwnedFd>>,
}

impl Presence {
    /// Watches what stands at `paths` now, and whether `directory` is moved away. That it is what it should be is for
    /// the caller to look at afterwards.
    pub(super) fn watch(directory: &Directory, paths: &[PathBuf]) -> FaultResult<Self> {
        let events = inotify::instance(directory.path())?;
        let files = paths.iter().map(|path| (path.as_path(), UNDONE | WatchFlags::DONT_FOLLOW));
        for (path, what) in files.chain([(directory.path(), MOVED)]) {
            match add_watch(&events, path, what) {
                // What is not there is seen by looking.
                Ok(_) | Err(Errno::NOENT | Errno::NOTDIR) => {}
                Err(errno) => return Err(inotify::failed(path)(errno)),
            }
        }
        Ok(Self { events: fifo::register(events)?, mounts: mounts() })
    }

    /// Watches what the path of `directory` leads through by now: each directory, and each link. What cannot be watched,
    /// such as a directory that this user may not read, is left to the renewals.
    pub(super) fn watch_way(&self, directory: &Directory) {
        let (mut at, mut rest) = (PathBuf::new(), directory.path().to_owned());
        let mut links = 0;
        loop {
            let mut parts = rest.components();
            let Some(part) = parts.next() else { return };
            let behind = parts.as_path().to_owned();
            let Component::Normal(name) = part else {
                // What leads up to it has no links.
                if part == Component::ParentDir {
                    at.pop();
                } else {
                    at.push(part);
                }
                rest = behind;
                continue;
            };
            let here = at.join(name);
            if add_watch(&self.events, &here, MOVED | WatchFlags::DONT_FOLLOW) == Err(Errno::NOTDIR) {
                links += 1;
                match self.follow(&here) {
                    Some(target) if links <= LINKS => rest = target.join(behind),
                    _ => return,
                }
            } else {
                at = here;
                rest = behind;
            }
        }
    }

    /// Watches `link` and reads it, in this order: that it was replaced after it was read is news.
    fn follow(&self, link: &Path) -> Option<PathBuf> {
        let _unwatched = add_watch(&self.events, link, UNDONE | WatchFlags::DONT_FOLLOW);
        let target = readlinkat(CWD, link, Vec::new()).ok()?;
        Some(PathBuf::from(OsString::from_vec(target.into_bytes())))
    }

    /// Completes when something happened to one of them, or to the mounts. Cancel-safe: look at them after a drop, too.
    pub(super) async fn disturbed(&self) {
        tokio::select! {
            () = self.touched() => {}
            () = self.mounted() => {}
        }
    }

    async fn touched(&self) {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        loop {
            let Ok(mut ready) = self.events.readable().await else { return };
            let mut reader = Reader::new(self.events.get_ref(), &mut buffer);
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

    async fn mounted(&self) {
        let Some(mounts) = &self.mounts else { return std::future::pending().await };
        match mounts.ready(Interest::PRIORITY).await {
            Ok(mut ready) => ready.clear_ready(),
            Err(_) => std::future::pending().await,
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

/// The table of mounts, of which the kernel tells when it changes.
fn mounts() -> Option<AsyncFd<OwnedFd>> {
    let table = openat(CWD, "/proc/self/mountinfo", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    fd::watch_for(table, Interest::PRIORITY).ok()
}
