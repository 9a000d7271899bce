//! Connections that are begun before there is a runtime to wait for them in.

use std::io;
use std::net::{SocketAddr, TcpStream};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with};

/// Begins to connect to `address` and does not wait. That it cannot be begun is found by who connects again.
pub fn begin(address: SocketAddr) -> Option<TcpStream> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, None).ok()?;
    match connect(&socket, &address) {
        Ok(()) | Err(Errno::INPROGRESS) => Some(socket.into()),
        Err(_) => None,
    }
}

/// Waits for the end of what [`begin`] began; needs a running tokio runtime. Dropping the future closes the socket.
///
/// Errors: those of connecting.
pub async fn end(begun: TcpStream) -> io::Result<tokio::net::TcpStream> {
    let stream = tokio::net::TcpStream::from_std(begun)?;
    stream.writable().await?;
    match stream.take_error()? {
        Some(error) => Err(error),
        None => Ok(stream),
    }
}
