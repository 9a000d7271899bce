//! The `file` backend: locks of one host, without a server, shared with `flock(1)`.
//!
//! | file | content |
//! |---|---|
//! | `DIR/NAME` | the lock file, empty, never unlinked: `flock(2)` on it is the hold (shared for shared and slots) |
//! | `DIR/.NAME.queue` | the queue: a header, then one record a claim; changed under a flock on itself, the guard |
//! | `DIR/.NAME.CLAIM` | the claim's FIFO, open and flocked while its owner lives; its closing wakes the successor |
//! | `DIR/.NAME.fifo` | the same for a claim that found the queue empty; it is kept |
//! | `DIR/.NAME.slot.K` | slot K, flocked by its holder |
//!
//! Nothing expires and nothing is polled: the kernel ends a claim with its process. A record is believed only while its
//! FIFO is flocked. A hold is announced only once the lock file is flocked.

mod claim;
mod config;
mod core;
mod directory;
mod enter;
mod evict;
mod examine;
mod failure;
mod fault;
mod fifo;
mod grant;
mod guard;
mod header;
mod hold;
mod inspect;
mod lazy_directory;
mod locker;
mod names;
mod observe;
mod presence;
mod promote;
mod publish;
mod queue;
mod reservation;
mod storage;
mod surroundings;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_faults;
#[cfg(test)]
mod tests_files;
#[cfg(test)]
mod tests_flock;
#[cfg(test)]
mod tests_presence;
mod token;

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use async_trait::async_trait;

use self::core::FileClaim;
use super::observe::QueueObserver;
use super::service::{Address, NAME_THE_SERVICE, Service, ServiceOption};
use super::{Backend, Capabilities, Claim, Evict, Examination, Observer, TokenStrength};
use crate::clock::Clock;
use crate::lock::{ClaimId, Holder, LockName, LockStatus, Moment, Request, Result};
use crate::net::fault::FaultResult;
use directory::Directory;
use fault::BACKEND;
use lazy_directory::LazyDirectory;

pub use config::FileConfig;

/// The `file` service: locks of one host, in a directory.
pub static SERVICE: Service = Service {
    name: BACKEND,
    schemes: &["file:"],
    has_login: false,
    options: &[ServiceOption { name: "allow-network-fs", remedy: NAME_THE_SERVICE }],
    parse: |options| Ok(Box::new(FileConfig::parse(options)?)),
    manual: include_str!("manual.md"),
};

impl Address for FileConfig {
    fn service(&self) -> &'static Service {
        &SERVICE
    }

    fn open(&self) -> Arc<dyn Backend> {
        Arc::new(FileBackend::open(self))
    }

    fn place(&self) -> String {
        self.shown().display().to_string()
    }

    fn path_meant(&self, name: &LockName) -> Option<(PathBuf, OsString)> {
        let path = Path::new(name.as_str());
        if self.prefix.is_some() || !path.is_absolute() {
            return None;
        }
        let (directory, file) = (path.parent()?, path.file_name()?);
        (directory.parent().is_some() && directory.is_dir()).then(|| (directory.to_owned(), file.to_owned()))
    }
}

/// Locks in one directory of this host.
#[derive(Debug)]
pub struct FileBackend {
    directory: Arc<LazyDirectory>,
    /// The claims of this process, so that entering again finds them.
    claims: Mutex<HashMap<ClaimId, Weak<FileClaim>>>,
}

impl FileBackend {
    /// Creates the backend of the directory that `config` names. The first call that needs the directory opens it and
    /// checks whether locks may live in it. Entering creates a missing directory; looking does not.
    ///
    /// Errors of the calls: `Unwritable` (the directory cannot be created, or the default one is not private),
    /// `Unsupported` (a network file system), `Invalid`.
    pub fn open(config: &FileConfig) -> Self {
        Self { directory: Arc::new(LazyDirectory::new(config)), claims: Mutex::default() }
    }

    /// Returns the directory; creates it if it is missing.
    fn made(&self) -> Result<&Arc<Directory>> {
        usable(self.directory.make())
    }

    /// Returns the directory if it exists.
    fn found(&self) -> Result<Option<&Arc<Directory>>> {
        usable(self.directory.find())
    }

