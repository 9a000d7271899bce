//! Encrypted connections.

use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::fault::{Fault, Outcome};
use crate::backend::options::{Pem, Tls};
use crate::lock::ErrorKind;

/// Encrypts `stream`, which leads to `host`.
pub(super) async fn encrypt(tls: &Tls, host: &str, stream: TcpStream) -> Outcome<TlsStream<TcpStream>> {
    let name = tls.server_name.as_deref().unwrap_or(host);
    let name = ServerName::try_from(name.to_owned())
        .map_err(|_| Fault::new(ErrorKind::Invalid, format!("{name:?} can be no name of a certificate")))?;
    let connector = TlsConnector::from(Arc::new(config(tls)?));
    connector.connect(name, stream).await.map_err(|error| refusal(&error))
}

/// Why a connection broke: a server refuses a client's certificate only after the client believes it is connected.
pub(super) fn breach(error: &std::io::Error) -> Fault {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(rustls::Error::AlertReceived(alert)) => {
            let reason = format!(
                "it refused this client's certificate, or the lack of one ({alert:?}); see --cert and --key"
            );
            Fault { spent: true, ..Fault::new(ErrorKind::Denied, reason) }
        }
        _ => Fault::spent(error),
    }
}

/// A server that cannot prove itself is not the one that was meant.
fn refusal(error: &std::io::Error) -> Fault {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(rustls::Error::InvalidCertificate(_)) => Fault::new(
            ErrorKind::Denied,
            format!("its certificate is not believed ({error}); see --cacert and --tls-server-name"),
        ),
        _ => Fault::spent(format!("no encrypted connection: {error}; does it speak TLS on this port?")),
    }
}

fn config(tls: &Tls) -> Outcome<ClientConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| Fault::new(ErrorKind::Internal, error))?
        .with_root_certificates(roots(tls.authority.as_ref())?);
    let Some(identity) = &tls.identity else { return Ok(builder.with_no_client_auth()) };
    let unusable = |error: &dyn std::fmt::Display| {
        Fault::new(
            ErrorKind::Invalid,
            format!("the certificate or key of this client cannot be used: {error}"),
        )
    };
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).map_err(|e| unusable(&e))?;
    builder.with_client_auth_cert(certificates(&identity.certificate)?, key).map_err(|e| unusable(&e))
}

/// The given authorities alone, or the system's: reading those takes milliseconds.
fn roots(authority: Option<&Pem>) -> Outcome<RootCertStore> {
    let mut store = RootCertStore::empty();
    let (given, certificates) = match authority {
        Some(pem) => (true, certificates(pem)?),
        None => (false, rustls_native_certs::load_native_certs().certs),
    };
    let (added, _) = store.add_parsable_certificates(certificates);
    if added == 0 {
        let whose = if given { "the given file" } else { "the system's store; see --cacert" };
        return Err(Fault::new(
            ErrorKind::Invalid,
            format!("there is no certificate of an authority in {whose}"),
        ));
    }
    Ok(store)
}

fn certificates(pem: &Pem) -> Outcome<Vec<CertificateDer<'static>>> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    read.map_err(|error| Fault::new(ErrorKind::Invalid, format!("a certificate cannot be read: {error}")))
}
