//! The `file` backend: locks of one host, without a server, shared with `flock(1)`.
//!
//! | file | what |
//! |---|---|
//! | `DIR/NAME` | the lock file, empty, never unlinked: `flock(2)` on it is the hold (shared for shared and slots) |
//! | `DIR/.NAME.line` | the line: a header, then one record a claim; changed under a flock on itself, the guard |
//! | `DIR/.NAME.CLAIM` | the claim's FIFO, open and flocked while its owner lives; its closing wakes the successor |
//! | `DIR/.NAME.fifo` | the same for a claim that found the line empty; it stays |
//! | `DIR/.NAME.slot.K` | slot K, flocked by who has it |
//! | `DIR/.dlock-deadlock` | flocked by who enters under another claim |
//!
//! Nothing expires and nothing is polled: the kernel ends a claim with its process. What a record says is
//! believed only as long as its FIFO is flocked, and a hold is told only once the lock file is.

mod claim;
mod config;
mod deadlock;
mod directory;
mod evict;
mod examine;
mod falter;
mod fault;
mod fifo;
mod grant;
mod guard;
mod header;
mod hold;
mod inotify;
mod inspect;
mod join;
mod line;
mod locker;
mod names;
mod observe;
mod presence;
mod reserve;
mod storage;
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
mod turn;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use async_trait::async_trait;

use super::service::{Address, NAME_THE_SERVICE, Service, ServiceOption};
use super::{Backend, Capabilities, Claim, Evict, Examination, Observer, TokenStrength};
use crate::lock::{ClaimId, ErrorKind, Holder, LockName, LockStatus, Moment, Request, Result};
use claim::FileClaim;
use directory::Directory;
use fault::{Fault, Outcome};

pub use config::FileConfig;

/// The backend's name.
const BACKEND: &str = "file";

/// Locks of one host, in a directory.
pub static SERVICE: Service = Service {
    name: BACKEND,
    schemes: &["file:"],
    has_login: false,
    options: &[ServiceOption { name: "allow-network-fs", remedy: NAME_THE_SERVICE }],
    parse: |options| Ok(Box::new(FileConfig::parse(options)?)),
    manual: &[include_str!("manual.md")],
};

impl Address for FileConfig {
    fn service(&self) -> &'static Service {
        &SERVICE
    }

    fn open(&self) -> Result<Arc<dyn Backend>> {
        Ok(Arc::new(FileBackend::open(self)?))
    }

    fn place(&self) -> String {
        let path = self.path().ok().or_else(|| self.directory.clone());
        path.map_or_else(String::new, |path| path.display().to_string())
    }
}

/// Locks in one directory of this host.
#[derive(Debug)]
pub struct FileBackend {
    directory: Arc<Directory>,
    /// The claims of this process, so that entering again finds them.
    claims: Mutex<HashMap<ClaimId, Weak<FileClaim>>>,
}

impl FileBackend {
    /// Resolves the directory, makes it if it is missing, and checks that locks may live in it.
    ///
    /// Errors: `Unwritable` (it cannot be made, or the default one is not private), `Unsupported` (a network
    /// file system), `Invalid`.
    pub fn open(config: &FileConfig) -> Result<Self> {
        let directory = config::open(config).map_err(|f| f.during("use the lock directory", None))?;
        Ok(Self { directory: Arc::new(directory), claims: Mutex::default() })
    }

    fn claims(&self) -> MutexGuard<'_, HashMap<ClaimId, Weak<FileClaim>>> {
        self.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn join(&self, request: &Request, deadline: Moment) -> Outcome<Arc<FileClaim>> {
        let known = self.claims().get(&request.id).and_then(Weak::upgrade);
        if let Some(claim) = known.filter(|c| !c.is_over()) {
            return Ok(claim);
        }
        let nested = !request.ancestors.is_empty();
        let _turn = if nested { Some(deadlock::turn(&self.directory, deadline).await?) } else { None };
        let claim = Arc::new(join::join(&self.directory, request, deadline).await?);
        if nested
            && deadlock::waits(&claim)
            && let Some(reason) = deadlock::search(&self.directory, request.id, deadline).await?
        {
            claim.leave(false, deadline).await.map_err(|e| Fault::said(e.kind, e.reason))?;
            return Err(Fault::said(ErrorKind::Deadlock, reason));
        }
        let mut claims = self.claims();
        claims.retain(|_, c| c.strong_count() > 0);
        claims.insert(request.id, Arc::downgrade(&claim));
        Ok(claim)
    }
}

#[async_trait]
impl Backend for FileBackend {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            backend: BACKEND,
            atomic_names: true,
            ordered: true,
            token: TokenStrength::Durable,
            leased: false,
            renewals_per_ttl: 3,
            look_while_running: true,
            abandoned_bound: Duration::ZERO,
        }
    }

    fn identity(&self) -> String {
        let (device, inode) = self.directory.identity();
        let prefix = self.directory.naming.prefix.as_deref();
        format!("file:{device}:{inode}{}", prefix.map(|p| format!(":{p}")).unwrap_or_default())
    }

    fn place(&self) -> String {
        self.directory.path().display().to_string()
    }

    async fn enter(&self, request: &Request, deadline: Moment) -> Result<Arc<dyn Claim>> {
        let joined = self.join(request, deadline).await;
        Ok(joined.map_err(|f| f.during("enter the line", request.names.first()))?)
    }

    async fn inspect(&self, name: &LockName, deadline: Moment) -> Result<LockStatus> {
        let status = inspect::status(&self.directory, name, true, deadline).await;
        status.map_err(|f| f.during("inspect the line", Some(name)))
    }

    async fn list(&self, prefix: &str, deadline: Moment) -> Result<Vec<LockStatus>> {
        let names = inspect::names(&self.directory).map_err(|f| f.during("list the lines", None))?;
        let mut lines = Vec::new();
        for name in names.iter().filter(|n| n.as_str().starts_with(prefix)) {
            let status = inspect::status(&self.directory, name, false, deadline).await;
            let status = status.map_err(|f| f.during("inspect the line", Some(name)))?;
            if !status.is_empty() {
                lines.push(status);
            }
        }
        Ok(lines)
    }

    async fn observe(&self, name: &LockName) -> Result<Box<dyn Observer>> {
        match observe::FileObserver::start(&self.directory, name) {
            Ok(observer) => Ok(Box::new(observer)),
            Err(fault) => Err(fault.during("observe the line", Some(name))),
        }
    }

    async fn evict(
        &self,
        name: &LockName,
        id: ClaimId,
        how: Evict,
        by: &Holder,
        deadline: Moment,
    ) -> Result<bool> {
        let eviction = evict::Eviction { id, how, by };
        let done = eviction.carry_out(&self.directory, name, deadline).await;
        done.map_err(|f| f.during("evict from the line", Some(name)))
    }

    async fn evict_foreign(&self, name: &LockName, id: ClaimId, deadline: Moment) -> Result<bool> {
        let done = evict::evict_foreign(&self.directory, name, id, deadline).await;
        done.map_err(|f| f.during("evict from the line", Some(name)))
    }

    async fn examine(&self, deadline: Moment) -> Result<Examination> {
        let directory = &self.directory;
        examine::examine(directory, deadline).await.map_err(|f| f.during("examine the directory", None))
    }

    async fn last_success(&self, name: &LockName, deadline: Moment) -> Result<Option<Duration>> {
        let success = inspect::last_success(&self.directory, name, deadline).await;
        success.map_err(|f| f.during("read the last success", Some(name)))
    }
}
