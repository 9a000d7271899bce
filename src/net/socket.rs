//! Socket options for silent connections. A NAT or a firewall that drops a flow notifies neither side.
#![expect(unsafe_code, reason = "client libraries hide the descriptors of their sockets")]

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;
use std::{fs, io};

use rustix::io::{Errno, FdFlags, fcntl_getfd};
use rustix::net::{ipproto, sockopt};

/// The idle time before the first keepalive probe.
pub const PROBED_AFTER: Duration = Duration::from_secs(6);
/// The time between two probes.
pub const PROBED_EVERY: Duration = Duration::from_secs(2);
/// The longest silence of a connection: without an answer to probes, or to data.
const SILENT: Duration = Duration::from_secs(10);

/// Makes the kernel break the connection of `socket` after 10 s without an acknowledgement, also if nothing is sent.
/// Also makes it send writes at once, because a request is one small write.
pub fn tend(socket: impl AsFd) -> io::Result<()> {
    sockopt::set_tcp_nodelay(&socket, true)?;
    sockopt::set_tcp_keepidle(&socket, PROBED_AFTER)?;
    sockopt::set_tcp_keepintvl(&socket, PROBED_EVERY)?;
    sockopt::set_tcp_user_timeout(&socket, u32::try_from(SILENT.as_millis()).unwrap_or(u32::MAX))?;
    sockopt::set_socket_keepalive(&socket, true)?;
    Ok(())
}

/// Returns whether this host lacks descriptors or memory for a connection.
pub fn is_scarce(error: &io::Error) -> bool {
    let scarce = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::NOBUFS];
    Errno::from_io_error(error).is_some_and(|errno| scarce.contains(&errno))
}

/// Applies [`tend`] to the sockets that a client library hides: all TCP sockets of this process that a command does not
/// inherit. It does nothing without a usable /proc.
pub fn tend_all() {
    for entry in fs::read_dir("/proc/self/fd").into_iter().flatten().flatten() {
        let Some(number) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // SAFETY: the descriptor was just listed. On this thread only its owner, which does not run meanwhile, closes
        // it. Descriptors that other threads close are not connections.
        let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
        let is_own = fcntl_getfd(descriptor).is_ok_and(|flags| flags.contains(FdFlags::CLOEXEC));
        if is_own && sockopt::socket_protocol(descriptor).is_ok_and(|found| found == Some(ipproto::TCP)) {
            // A connection without probes still works.
            let _ = tend(descriptor);
        }
    }
}
