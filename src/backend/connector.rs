//! Connections to servers over TCP, with or without encryption.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect as begin_to_connect, socket_with};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::address::HostPort;
use super::cause;
use super::fault::{Fault, FaultResult, Retry};
use super::options::Tls;
use super::{tcp, tls};

/// A byte stream to a server.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// Connects to `at`, unless that is `begun`, and encrypts the connection if `tls` says how.
///
/// Errors: `Unavailable` if nobody is reached, `Denied` if one side does not accept the other's certificate, `Invalid` for
/// certificates that cannot be used. Dropping the future closes the connection.
pub async fn connect(
    at: &HostPort,
    tls: Option<&Tls>,
    begun: Option<std::net::TcpStream>,
) -> FaultResult<Box<dyn Stream>> {
    let stream = match begun {
        Some(begun) => end(begun).await,
        None => tcp::connect(&at.host, at.port).await,
    };
    let stream = stream.map_err(|error| Fault::spent(cause::unreached(at, &error)))?;
    // A request is one small write; waiting for more to send would only be late.
    stream.set_nodelay(true).map_err(|error| Fault::spent(error.to_string()))?;
    let Some(tls) = tls else { return Ok(Box::new(stream)) };
    match encrypt(tls, &at.host, stream).await {
        Ok(encrypted) => Ok(Box::new(encrypted)),
        Err(fault) => Err(fault.at(at)),
    }
}

/// Why a connection broke: a server refuses a client's certificate only after the client believes it is connected.
pub fn breach(error: &io::Error) -> Fault {
    let fault = tls::refusal(error).unwrap_or_else(|| Fault::unavailable(cause::said(error)));
    fault.helped_by(Retry::OtherConnection)
}

/// Begins to connect to `at`, if that is an address in numbers; does not wait, and needs no runtime. That it cannot be
/// begun is found by who connects again.
pub fn begin(at: &HostPort) -> Option<std::net::TcpStream> {
    let address = SocketAddr::new(at.host.parse().ok()?, at.port);
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, None).ok()?;
    match begin_to_connect(&socket, &address) {
        Ok(()) | Err(Errno::INPROGRESS) => Some(socket.into()),
        Err(_) => None,
    }
}

/// Waits for the end of what [`begin`] began.
async fn end(begun: std::net::TcpStream) -> io::Result<TcpStream> {
    let stream = TcpStream::from_std(begun)?;
    stream.writable().await?;
    match stream.take_error()? {
        Some(error) => Err(error),
        None => Ok(stream),
    }
}

/// Encrypts `stream`, which leads to `host`. A server that cannot prove itself is not the one that was meant.
async fn encrypt(wanted: &Tls, host: &str, stream: TcpStream) -> FaultResult<TlsStream<TcpStream>> {
    let name = tls::server_name(wanted, host)?;
    let connector = TlsConnector::from(Arc::new(tls::client(wanted)?));
    connector.connect(name, stream).await.map_err(|error| tls::failure(&error))
}
