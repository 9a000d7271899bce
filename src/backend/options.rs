//! The connection options: where a service is, and how to log in.

use std::time::Duration;

use crate::net::credentials::{Secret, Tls};

/// The naming scheme of ZooKeeper nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ZkLayout {
    /// The scheme of Curator.
    #[default]
    Curator,
    /// The scheme of kazoo.
    Kazoo,
}

/// The connection options as given, not yet parsed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// `--backend`.
    pub backend: Option<String>,
    /// `--endpoint`, as given: the backend splits comma lists, because it knows where commas are allowed.
    pub endpoints: Vec<String>,
    /// Where they come from, in words, if not from the command line: they then apply in any working directory.
    pub endpoints_in: Option<&'static str>,
    /// `--prefix`; an empty one differs from an absent one.
    pub prefix: Option<String>,
    /// `--user`.
    pub user: Option<String>,
    /// The password, from any source.
    pub password: Option<Secret>,
    /// Encryption.
    pub tls: Tls,
    /// `--zk-layout`.
    pub zk_layout: Option<ZkLayout>,
    /// `--max-ttl`.
    pub max_ttl: Option<Duration>,
    /// `--allow-network-fs`.
    pub allow_network_fs: bool,
}

#[cfg(test)]
impl Options {
    /// Returns options that contain only endpoints.
    pub(crate) fn at(endpoints: &[&str]) -> Self {
        Self { endpoints: endpoints.iter().map(|&endpoint| endpoint.to_owned()).collect(), ..Self::default() }
    }
}

/// Checks that parsing failed with one line that contains `part` and not the password `secret`.
#[cfg(test)]
#[track_caller]
pub(crate) fn assert_refused<T: std::fmt::Debug>(parsed: Result<T, String>, part: &str) {
    let why = parsed.expect_err(part);
    assert!(why.contains(part) && !why.contains('\n') && !why.contains("secret"), "{why}");
}
