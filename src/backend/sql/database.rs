//! A database: its servers, and the login.

use std::fmt;
use std::path::PathBuf;

use super::tables::Tables;
use crate::net::address::HostPort;
use crate::net::credentials::{Secret, Tls};
use crate::net::tls::stays_here;

/// The address of a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Place {
    Tcp(HostPort),
    /// A socket of this host.
    Socket(PathBuf),
}

impl Place {
    /// Returns whether the connection stays on this host.
    pub(super) fn is_here(&self) -> bool {
        match self {
            Self::Tcp(at) => stays_here(&at.host),
            Self::Socket(_) => true,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(at) => at.fmt(f),
            Self::Socket(path) => path.display().fmt(f),
        }
    }
}

/// A server, and the password for it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Server {
    pub(super) place: Place,
    pub(super) password: Option<Secret>,
}

/// The requirements on encryption and on the server's certificate.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Debug)]
pub(super) enum Mode {
    /// Never encrypted.
    Disabled,
    /// Encrypted if the server can. The certificate is not checked.
    Preferred,
    /// Encrypted.
    Required,
    /// The authority is checked.
    VerifyCa,
    /// The authority and the name are checked.
    VerifyIdentity,
}

impl Mode {
    /// Returns the mode that the `setting` names as `text`. `names` are those of all modes, in their order.
    pub(super) fn parse(setting: &str, names: [&str; 5], text: &str) -> Result<Self, String> {
        let modes = [Self::Disabled, Self::Preferred, Self::Required, Self::VerifyCa, Self::VerifyIdentity];
        let found = names.iter().zip(modes).find(|(name, _)| name.eq_ignore_ascii_case(text));
        let unknown = || format!("{text:?} is not an {setting}; the modes are {}", names.join(", "));
        found.map(|(_, mode)| mode).ok_or_else(unknown)
    }
}

/// A database, and the login.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Database {
    /// The servers, in the order in which they are tried. One of them accepts writes.
    pub(super) servers: Vec<Server>,
    pub(super) user: String,
    /// Its name; empty if the prefix names it.
    pub(super) name: String,
    pub(super) mode: Mode,
    pub(super) tls: Tls,
    pub(super) tables: Tables,
}

impl Database {
    /// Returns the same database with each of its servers alone.
    pub(super) fn each(&self) -> Vec<Self> {
        let alone = |server: &Server| Self { servers: vec![server.clone()], ..self.clone() };
        self.servers.iter().map(alone).collect()
    }

    /// Returns a server on another host if the password to it can be intercepted.
    pub(super) fn open_password(&self) -> Option<&Place> {
        let is_open = |server: &&Server| server.password.is_some() && !server.place.is_here();
        let open = self.servers.iter().find(is_open).filter(|_| self.mode < Mode::Required);
        open.map(|server| &server.place)
    }
}
