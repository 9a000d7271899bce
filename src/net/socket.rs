//! TCP connections to the first address of a host that answers, and their options. A NAT or a firewall that drops a
//! flow notifies neither side.
#![expect(unsafe_code, reason = "client libraries hide the descriptors of their sockets")]

use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;
use std::{fs, io};

use futures_util::future::select_all;
use rustix::io::{Errno, FdFlags, fcntl_getfd};
use rustix::net::{ipproto, sockopt};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::sleep;

use super::fault::Fault;
use crate::lock::{ErrorKind, Reason};

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

/// Returns the fault of a failed attempt to connect with this `reason`. If this host lacks descriptors or memory,
/// another server does not help.
pub fn unmade(reason: Reason, error: &io::Error) -> Fault {
    let scarce = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::NOBUFS];
    match Errno::from_io_error(error) {
        Some(errno) if scarce.contains(&errno) => Fault::new(ErrorKind::System, reason),
        _ => Fault::spent(reason),
    }
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

/// The time that an address has to answer before the next one is tried in parallel.
pub const STAGGER: Duration = Duration::from_millis(250);

/// How long data sent over a closed socket may still be delivered, and executed. Linux retransmits unacknowledged data
/// until 102.2 s after the first transmission (`tcp_orphan_retries`; measured: given up after 106 s). The rest is for
/// the network and the service.
pub const LATE: Duration = Duration::from_secs(120);

/// Connects to one address, with the options of [`tend`].
async fn connect_to(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    tend(&stream)?;
    Ok(stream)
}

/// Connects to `port` of `host`, at the first of its addresses that answers. Literal addresses and `localhost` are not
/// looked up, because a lookup takes a thread.
///
/// Errors: the first one of any address, or that there is no address. If no address answers, it takes as long as the
/// system's timeout. Dropping the future closes all attempts.
pub async fn connect(host: &str, port: u16) -> io::Result<TcpStream> {
    let addresses = match host.parse::<IpAddr>() {
        Ok(address) => vec![SocketAddr::new(address, port)],
        Err(_) if host.eq_ignore_ascii_case("localhost") => {
            let own = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
            own.map(|address| SocketAddr::new(address, port)).to_vec()
        }
        Err(_) => lookup_host((host, port)).await?.collect(),
    };
    let connected = first_of(addresses.into_iter().map(connect_to)).await;
    connected.unwrap_or_else(|| Err(io::Error::other("the host has no address")))
}

/// Returns the first success of `attempts`, one for each address of a host. While one is silent, the next starts in
/// parallel, as in "Happy Eyeballs" (RFC 8305, section 5).
///
/// Errors: the first, once all have failed; `None` if there is no attempt. Dropping the future drops all started
/// attempts.
pub async fn first_of<T, E>(
    attempts: impl IntoIterator<Item = impl Future<Output = Result<T, E>>>,
) -> Option<Result<T, E>> {
    let mut left = attempts.into_iter();
    let mut begun = Vec::new();
    let mut failure = None;
    loop {
        let next = left.next();
        let more = next.is_some();
        begun.extend(next.map(Box::pin));
        if begun.is_empty() {
            return failure.map(Err);
        }
        tokio::select! {
            biased;
            (answer, at, _) = select_all(&mut begun) => match answer {
                Ok(done) => return Some(Ok(done)),
                Err(error) => {
                    drop(begun.swap_remove(at));
                    failure.get_or_insert(error);
                }
            },
            () = sleep(STAGGER), if more => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::cause;

    #[test]
    fn local_resource_shortage_is_no_service_fault() {
        let kind = |number| {
            let error = io::Error::from_raw_os_error(number);
            unmade(cause::unreached(&"h:1", &error), &error).kind
        };
        // EMFILE, ENFILE, ENOMEM; ECONNREFUSED.
        assert_eq!(
            [24, 23, 12, 111].map(kind),
            [ErrorKind::System, ErrorKind::System, ErrorKind::System, ErrorKind::Unavailable]
        );
    }
}
