//! Encrypted connections.

use std::sync::Arc;

use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::backend::document::{Fault, FaultResult};
use crate::backend::options::Tls;
use crate::backend::{cause, tls};
use crate::lock::ErrorKind;

/// Encrypts `stream`, which leads to `host`.
pub(super) async fn encrypt(
    wanted: &Tls,
    host: &str,
    stream: TcpStream,
) -> FaultResult<TlsStream<TcpStream>> {
    let name = wanted.server_name.as_deref().unwrap_or(host);
    let name = ServerName::try_from(name.to_owned()).map_err(|_| {
        Fault::new(ErrorKind::Invalid, format!("{name:?} cannot be the name in a certificate"))
    })?;
    let config = tls::client(wanted).map_err(|(kind, why)| Fault::new(kind, why))?;
    let connector = TlsConnector::from(Arc::new(config));
    connector.connect(name, stream).await.map_err(|error| refusal(&error))
}

/// Why a connection broke: a server refuses a client's certificate only after the client believes it is connected.
pub(super) fn breach(error: &std::io::Error) -> Fault {
    match tls::refusal(error) {
        Some((kind, reason)) => Fault::new(kind, reason),
        None => Fault::unavailable(cause::said(error)),
    }
}

/// Why there is no encrypted connection. A server that cannot prove itself is not the one that was meant.
fn refusal(error: &std::io::Error) -> Fault {
    let (kind, reason) = tls::failure(error);
    Fault::new(kind, reason)
}
