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

use super::claim::{FileClaim, Inner};
use super::directory::Directory;
use super::fault::Outcome;
use super::grant::Place;
use super::turn::removed;
use super::{fifo, inotify};
use crate::lock::ClaimState;

/// What happens to a file that is removed (its count of links changes, and while it is open that is all), replaced by a
/// rename, or moved.
const UNDONE: WatchFlags = WatchFlags::ATTRIB.union(WatchFlags::DELETE_SELF).union(WatchFlags::MOVE_SELF);

/// The kernel's news of some files.
#[derive(Debug)]
pub(super) struct Presence(AsyncFd<OwnedFd>);

impl Presence {
    /// Watches what stands at `paths` now, and whether `directory` is moved away. That it is what it should be is for
    /// the caller to look at afterwards.
    pub(super) fn watch(directory: &Directory, paths: &[PathBuf]) -> Outcome<Self> {
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

/// The path of a file of `place` that is no longer there, or no longer the one that is held.
fn gone(inner: &Inner, place: &Place) -> Outcome<Option<PathBuf>> {
    if place.line.is_replaced()? {
        return Ok(Some(place.line.path()));
    }
    if inner.grant.is_some() {
        let directory = &place.line.directory;
        for hold in place.holds() {
            if hold.is_replaced(directory)? {
                return Ok(Some(directory.path_of(&hold.name)));
            }
        }
    }
    Ok(None)
}

impl FileClaim {
    /// Begins to watch the files of a hold, if it can; they are looked at once more after that.
    pub(super) fn watch_files(&self) {
        let inner = &mut *self.inner();
        if inner.grant.is_none() || inner.is_over() || inner.presence.is_some() {
            return;
        }
        let mut paths = Vec::new();
        for place in &inner.places {
            paths.push(place.line.path());
            paths.extend(place.holds().map(|hold| place.line.directory.path_of(&hold.name)));
        }
        let Some(place) = inner.places.first() else { return };
        inner.presence = Presence::watch(&place.line.directory, &paths).ok().map(Arc::new);
        inner.disturbed = true;
        self.news.notify_waiters();
    }

    /// Looks at the files if something may have happened to them.
    pub(super) fn check_if_disturbed(&self) -> Outcome<()> {
        if !self.inner().disturbed {
            return Ok(());
        }
        self.check_files()?;
        // Not before: what cannot be told now is looked at again.
        self.inner().disturbed = false;
        Ok(())
    }

    /// Whether the files are still the ones at their paths; if not, the claim is lost.
    pub(super) fn check_files(&self) -> Outcome<()> {
        let inner = &mut *self.inner();
        if inner.is_over() {
            return Ok(());
        }
        for place in &inner.places {
            if let Some(path) = gone(inner, place)? {
                inner.state = ClaimState::Lost(removed(&path));
                break;
            }
        }
        Ok(())
    }
}
