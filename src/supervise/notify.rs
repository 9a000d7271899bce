//! Notifies the service manager, as `sd_notify(3)` does.
//!
//! The front does it, since `NotifyAccess=main` accepts only the process that was started. The keeper decides what to
//! send and how often. A message that cannot be sent at once is dropped, as by `sd_notify`: dlock must not wait for its
//! reader.

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;

use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, sendto, socket_with};

/// The variable with the socket of the service manager. The command inherits it unchanged.
pub const VARIABLE: &str = "NOTIFY_SOCKET";

/// The texts of the messages.
#[derive(Debug)]
pub struct Texts {
    /// While waiting: the subject, and how many are ahead, if known.
    pub waiting: fn(&str, Option<u32>) -> String,
    /// The subject of that.
    pub subject: String,
    /// When the command has started.
    pub started: String,
}

/// The socket of a service manager.
#[derive(Debug)]
pub struct Notifier {
    socket: OwnedFd,
    address: SocketAddrUnix,
    texts: Texts,
    /// Whether to send a message when the command starts: if requested, or once a message about waiting was sent.
    tells_start: bool,
}

impl Notifier {
    /// Creates a notifier for the socket at `address`: a path, or `@` and an abstract name. Returns `None` for other
    /// addresses, or if the system has no socket left. It reports the start of the command if `tells_start`, or once it
    /// has reported a wait.
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

    /// Reports that the command waits, with `ahead` claims before it; negative if unknown.
    pub(super) fn waiting(&mut self, ahead: i32) {
        self.tells_start = true;
        self.tell(&(self.texts.waiting)(&self.texts.subject, u32::try_from(ahead).ok()));
    }

    /// Reports that the command has started, if that is to be reported.
    pub(super) fn started(&self) {
        if self.tells_start {
            self.tell(&self.texts.started);
        }
    }

    fn tell(&self, text: &str) {
        // An error does no harm: the next message replaces this one, or the manager does not need it.
        let _ = sendto(&self.socket, text.as_bytes(), SendFlags::NOSIGNAL, &self.address);
    }
}

/// Returns the socket of this process's service manager, if there is one.
pub fn address() -> Option<OsString> {
    std::env::var_os(VARIABLE).filter(|address| !address.is_empty())
}
