//! From an address to an open connection.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use tokio::net::TcpStream;

use super::config::{HostPort, MemcachedConfig};
use super::connection::{Connection, Stream};
use super::wire::Reply;
use crate::backend::approach;
use crate::backend::cause::{self, Cause, Manner};
use crate::backend::document::{Fault, FaultResult};
use crate::lock::ErrorKind;

/// How a server tells that it is one.
const MANNER: Manner = Manner {
    service: "memcached",
    encryption: "does it want memcacheds://?",
    hello: b"version\r\n",
    is_own: |answer| {
        let own: [&[u8]; 4] = [b"VERSION ", b"ERROR", b"CLIENT_ERROR ", b"SERVER_ERROR "];
        own.iter().any(|words| answer.starts_with(words))
    },
};

/// Why nobody answers at the address that `config` has; `None` if that cannot be told.
pub(super) async fn why_silent(config: &MemcachedConfig) -> Option<Cause> {
    cause::of_all(&[config.at.to_string()], &MANNER, config.tls.is_some()).await
}

/// Begins to connect, if the address is a number; does not wait, and needs no runtime.
pub(super) fn begin(config: &MemcachedConfig) -> Option<std::net::TcpStream> {
    approach::begin(SocketAddr::new(config.at.host.parse().ok()?, config.at.port))
}

/// Opens a connection, unless one is `begun`.
pub(super) async fn dial(
    config: &MemcachedConfig,
    begun: Option<std::net::TcpStream>,
) -> FaultResult<Arc<Connection>> {
    let at = &config.at;
    let stream = match begun {
        Some(begun) => approach::end(begun).await,
        None => tcp(at).await,
    };
    let stream = stream.map_err(|error| Fault::unavailable(cause::unreached(at, &error)))?;
    // A request is one small write; waiting for more to send would only be late.
    stream.set_nodelay(true).map_err(Fault::unavailable)?;
    let stream: Box<dyn Stream> = match &config.tls {
        None => Box::new(stream),
        Some(tls) => {
            let encrypted = super::tls::encrypt(tls, &at.host, stream).await;
            Box::new(encrypted.map_err(|fault| from(at, &fault))?)
        }
    };
    let connection = Connection::over(stream, at.to_string());
    log_in(config, &connection).await.map_err(|fault| from(at, &fault))?;
    Ok(Arc::new(connection))
}

/// The same, with who said it.
pub(super) fn from(peer: &impl std::fmt::Display, fault: &Fault) -> Fault {
    Fault::new(fault.kind, format!("{peer}: {fault}"))
}

/// Without asking the system for what needs no asking: that takes a thread.
async fn tcp(at: &HostPort) -> io::Result<TcpStream> {
    if let Ok(address) = at.host.parse::<IpAddr>() {
        return TcpStream::connect(SocketAddr::new(address, at.port)).await;
    }
    if at.host.eq_ignore_ascii_case("localhost") {
        let four = TcpStream::connect(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), at.port)).await;
        return match four {
            Ok(stream) => Ok(stream),
            Err(error) => {
                let six = TcpStream::connect(SocketAddr::new(Ipv6Addr::LOCALHOST.into(), at.port)).await;
                six.map_err(|_| error)
            }
        };
    }
    TcpStream::connect((at.host.as_str(), at.port)).await
}

/// Says who this is, as memcached with `-Y` has it: an item whose value is user and password. A server that wants no
/// password would keep that item, for everybody to read, so it is asked first.
async fn log_in(config: &MemcachedConfig, connection: &Connection) -> FaultResult<()> {
    let (Some(user), Some(password)) = (&config.user, &config.password) else { return Ok(()) };
    let said = connection.exchange(b"version\r\n".to_vec(), 1).await?;
    match said.first() {
        Some(Reply::Line(line)) if line.contains("unauthenticated") => {}
        Some(Reply::Line(line)) if line.starts_with("VERSION ") => {
            return Err(Fault::new(ErrorKind::Denied, cause::NEEDLESS_PASSWORD));
        }
        other => return Err(super::fault::nonsense(&format!("{other:?}"))),
    }
    let login = format!("{user} {}", password.reveal());
    let request = format!("set dlock 0 0 {}\r\n{login}\r\n", login.len());
    for reply in connection.exchange(request.into_bytes(), 1).await? {
        reply.line()?;
    }
    Ok(())
}