    fn claims(&self) -> MutexGuard<'_, HashMap<ClaimId, Weak<FileClaim>>> {
        self.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn enter_made(
        &self,
        directory: &Arc<Directory>,
        request: &Request,
        deadline: Moment,
    ) -> FaultResult<Arc<FileClaim>> {
        let known = self.claims().get(&request.id).and_then(Weak::upgrade);
        if let Some(claim) = known.filter(|c| !c.is_over()) {
            return Ok(claim);
        }
        let claim = Arc::new(enter::enter(directory, request, deadline).await?);
        let mut claims = self.claims();
        claims.retain(|_, c| c.strong_count() > 0);
        claims.insert(request.id, Arc::downgrade(&claim));
        Ok(claim)
    }
}

/// Gives all callers the same error for a lock directory that is missing or unsuitable.
fn usable<T>(found: FaultResult<T>) -> Result<T> {
    found.map_err(|fault| fault.during(BACKEND, "use the lock directory", None))
}

#[async_trait]
impl Backend for FileBackend {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            backend: BACKEND,
            queue: true,
            shared: true,
            token: TokenStrength::Durable,
            leased: false,
            renewals_per_ttl: 3,
            look_while_running: true,
            abandoned_bound: Duration::ZERO,
        }
    }

    fn identity(&self) -> String {
        // If the directory cannot be used nothing is held, and the first request reports why.
        let Ok(directory) = self.made() else { return format!("file:{}", self.place()) };
        let (device, inode) = directory.identity();
        let prefix = directory.naming.prefix.as_deref();
        format!("file:{device}:{inode}{}", prefix.map(|p| format!(":{p}")).unwrap_or_default())
    }

    fn place(&self) -> String {
        self.directory.path().display().to_string()
    }

    fn remark(&self) -> String {
        let path = surroundings::resolved(&self.directory.path());
        let private = surroundings::private(&path).map(|above| format!(" in a private {}", above.display()));
        let last = if matches!(self.directory.find(), Ok(None)) {
            ", not used yet"
        } else if surroundings::swept(&path).is_some_and(|(place, _)| place != "/var/tmp") {
            ", where old files are removed"
        } else {
            ""
        };
        private.unwrap_or_default() + last
    }

    fn preconnect(&self) {
        // An error is reported by the entering that follows.
        let _made = self.made();
    }

    async fn enter(&self, request: &Request, deadline: Moment) -> Result<Arc<dyn Claim>> {
        Ok(self.enter_made(self.made()?, request, deadline).await?)
    }

    async fn inspect(&self, name: &LockName, deadline: Moment) -> Result<LockStatus> {
        let Some(directory) = self.found()? else { return Ok(LockStatus::empty(name)) };
        inspect::status(directory, name, true, deadline).await
    }

    async fn list(&self, prefix: &str, deadline: Moment) -> Result<Vec<LockStatus>> {
        let Some(directory) = self.found()? else { return Ok(Vec::new()) };
        let names = inspect::names(directory)?;
        let mut queues = Vec::new();
        for name in names.iter().filter(|n| n.as_str().starts_with(prefix)) {
            let status = inspect::status(directory, name, false, deadline).await?;
            if !status.is_empty() {
                queues.push(status);
            }
        }
        Ok(queues)
    }

    async fn observe(&self, name: &LockName) -> Result<Box<dyn Observer>> {
        self.found()?;
        let queue = observe::WatchedQueue::new(&self.directory);
        Ok(Box::new(QueueObserver::new(Clock::Boot, name.clone(), queue)))
    }

    async fn evict(
        &self,
        name: &LockName,
        id: ClaimId,
        how: Evict,
        by: &Holder,
        deadline: Moment,
    ) -> Result<bool> {
        let Some(directory) = self.found()? else { return Ok(false) };
        let eviction = evict::Eviction { id, how, by };
        eviction.carry_out(directory, name, deadline).await
    }

    async fn publish(&self, name: &LockName, id: ClaimId, value: &str, deadline: Moment) -> Result<bool> {
        let Some(directory) = self.found()? else { return Ok(false) };
        publish::publish(directory, name, id, value, deadline).await
    }

    async fn evict_foreign(&self, name: &LockName, id: ClaimId, deadline: Moment) -> Result<bool> {
        let Some(directory) = self.found()? else { return Ok(false) };
        evict::evict_foreign(directory, name, id, deadline).await
    }

    async fn examine(&self, deadline: Moment) -> Result<Examination> {
        let Some(directory) = self.found()? else { return Ok(examine::missing(&self.directory.path())) };
        examine::examine(directory, deadline).await
    }

    async fn last_success(&self, name: &LockName, deadline: Moment) -> Result<Option<Duration>> {
        let Some(directory) = self.found()? else { return Ok(None) };
        inspect::last_success(directory, name, deadline).await
    }
}
