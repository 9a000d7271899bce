//! Telling the service manager how it goes, as `sd_notify(3)` does.
//!
//! The front does it: it is the process that was started, so that `NotifyAccess=main` suffices. What is told and how often
//! is the keeper's affair. A message that cannot be sent is dropped, as by `sd_notify`: nobody may wait for its reader.

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;

use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, sendto, socket_with};

/// The variable that says where the service manager listens. It is passed on to the command untouched.
pub const VARIABLE: &str = "NOTIFY_SOCKET";

/// What is told of each state.
#[derive(Debug)]
pub struct Texts {
    /// While waiting, at that place if it is known.
    pub waiting: fn(&str, Option<u32>) -> String,
    /// When the command has started.
    pub started: fn(&str) -> String,
    /// What the two are about.
    pub subject: String,
}

/// A service manager that listens.
#[derive(Debug)]
pub struct Notifier {
    socket: OwnedFd,
    address: SocketAddrUnix,
    texts: Texts,
    /// The start of the command is told: it is wanted, or it ends a wait that was told.
    tells_start: bool,
}

impl Notifier {
    /// One for the manager whose socket `address` says: a path, or `@` and an abstract name. `None` if that is neither, or
    /// the system has no socket to spare. The start of the command is told if `tells_start`, or once a wait was.
    pub fn new(address: &OsStr, texts: Texts, tells_start: bool) -> Option<Self> {
        let address = match address.as_bytes() {
            [b'@', name @ ..] => SocketAddrUnix::new_abstract_name(name).ok()?,
            [b'/', ..] => SocketAddrUnix::new(address).ok()?,
            _ => return None,
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None).ok()?;
        Some(Self { socket, address, texts, tells_start })
    }

    /// Tells that the command is waited with, at the place `ahead` if it is not negative.
    pub(super) fn waiting(&mut self, ahead: i32) {
        self.tells_start = true;
        self.tell(&(self.texts.waiting)(&self.texts.subject, u32::try_from(ahead).ok()));
    }

    /// Tells that the command has started, where that is to be told.
    pub(super) fn started(&self) {
        if self.tells_start {
            self.tell(&(self.texts.started)(&self.texts.subject));
        }
    }

    fn tell(&self, text: &str) {
        // Not for want of a reader: the next message says it again, or nobody wants it.
        let _ = sendto(&self.socket, text.as_bytes(), SendFlags::NOSIGNAL, &self.address);
    }
}

/// Where the service manager of this process listens, if one does.
pub fn address() -> Option<OsString> {
    std::env::var_os(VARIABLE).filter(|address| !address.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts() -> Texts {
        let waiting = |subject: &str, ahead: Option<u32>| format!("{subject} {ahead:?}");
        Texts { waiting, started: |subject| format!("{subject} started"), subject: "x".into() }
    }

    #[test]
    fn only_paths_and_abstract_names_are_addresses() {
        for address in ["/run/x", "@x"] {
            assert!(Notifier::new(OsStr::new(address), texts(), false).is_some(), "{address}");
        }
        for address in ["x", "vsock:2:1", "fd:3", ""] {
            assert!(Notifier::new(OsStr::new(address), texts(), false).is_none(), "{address}");
        }
    }

    #[test]
    fn a_manager_that_is_not_there_keeps_nobody_waiting() {
        let mut notifier =
            Notifier::new(OsStr::new("/nonexistent/socket"), texts(), true).expect("an address");
        notifier.waiting(-1);
        notifier.started();
    }
}
