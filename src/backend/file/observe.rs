//! Observing one line: inotify says that something happened, the line itself what.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use rustix::fs::inotify::{ReadFlags, Reader, WatchFlags, add_watch};
use rustix::io::Errno;
use tokio::io::unix::AsyncFd;

use super::directory::Directory;
use super::fault::{BACKEND, Fault, FaultResult};
use super::fifo;
use super::inotify;
use super::inspect;
use super::names::FileNames;
use super::site::Site;
use crate::backend::Observer;
use crate::backend::fault::During;
use crate::lock::{ErrorKind, LockName, LockStatus, Moment, Result};

/// An observer of one line.
#[derive(Debug)]
pub(super) struct FileObserver {
    directory: Arc<Directory>,
    lock: LockName,
    files: FileNames,
    events: AsyncFd<OwnedFd>,
    /// Whether something happened since the line was read.
    stale: bool,
    last: Option<LockStatus>,
}

impl FileObserver {
    pub(super) fn start(directory: &Arc<Directory>, lock: &LockName) -> FaultResult<Self> {
        let files = directory.naming.of(lock)?;
        let events = inotify::instance(directory.path())?;
        // A FIFO's closing is all that shows of an owner that was killed; whoever looks at a line opens
        // files for reading only, so closing those is news of the lock file alone.
        let what = WatchFlags::MODIFY
            | WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::CLOSE_NOWRITE
            | WatchFlags::OPEN
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO
            | WatchFlags::ONLYDIR;
        add_watch(&events, directory.path(), what).map_err(inotify::failed(directory.path()))?;
        let events = fifo::register(events)?;
        Ok(Self {
            directory: Arc::clone(directory),
            lock: lock.clone(),
            files,
            events,
            stale: true,
            last: None,
        })
    }

    /// Reads all events; says whether one concerns this line.
    fn drain(&self) -> FaultResult<bool> {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = Reader::new(self.events.get_ref(), &mut buffer);
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
                Err(errno) => return Err(Fault::os("observe", self.directory.path())(errno)),
            }
        }
    }

    async fn follow(&mut self) -> FaultResult<LockStatus> {
        loop {
            if self.stale {
                let status = inspect::status(&self.directory, &self.lock, false, Moment::NEVER).await?;
                self.stale = false;
                if status.is_news_after(self.last.as_ref()) {
                    self.last = Some(status.clone());
                    return Ok(status);
                }
            }
            let closed = |e| Fault::said(ErrorKind::System, format!("cannot wait for changes: {e}"));
            let mut ready = self.events.readable().await.map_err(closed)?;
            ready.clear_ready();
            self.stale = self.drain()?;
        }
    }
}

#[async_trait]
impl Observer for FileObserver {
    async fn next(&mut self) -> Result<LockStatus> {
        self.follow().await.during(BACKEND, "observe the queue", Some(&self.lock))
    }
}

/// How often an observer looks for a lock directory that nobody has made yet.
const LOOK: Duration = Duration::from_millis(500);

/// An observer of a line in a lock directory that nobody has made yet.
#[derive(Debug)]
pub(super) struct Unmade {
    site: Arc<Site>,
    lock: LockName,
    told: bool,
    made: Option<FileObserver>,
}

impl Unmade {
    pub(super) fn new(site: &Arc<Site>, lock: &LockName) -> Self {
        Self { site: Arc::clone(site), lock: lock.clone(), told: false, made: None }
    }

    /// Returns once the directory is there.
    async fn await_directory(&self) -> FaultResult<FileObserver> {
        loop {
            if let Some(directory) = self.site.find()? {
                let mut observer = FileObserver::start(directory, &self.lock)?;
                observer.last = Some(inspect::nobody(&self.lock));
                return Ok(observer);
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

#[async_trait]
impl Observer for Unmade {
    async fn next(&mut self) -> Result<LockStatus> {
        if !std::mem::replace(&mut self.told, true) {
            return Ok(inspect::nobody(&self.lock));
        }
        let observer = match self.made.take() {
            Some(observer) => observer,
            None => self.await_directory().await.during(BACKEND, "observe the queue", Some(&self.lock))?,
        };
        // Kept before anything is waited for: this may be dropped meanwhile.
        self.made.insert(observer).next().await
    }
}
