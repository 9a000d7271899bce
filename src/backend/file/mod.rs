//! The `file` backend: locks of one host, without a server, shared with `flock(1)`.
//!
//! | file | content |
//! |---|---|
//! | `DIR/NAME` | the lock file, empty, never unlinked: `flock(2)` on it is the hold (shared for shared and slots) |
//! | `DIR/.NAME.queue` | the queue: a header, then one line an entry; changed under a flock on itself, the guard |
//! | `DIR/.NAME.CLAIM` | the claim's FIFO, open and flocked while its owner lives; its closing wakes the successor |
//! | `DIR/.NAME.fifo` | the same for a claim that found the queue empty; it is kept |
//! | `DIR/.NAME.slot.K` | slot K, flocked by its holder |
//!
//! Nothing expires and nothing is polled: the kernel ends a claim with its process. An entry is believed only while its
//! FIFO is flocked. A hold is announced only once the lock file is flocked.

mod append;
mod commit;
mod config;
mod contents;
mod directory;
mod entries;
mod events;
mod examine;
mod fault;
mod fifo;
mod flock;
mod header;
mod hold;
mod inspect;
mod locker;
mod names;
mod seat;
mod storage;
mod store;
mod surroundings;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests_files;
#[cfg(test)]
mod tests_presence;
mod view;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Backend;
use super::service::{Address, Service};
use crate::clock::Clock;
use crate::lock::LockName;
use crate::queue::Queues;
use fault::BACKEND;
use store::FileStore;

pub use config::FileConfig;

/// The `file` service: locks of one host, in a directory.
pub static SERVICE: Service = Service {
    name: BACKEND,
    schemes: &["file:"],
    has_login: false,
    options: &["allow-network-fs"],
    parse: |options| Ok(Box::new(FileConfig::parse(options)?)),
    manual: include_str!("../../../man/dlock-file.7"),
};

impl Address for FileConfig {
    fn service(&self) -> &'static Service {
        &SERVICE
    }

    fn open(&self) -> Arc<dyn Backend> {
        Arc::new(Queues::new(Arc::new(FileStore::open(self)), Clock::Boot))
    }

    fn place(&self) -> String {
        self.path().display().to_string()
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
