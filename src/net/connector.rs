//! Connections to servers over TCP, with or without encryption.

use std::io;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::address::HostPort;
use super::cause;
use super::credentials::Tls;
use super::fault::{Fault, FaultResult, Retry};
use super::socket::is_scarce;
use super::{tcp, tls};
use crate::lock::{ErrorKind, Reason};

/// A byte stream to a server.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// Connects to `at`, and encrypts the connection if `tls` is given.
///
/// Errors: `Unavailable` if no server is reached, `Denied` if one side does not accept the other's certificate,
/// `Invalid` for unusable certificates, `System` if this host lacks descriptors or memory. Dropping the future closes
/// the connection.
pub async fn connect(at: &HostPort, tls: Option<&Tls>) -> FaultResult<Box<dyn Stream>> {
    let stream = tcp::connect(&at.host, at.port).await;
    let stream = stream.map_err(|error| unmade(cause::unreached(at, &error), &error))?;
    let Some(tls) = tls else { return Ok(Box::new(stream)) };
    match encrypt(tls, &at.host, stream).await {
        Ok(encrypted) => Ok(Box::new(encrypted)),
        Err(fault) => Err(fault.at(at)),
    }
}

/// Returns the fault of a failed attempt to connect with this `reason`. If this host lacks resources, another server
/// does not help.
pub fn unmade(reason: Reason, error: &io::Error) -> Fault {
    if is_scarce(error) { Fault::new(ErrorKind::System, reason) } else { Fault::spent(reason) }
}

/// Returns why a connection broke. A server refuses a client's certificate only after the client considers itself
/// connected.
pub fn breach(error: &io::Error) -> Fault {
    let fault = tls::refusal(error).unwrap_or_else(|| Fault::unavailable(cause::said(error)));
    fault.helped_by(Retry::OtherConnection)
}

/// Encrypts `stream`, which leads to `host`, and verifies the server's certificate.
async fn encrypt(wanted: &Tls, host: &str, stream: TcpStream) -> FaultResult<TlsStream<TcpStream>> {
    let name = tls::server_name(wanted, host)?;
    let connector = TlsConnector::from(Arc::new(tls::client(wanted)?));
    connector.connect(name, stream).await.map_err(|error| tls::failure(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

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
