//! Encrypted connections, verified as `sslmode` requires.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, SignatureScheme};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_rustls::TlsConnector;

use super::ENCRYPT;
use crate::backend::sql::database::{Database, Mode};
use crate::lock::ErrorKind;
use crate::net::fault::{Fault, FaultResult};
use crate::net::tls::{Stream, breach, builder, client, failure, roots, server_name, showing};

/// Encrypts `stream`, which leads to `host`, as the mode of `database` requires.
pub(super) async fn encrypted(
    mut stream: Box<dyn Stream>,
    database: &Database,
    host: &str,
) -> FaultResult<Box<dyn Stream>> {
    let Database { mode, tls, .. } = database;
    if *mode == Mode::Disabled {
        return Ok(stream);
    }
    stream.write_all(&ENCRYPT).await.map_err(|error| breach(&error))?;
    if stream.read_u8().await.map_err(|error| breach(&error))? != b'S' {
        if *mode == Mode::Preferred {
            return Ok(stream);
        }
        let reason = "it does not speak TLS on this port; turn on ssl in postgresql.conf, or set ?sslmode=prefer in the address";
        return Err(Fault::new(ErrorKind::Denied, reason));
    }
    let config = match mode {
        Mode::VerifyIdentity => client(tls)?,
        mode => lenient(database, *mode)?,
    };
    let connector = TlsConnector::from(Arc::new(config));
    let encrypted = connector.connect(server_name(tls, host)?, stream).await;
    Ok(Box::new(encrypted.map_err(|error| failure(&error))?))
}

/// Returns a configuration that does not check the name in certificates.
fn lenient(database: &Database, mode: Mode) -> FaultResult<ClientConfig> {
    let provider = Arc::new(ring::default_provider());
    let tls = &database.tls;
    // Like libpq: `require` checks the authority if one is given.
    let verifier = if mode == Mode::VerifyCa || (mode == Mode::Required && tls.authority.is_some()) {
        let roots = Arc::new(roots(tls.authority.as_ref())?);
        let built = WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider)).build();
        Some(built.map_err(|error| Fault::new(ErrorKind::Invalid, error.to_string()))?)
    } else {
        None
    };
    let verifier = Arc::new(Lenient(verifier));
    showing(tls, builder(provider)?.dangerous().with_custom_certificate_verifier(verifier))
}

/// A verifier that checks a certificate's authority but not its name, or does not check at all. Then it accepts a
/// certificate of X.509 version 1, too, as libpq does; the library reads no key from such a certificate.
#[derive(Debug)]
struct Lenient(Option<Arc<WebPkiServerVerifier>>);

impl ServerCertVerifier for Lenient {
    fn verify_server_cert(
        &self,
        end: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(inner) = &self.0 else { return Ok(ServerCertVerified::assertion()) };
        match inner.verify_server_cert(end, between, name, ocsp, now) {
            // The chain is checked before the name.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            verdict => verdict,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let Some(inner) = &self.0 else { return Ok(HandshakeSignatureValid::assertion()) };
        inner.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let Some(inner) = &self.0 else { return Ok(HandshakeSignatureValid::assertion()) };
        inner.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}
