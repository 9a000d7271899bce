//! The place of a test's locks.

#![allow(dead_code, reason = "each test binary uses its own part of this")]

use std::path::Path;

/// A lock service, or the part of one that a single test has to itself.
#[derive(Clone, Debug)]
pub(crate) struct Service {
    /// For `--backend`.
    pub(crate) backend: &'static str,
    /// For `--endpoint`.
    pub(crate) endpoint: String,
    /// For `DLOCK_PREFIX`, if that keeps tests apart.
    pub(crate) prefix: Option<String>,
}

impl Service {
    /// Returns the lock directory in the test's own directory.
    pub(crate) fn file(root: &Path) -> Self {
        let endpoint = root.join("locks").to_str().expect("UTF-8").to_owned();
        Self { backend: "file", endpoint, prefix: None }
    }

    /// Returns the service's key for `name`. If there is no prefix, `usual` precedes the name.
    pub(crate) fn key(&self, usual: &str, name: &str) -> String {
        format!("{}{name}", self.prefix.as_deref().unwrap_or(usual))
    }

    /// Returns the same service, reached through `relay` instead of its server at `port`.
    pub(crate) fn through(&self, relay: u16, port: u16) -> Self {
        let (direct, relayed) = (format!("127.0.0.1:{port}"), format!("127.0.0.1:{relay}"));
        Self { endpoint: self.endpoint.replacen(&direct, &relayed, 1), ..self.clone() }
    }
}
