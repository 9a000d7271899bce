//! What people say of a service: where it is, and how to get in.

use std::time::Duration;

use crate::net::credentials::{Secret, Tls};

/// How ZooKeeper nodes are named.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ZkLayout {
    /// As Curator names them.
    #[default]
    Curator,
    /// As kazoo names them.
    Kazoo,
}

/// The connection options, as they were given and not yet understood.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// `--backend`.
    pub backend: Option<String>,
    /// `--endpoint`, as given: comma lists are taken apart by the backend, which knows where commas belong.
    pub endpoints: Vec<String>,
    /// What they are from if not from the command line, in words: it counts in any working directory.
    pub endpoints_in: Option<&'static str>,
    /// `--prefix`; an empty one is another thing than none.
    pub prefix: Option<String>,
    /// `--user`.
    pub user: Option<String>,
    /// The password, from wherever it was kept.
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
    /// Those of somebody who only says where the service is.
    pub(crate) fn at(endpoints: &[&str]) -> Self {
        Self { endpoints: endpoints.iter().map(|&endpoint| endpoint.to_owned()).collect(), ..Self::default() }
    }
}

/// That what was `parsed` was refused, in one line which says `part` and not the password `secret`.
#[cfg(test)]
#[track_caller]
pub(crate) fn assert_refused<T: std::fmt::Debug>(parsed: Result<T, String>, part: &str) {
    let why = parsed.expect_err(part);
    assert!(why.contains(part) && !why.contains('\n') && !why.contains("secret"), "{why}");
}
