//! What people say of a service: where it is, and how to get in.

use std::fmt;
use std::time::Duration;

/// A text that never appears in any output.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Keeps `text` to itself.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text, for the service alone.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

/// One or more certificates, or a key, as the text of a PEM file.
#[derive(Clone, PartialEq, Eq)]
pub struct Pem(Vec<u8>);

impl Pem {
    /// Takes what a file contains; whoever opens a connection with it checks it.
    pub fn new(text: Vec<u8>) -> Self {
        Self(text)
    }

    /// The text.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(PEM)")
    }
}

/// A certificate to show, and its key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    /// The certificate and those between it and the authority.
    pub certificate: Pem,
    /// Its private key.
    pub key: Pem,
}

/// How a connection is encrypted, where the address says that it is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tls {
    /// Whose servers are believed; the system's authorities if not given.
    pub authority: Option<Pem>,
    /// Who this client is.
    pub identity: Option<Identity>,
    /// The name that the server's certificate must have, if it is not that of the address.
    pub server_name: Option<String>,
}

impl Tls {
    /// Whether anything was said of encryption.
    pub fn is_given(&self) -> bool {
        *self != Self::default()
    }
}

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
pub(crate) fn assert_refused<T: fmt::Debug>(parsed: Result<T, String>, part: &str) {
    let why = parsed.expect_err(part);
    assert!(why.contains(part) && !why.contains('\n') && !why.contains("secret"), "{why}");
}
