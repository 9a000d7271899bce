//! What the kernel does about a connection that is silent. A NAT or a firewall that forgot a flow tells neither side.
#![expect(unsafe_code, reason = "client libraries hide the descriptors of their sockets")]

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;
use std::{fs, io};

use rustix::io::{Errno, FdFlags, fcntl_getfd};
use rustix::net::{ipproto, sockopt};

/// After how long a silent connection is probed.
pub const PROBED_AFTER: Duration = Duration::from_secs(6);
/// How long it takes until the next probe.
pub const PROBED_EVERY: Duration = Duration::from_secs(2);
/// For how long a connection may be silent in all: no answer to probes, or to what was sent.
const SILENT: Duration = Duration::from_secs(10);

/// Has the kernel break the connection of `socket` once its other end has acknowledged nothing for 10 s, also where nothing is
/// sent; and has it send at once what is written, since a request is one small write.
pub fn tend(socket: impl AsFd) -> io::Result<()> {
    sockopt::set_tcp_nodelay(&socket, true)?;
    sockopt::set_tcp_keepidle(&socket, PROBED_AFTER)?;
    sockopt::set_tcp_keepintvl(&socket, PROBED_EVERY)?;
    sockopt::set_tcp_user_timeout(&socket, u32::try_from(SILENT.as_millis()).unwrap_or(u32::MAX))?;
    sockopt::set_socket_keepalive(&socket, true)?;
    Ok(())
}

/// Whether this host has no descriptor or memory for a connection.
pub fn is_scarce(error: &io::Error) -> bool {
    let scarce = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::NOBUFS];
    Errno::from_io_error(error).is_some_and(|errno| scarce.contains(&errno))
}

/// As [`tend`], for the sockets that a client library opened and keeps to itself: all of this process that a command does not inherit.
/// None without a usable /proc.
pub fn tend_all() {
    for entry in fs::read_dir("/proc/self/fd").into_iter().flatten().flatten() {
        let Some(number) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // SAFETY: it was just listed, and on this thread only its owner closes it, which does not run meanwhile. What another thread
        // closes is not a connection.
        let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
        let is_own = fcntl_getfd(descriptor).is_ok_and(|flags| flags.contains(FdFlags::CLOEXEC));
        if is_own && sockopt::socket_protocol(descriptor).is_ok_and(|found| found == Some(ipproto::TCP)) {
            // A connection without probes is still a connection.
            let _ = tend(descriptor);
        }
    }
}
