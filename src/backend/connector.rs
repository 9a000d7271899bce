//! Connections to servers over TCP, with or without encryption.

use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::select_all;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect as begin_to_connect, socket_with};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::sleep;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::address::HostPort;
use super::cause;
use super::fault::{Fault, FaultResult, Retry};
use super::options::Tls;
use super::tls;

/// How long an address of several has to answer before the next one is tried beside it.
pub const STAGGER: Duration = Duration::from_millis(250);

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
        None => tcp(&at.host, at.port).await,
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

/// Connects to `port` of `host`, at the first of its addresses that answers. Without asking the system for what needs no asking:
/// that takes a thread.
///
/// Errors: the first that an address gave, or that there is none. Takes as long as the system does where none answers; dropping the
/// future closes what was begun.
pub async fn tcp(host: &str, port: u16) -> io::Result<TcpStream> {
    let addresses = match host.parse::<IpAddr>() {
        Ok(address) => vec![SocketAddr::new(address, port)],
        Err(_) if host.eq_ignore_ascii_case("localhost") => {
            let own = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
            own.map(|address| SocketAddr::new(address, port)).to_vec()
        }
        Err(_) => lookup_host((host, port)).await?.collect(),
    };
    let connected = first_of(addresses.into_iter().map(TcpStream::connect)).await;
    connected.unwrap_or_else(|| Err(io::Error::other("the host has no address")))
}

/// The first success of `attempts`, one for each address of a host: while one is silent the next is begun beside it, as in "Happy
/// Eyeballs" (RFC 8305, section 5).
///
/// Errors: the first, once all have failed; `None` if there is no attempt. Dropping the future drops those that were begun.
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

/// Encrypts `stream`, which leads to `host`. A server that cannot prove itself is not the one that was meant.
async fn encrypt(wanted: &Tls, host: &str, stream: TcpStream) -> FaultResult<TlsStream<TcpStream>> {
    let name = tls::server_name(wanted, host)?;
    let connector = TlsConnector::from(Arc::new(tls::client(wanted)?));
    connector.connect(name, stream).await.map_err(|error| tls::failure(&error))
}
