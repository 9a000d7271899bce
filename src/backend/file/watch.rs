//! Waiting for a change: of a claim, by the kernel's reports, or of a queue, by inotify.

use std::future::Future;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::FuturesUnordered;
use rustix::fs::inotify::{ReadFlags, Reader, WatchFlags, add_watch};
use rustix::io::Errno;
use tokio::io::unix::AsyncFd;

use super::directory::Directory;
use super::fault;
use super::fifo::{self, Life, Listener, Watch};
use super::names::FileNames;
use super::presence::{self, Presence};
use super::seat::Seat;
use crate::clock::{self, Clock};
use crate::lock::{ErrorKind, LockName};
use crate::net::fault::{Fault, FaultResult};
use crate::queue::store::Target;

/// From when on the files of a hold are watched. Closing an inotify instance takes 15 ms, which every short run would
/// pay.
const WATCHED_AFTER: Duration = Duration::from_millis(250);

/// The signs of a change of a claim.
pub(super) type Signs = FuturesUnordered<Pin<Box<dyn Future<Output = ()> + Send>>>;

impl Seat {
    /// Returns the signs of a change of the claim, which waits for `on`; `None` if there is one already.
    pub(super) fn signs(&mut self, on: &[Target]) -> FaultResult<Option<Signs>> {
        if let (None, Some(fifo)) = (&self.listener, &self.fifo) {
            self.listener = Some(Arc::new(Listener::new(Arc::clone(fifo))?));
        }
        let signs = Signs::new();
        if let Some(listener) = self.listener.clone() {
            signs.push(Box::pin(async move { listener.heard().await }));
        }
        let mut watches = Vec::new();
        for target in on {
            let place = &mut self.places[target.name];
            if target.key.order == 0 {
                let pending = place.wait(self.mode)?;
                signs.push(Box::pin(async move { pending.done().await }));
                continue;
            }
            match fifo::probe(&place.queue.directory, &target.key.text)? {
                Life::Dead => return Ok(None),
                Life::Alive(fifo) => watches.push(Arc::new(Watch::new(fifo)?)),
            }
        }
        for watch in &watches {
            let watch = Arc::clone(watch);
            signs.push(Box::pin(async move { watch.ended().await }));
        }
        let Some(held_at) = self.held_at else {
            self.watches = watches;
            return Ok(Some(signs));
        };
        if clock::now() < held_at + WATCHED_AFTER {
            signs.push(Box::pin(Clock::Boot.sleep_until(held_at + WATCHED_AFTER)));
            return Ok(Some(signs));
        }
        // Not at the moment of acquiring: the last process to close a FIFO waits for the kernel to dismantle it, and the
        // command would wait too.
        self.watches.clear();
        if self.presence.is_none() {
            let directory = self.places[0].queue.directory.path();
            self.presence = Presence::watch(directory, &self.paths()).ok().map(Arc::new);
            if self.presence.is_some() {
                // They may have changed before.
                return Ok(None);
            }
        }
        if let Some(presence) = self.presence.clone() {
            signs.push(Box::pin(async move { presence.disturbed().await }));
        }
        Ok(Some(signs))
    }
}

/// The events in the lock directory that concern one queue.
#[derive(Debug)]
pub(super) struct Events {
    directory: Arc<Directory>,
    files: FileNames,
    inotify: AsyncFd<OwnedFd>,
}

impl Events {
    /// Watches the directory from now on.
    pub(super) fn of(directory: &Arc<Directory>, lock: &LockName) -> FaultResult<Self> {
        let files = directory.naming.of(lock)?;
        let events = presence::instance(directory.path())?;
        // The closing of a FIFO is the only sign of an owner that was killed. A process that looks at a queue opens
        // files for reading only, so closings after reading concern the lock file alone.
        let what = WatchFlags::MODIFY
            | WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::CLOSE_NOWRITE
            | WatchFlags::OPEN
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO
            | WatchFlags::ONLYDIR;
        add_watch(&events, directory.path(), what).map_err(presence::unwatched(directory.path()))?;
        Ok(Self { directory: Arc::clone(directory), files, inotify: fifo::register(events)? })
    }

    /// Reads all events. Returns whether one concerns this queue.
    fn drain(&self) -> FaultResult<bool> {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = Reader::new(self.inotify.get_ref(), &mut buffer);
        let mut concerned = false;
        loop {
            match reader.next() {
                Ok(event) => {
                    let file = event.file_name().and_then(|f| f.to_str().ok());
                    let passive = ReadFlags::OPEN | ReadFlags::CLOSE_NOWRITE;
                    let changes = !event.events().difference(passive).is_empty();
                    // An overflow has no name: anything may have happened.
                    concerned |=
                        file.is_none_or(|f| self.files.owns(f) && (changes || f == self.files.canonical()));
                }
                Err(Errno::WOULDBLOCK) => return Ok(concerned),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(fault::os("observe", self.directory.path())(errno)),
            }
        }
    }

    /// Completes when something has happened that concerns the queue.
    pub(super) async fn changed(&self) -> FaultResult<()> {
        loop {
            let closed = |e| Fault::new(ErrorKind::System, format!("cannot wait for changes: {e}"));
            self.inotify.readable().await.map_err(closed)?.clear_ready();
            if self.drain()? {
                return Ok(());
            }
        }
    }
}
