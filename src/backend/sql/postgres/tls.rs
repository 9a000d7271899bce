//! Encrypted connections, verified as `sslmode` requires.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::alg_id::{
    ECDSA_SHA256, ECDSA_SHA384, ECDSA_SHA512, RSA_PKCS1_SHA256, RSA_PKCS1_SHA384, RSA_PKCS1_SHA512,
};
use rustls::pki_types::{AlgorithmIdentifier, CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, SignatureScheme};
use sha2::{Digest as _, Sha256, Sha384, Sha512};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, TlsConnect, TlsStream};
use tokio_rustls::TlsConnector;

use super::config::PgMode;
use crate::lock::ErrorKind;
use crate::net::credentials::Tls;
use crate::net::fault::{Fault, FaultResult};
use crate::net::tls::{builder, roots, server_name, showing};

/// The encryption of a connection to one host; `None` for a plain connection.
#[derive(Clone)]
pub(super) struct Encryption(Option<(TlsConnector, ServerName<'static>)>);

impl Encryption {
    /// Combines `mode` and `tls`, for a connection to `host`.
    pub(super) fn new(mode: PgMode, tls: &Tls, host: &str) -> FaultResult<Self> {
        if matches!(mode, PgMode::Disable) {
            return Ok(Self(None));
        }
        let name = server_name(tls, host)?;
        Ok(Self(Some((TlsConnector::from(Arc::new(client(mode, tls)?)), name))))
    }
}

fn client(mode: PgMode, tls: &Tls) -> FaultResult<ClientConfig> {
    let provider = Arc::new(ring::default_provider());
    let verifier = verifier(mode, tls, &provider)?;
    showing(tls, builder(provider)?.dangerous().with_custom_certificate_verifier(verifier))
}

fn verifier(
    mode: PgMode,
    tls: &Tls,
    provider: &Arc<CryptoProvider>,
) -> FaultResult<Arc<dyn ServerCertVerifier>> {
    // Like libpq: `require` checks the authority if one is given, but not the name.
    let chain = match mode {
        PgMode::VerifyFull | PgMode::VerifyCa => true,
        PgMode::Require => tls.authority.is_some(),
        PgMode::Disable | PgMode::Prefer => false,
    };
    let inner = if chain {
        let roots = Arc::new(roots(tls.authority.as_ref())?);
        let built = WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(provider)).build();
        Some(built.map_err(|error| Fault::new(ErrorKind::Invalid, error.to_string()))?)
    } else {
        None
    };
    match inner {
        Some(inner) if mode == PgMode::VerifyFull => Ok(inner),
        inner => Ok(Arc::new(Lenient { inner, provider: Arc::clone(provider) })),
    }
}

/// A verifier that does not check the name, or does not check at all, as `sslmode` requires.
#[derive(Debug)]
struct Lenient {
    /// The verifier of the chain, if it is checked.
    inner: Option<Arc<WebPkiServerVerifier>>,
    provider: Arc<CryptoProvider>,
}

impl Lenient {
    /// Returns the verdict on a signature. Without checks, a certificate of X.509 version 1 is accepted, too, as by
    /// libpq. The library reads no key from it, so its signatures remain unverified, and [`end_point`] binds no login
    /// to it.
    fn signed(
        &self,
        verdict: Result<HandshakeSignatureValid, Error>,
    ) -> Result<HandshakeSignatureValid, Error> {
        match verdict {
            Err(Error::InvalidCertificate(CertificateError::Other(why)))
                if self.inner.is_none() && format!("{why:?}").contains("UnsupportedCertVersion") =>
            {
                Ok(HandshakeSignatureValid::assertion())
            }
            verdict => verdict,
        }
    }
}

impl ServerCertVerifier for Lenient {
    fn verify_server_cert(
        &self,
        end: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(inner) = &self.inner else { return Ok(ServerCertVerified::assertion()) };
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
        let algorithms = &self.provider.signature_verification_algorithms;
        self.signed(verify_tls12_signature(message, certificate, signed, algorithms))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        self.signed(verify_tls13_signature(message, certificate, signed, algorithms))
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// An encrypted stream, in the form for the client library.
pub(super) struct Encrypted<S>(tokio_rustls::client::TlsStream<S>);

impl<S> TlsConnect<S> for Encryption
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = Encrypted<S>;
    type Error = std::io::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Encrypted<S>, std::io::Error>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(async move {
            let (connector, name) = self.0.ok_or(std::io::ErrorKind::Unsupported)?;
            connector.connect(name, stream).await.map(Encrypted)
        })
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for Encrypted<S> {
    fn channel_binding(&self) -> ChannelBinding {
        let shown = self.0.get_ref().1.peer_certificates().and_then(<[_]>::first);
        let digest = shown.and_then(|certificate| end_point(certificate));
        digest.map_or_else(ChannelBinding::none, ChannelBinding::tls_server_end_point)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Encrypted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Encrypted<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

/// The beginning of the contents of a certificate of version 3.
const VERSION_3: [u8; 5] = [0xa0, 3, 2, 1, 2];

/// Returns what binds a login to a connection with the server of this `certificate` (RFC 5929,
/// `tls-server-end-point`): its digest, by the algorithm of its signature. `None` for an algorithm without one, for
/// obsolete ones, and for another version than 3, because the server's possession of the key was not verified.
fn end_point(certificate: &[u8]) -> Option<Vec<u8>> {
    let (whole, _) = taken_off(certificate)?;
    let (contents, behind) = taken_off(whole)?;
    contents.strip_prefix(&VERSION_3)?;
    let (algorithm, _) = taken_off(behind)?;
    let is_one = |of: [AlgorithmIdentifier; 2]| of.iter().any(|id| id.as_ref() == algorithm);
    if is_one([ECDSA_SHA256, RSA_PKCS1_SHA256]) {
        Some(Sha256::digest(certificate).to_vec())
    } else if is_one([ECDSA_SHA384, RSA_PKCS1_SHA384]) {
        Some(Sha384::digest(certificate).to_vec())
    } else if is_one([ECDSA_SHA512, RSA_PKCS1_SHA512]) {
        Some(Sha512::digest(certificate).to_vec())
    } else {
        None
    }
}

/// Splits off the first DER value of `bytes`, and returns its contents and the rest.
fn taken_off(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&[_, first], rest) = bytes.split_first_chunk()?;
    let (length, rest) = match usize::from(first) {
        short @ 0..0x80 => (short, rest),
        long => {
            let (number, rest) =
                rest.split_at_checked(long - 0x80).filter(|(number, _)| number.len() <= 4)?;
            (number.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)), rest)
        }
    };
    rest.split_at_checked(length)
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::alg_id::{ED25519, RSA_PSS_SHA256};

    use super::*;

    /// Returns a certificate that contains only the signed contents and the algorithm.
    fn certificate(contents: &[u8], algorithm: AlgorithmIdentifier) -> Vec<u8> {
        let value = |contents: &[u8]| {
            let mut all = vec![0x30, 0x82, 0, u8::try_from(contents.len()).expect("short")];
            all.extend_from_slice(contents);
            all
        };
        value(&[value(contents), value(algorithm.as_ref())].concat())
    }

    #[test]
    fn binding_digest_matches_the_signature_algorithm() {
        for (algorithm, length) in [
            (RSA_PKCS1_SHA256, Some(32)),
            (RSA_PKCS1_SHA384, Some(48)),
            (RSA_PKCS1_SHA512, Some(64)),
            (RSA_PSS_SHA256, None),
            (ECDSA_SHA256, Some(32)),
            (ECDSA_SHA384, Some(48)),
            (ECDSA_SHA512, Some(64)),
            (ED25519, None),
        ] {
            let found = end_point(&certificate(&VERSION_3, algorithm));
            assert_eq!(found.map(|digest| digest.len()), length, "{algorithm:?}");
        }
        assert_eq!(end_point(&certificate(b"version 1", RSA_PKCS1_SHA256)), None);
        assert_eq!(end_point(b"0"), None);
        assert_eq!(end_point(&[0x30, 0x84, 0xff, 0xff, 0xff, 0xff]), None);
    }
}
