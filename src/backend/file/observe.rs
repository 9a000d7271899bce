//! Observing one queue: inotify reports that something happened, and a look at the queue shows what it was.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::inotify::{ReadFlags, Reader, WatchFlags, add_watch};
use rustix::io::Errno;
use tokio::io::unix::AsyncFd;

use super::directory::Directory;
use super::fault;
use super::fifo;
use super::inspect;
use super::lazy_directory::LazyDirectory;
use super::names::FileNames;
use super::presence;
use crate::backend::claim_state::POLL;
use crate::backend::observe::Watched;
use crate::lock::{ErrorKind, LockName, LockStatus, Moment};
use crate::net::fault::{Fault, FaultResult};

/// One queue, in a lock directory that may not exist yet.
#[derive(Debug)]
pub(super) struct WatchedQueue {
    directory: Arc<LazyDirectory>,
    events: Option<Events>,
}

/// The events in the lock directory.
#[derive(Debug)]
struct Events {
    directory: Arc<Directory>,
    files: FileNames,
    inotify: AsyncFd<OwnedFd>,
}

impl Events {
    /// Watches the directory from now on.
    fn of(directory: &Arc<Directory>, lock: &LockName) -> FaultResult<Self> {
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
    async fn changed(&self) -> FaultResult<()> {
        loop {
            let closed = |e| Fault::new(ErrorKind::System, format!("cannot wait for changes: {e}"));
            self.inotify.readable().await.map_err(closed)?.clear_ready();
            if self.drain()? {
                return Ok(());
            }
        }
    }
}

impl WatchedQueue {
    pub(super) fn new(directory: &Arc<LazyDirectory>) -> Self {
        Self { directory: Arc::clone(directory), events: None }
    }
}

impl Watched for WatchedQueue {
    async fn look(&mut self, name: &LockName) -> FaultResult<LockStatus> {
        let events = match self.events.take() {
            Some(events) => events,
            None => match self.directory.find()? {
                Some(directory) => Events::of(directory, name)?,
                None => return Ok(LockStatus::empty(name)),
            },
        };
        let events = self.events.insert(events);
        inspect::status(&events.directory, name, false, Moment::NEVER).await
    }

    async fn notified(&mut self) -> FaultResult<()> {
        match &self.events {
            Some(events) => Ok(events.changed().await?),
            None => std::future::pending().await,
        }
    }

    fn next_look(&mut self, _: &LockStatus, _: bool, now: Moment) -> Moment {
        if self.events.is_some() { Moment::NEVER } else { now + POLL }
    }
}
