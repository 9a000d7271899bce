//! The lock directory of a configuration, opened when it is first needed.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use rustix::fs::{AtFlags, CWD, statat};
use rustix::io::Errno;

use super::config::{self, FileConfig};
use super::directory::Directory;
use crate::net::fault::FaultResult;

/// A lock directory that may not exist yet. Entering creates it; looking does not.
#[derive(Debug)]
pub(super) struct LazyDirectory {
    config: FileConfig,
    opened: OnceLock<Arc<Directory>>,
}

impl LazyDirectory {
    /// The directory of `config`. A relative path is resolved now, since dlock leaves the present working directory
    /// later.
    pub(super) fn new(config: &FileConfig) -> Self {
        let mut config = config.clone();
        if let Some(absolute) = config.directory.as_deref().and_then(|path| std::path::absolute(path).ok()) {
            config.directory = Some(absolute);
        }
        Self { config, opened: OnceLock::new() }
    }

    /// Returns its path, whether or not it exists.
    pub(super) fn path(&self) -> PathBuf {
        self.opened.get().map_or_else(|| self.config.shown(), |directory| directory.path().to_owned())
    }

    /// Returns the directory; creates it if it is missing.
    pub(super) fn make(&self) -> FaultResult<&Arc<Directory>> {
        if let Some(directory) = self.opened.get() {
            return Ok(directory);
        }
        let directory = Arc::new(config::open(&self.config)?);
        Ok(self.opened.get_or_init(|| directory))
    }

    /// Returns the directory if it exists. Fails if it cannot be used as a lock directory.
    pub(super) fn find(&self) -> FaultResult<Option<&Arc<Directory>>> {
        if self.opened.get().is_none() && is_missing(&self.path()) {
            return Ok(None);
        }
        self.make().map(Some)
    }
}

/// Returns whether nothing is at `path`, not even a dangling link.
fn is_missing(path: &Path) -> bool {
    matches!(statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW), Err(Errno::NOENT))
}
