//! Where the locks of a test are.

use std::path::Path;

/// A lock service, or the part of one that a single test has to itself.
#[derive(Clone, Debug)]
pub(crate) struct Service {
    /// As `--backend` calls it.
    pub(crate) backend: &'static str,
    /// For `--endpoint`.
    pub(crate) endpoint: String,
    /// For `DLOCK_PREFIX`, where that keeps tests apart.
    pub(crate) prefix: Option<String>,
}

impl Service {
    /// The lock directory in the test's own folder.
    pub(crate) fn file(root: &Path) -> Self {
        let endpoint = root.join("locks").to_str().expect("UTF-8").to_owned();
        Self { backend: "file", endpoint, prefix: None }
    }
}
