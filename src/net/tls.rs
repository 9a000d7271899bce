//! Connections to servers over TCP, with or without encryption, and the errors of rustls in sentences for users.

use std::error::Error;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};
use std::{io, iter};

use rustls::client::WantsClientCert;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{AlertDescription, CertificateError, ClientConfig, ConfigBuilder, RootCertStore, WantsVerifier};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::address::HostPort;
use super::credentials::{Pem, Tls};
use super::fault::{Fault, FaultResult, Retry};
use super::{cause, socket};
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
    let stream = socket::connect(&at.host, at.port).await;
    let stream = stream.map_err(|error| socket::unmade(cause::unreached(at, &error), &error))?;
    let Some(tls) = tls else { return Ok(Box::new(stream)) };
    match encrypt(tls, &at.host, stream).await {
        Ok(encrypted) => Ok(Box::new(encrypted)),
        Err(fault) => Err(fault.at(at)),
    }
}

/// Encrypts `stream`, which leads to `host`, and verifies the server's certificate.
async fn encrypt(wanted: &Tls, host: &str, stream: TcpStream) -> FaultResult<TlsStream<TcpStream>> {
    let name = server_name(wanted, host)?;
    let connector = TlsConnector::from(Arc::new(client(wanted)?));
    connector.connect(name, stream).await.map_err(|error| failure(&error))
}

/// Returns why a connection broke. A server refuses a client's certificate only after the client considers itself
/// connected.
pub fn breach(error: &io::Error) -> Fault {
    let fault = refusal(error).unwrap_or_else(|| Fault::unavailable(cause::said(error)));
    fault.helped_by(Retry::OtherConnection)
}

/// Returns whether `host`, a name or an address without brackets, is this host.
pub fn stays_here(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost") || host.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

/// Returns whether `HOST:PORT`, with brackets around an IPv6 address, is this host.
pub fn stays_here_at(place: &str) -> bool {
    let host = place.rsplit_once(':').map_or(place, |(host, _)| host);
    stays_here(host.trim_start_matches('[').trim_end_matches(']'))
}

/// Returns a client configuration with the authorities and the client certificate of `tls`.
///
/// Errors: `Invalid` for unusable certificates and keys, `Internal` for a defect.
pub fn client(tls: &Tls) -> FaultResult<ClientConfig> {
    let builder = builder(Arc::new(ring::default_provider()))?;
    showing(tls, builder.with_root_certificates(roots(tls.authority.as_ref())?))
}

/// Returns a builder of client configurations that lacks the authorities.
///
/// Errors: `Internal` for a defect.
pub fn builder(provider: Arc<CryptoProvider>) -> FaultResult<ConfigBuilder<ClientConfig, WantsVerifier>> {
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    builder.map_err(|error| Fault::new(ErrorKind::Internal, error.to_string()))
}

/// Completes `builder` with the client certificate of `tls`, if it has one.
///
/// Errors: `Invalid` for an unusable certificate or key; transient if the files cannot be read now.
pub fn showing(
    tls: &Tls,
    builder: ConfigBuilder<ClientConfig, WantsClientCert>,
) -> FaultResult<ClientConfig> {
    let Some(identity) = &tls.identity else { return Ok(builder.with_no_client_auth()) };
    let unusable = |reason: &str| Fault::new(ErrorKind::Invalid, reason);
    let (certificate, key) = identity.texts()?;
    let key = PrivateKeyDer::from_pem_slice(&key)
        .map_err(|_| unusable("the key of this client's certificate is damaged; see --key"))?;
    let shown = builder.with_client_auth_cert(certificates(&certificate)?, key);
    shown.map_err(|error| {
        unusable(&format!("this client's certificate and key cannot be used ({error}); see --cert and --key"))
    })
}

/// Returns the name that the certificate of the server at `host` must have: that of `tls`, if it has one.
///
/// Errors: `Invalid` for text that is not such a name.
pub fn server_name(tls: &Tls, host: &str) -> FaultResult<ServerName<'static>> {
    let name = tls.server_name.as_deref().unwrap_or(host);
    ServerName::try_from(name.to_owned())
        .map_err(|_| Fault::new(ErrorKind::Invalid, format!("{name:?} cannot be the name in a certificate")))
}

/// Returns the given authorities, or else the system's, which take milliseconds to read.
///
/// Errors: `Invalid` without any; transient if the file cannot be read now.
pub fn roots(authority: Option<&Pem>) -> FaultResult<RootCertStore> {
    let mut store = RootCertStore::empty();
    let (given, certificates) = match authority {
        Some(pem) => (true, certificates(&pem.reveal()?)?),
        None => (false, rustls_native_certs::load_native_certs().certs),
    };
    if store.add_parsable_certificates(certificates).0 == 0 {
        let whose = if given { "the given file" } else { "the system's trust store" };
        let reason = format!("there is no usable CA certificate in {whose}; see --cacert");
        return Err(Fault::new(ErrorKind::Invalid, reason));
    }
    Ok(store)
}

/// Returns the certificates in the text `pem`.
///
/// Errors: `Invalid` if one is damaged.
pub fn certificates(pem: &[u8]) -> FaultResult<Vec<CertificateDer<'static>>> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    read.map_err(|_| Fault::new(ErrorKind::Invalid, "a certificate is damaged; see --cacert and --cert"))
}

/// Returns the fault for `error`, if it or one of its sources concerns encryption, in words common to all services.
///
/// The fault is `Denied` if one side does not accept the other's certificate, or if the server does not speak TLS.
/// Otherwise it is `Unavailable`.
pub fn refusal(error: &(dyn Error + 'static)) -> Option<Fault> {
    let denied = |reason: &str| Fault::new(ErrorKind::Denied, reason);
    let Some(found) = sources(error).find_map(|error| error.downcast_ref::<rustls::Error>()) else {
        // An HTTP/2 connection keeps only the text of an error.
        let said: Vec<String> = sources(error).map(ToString::to_string).collect();
        let is_told =
            |alert: AlertDescription| said.contains(&rustls::Error::AlertReceived(alert).to_string());
        return ALERTS.iter().find(|(alert, _)| is_told(*alert)).map(|(_, reason)| denied(reason));
    };
    Some(match found {
        rustls::Error::InvalidCertificate(why) => denied(&not_trusted(why)),
        rustls::Error::AlertReceived(alert) => match ALERTS.iter().find(|(known, _)| known == alert) {
            Some((_, reason)) => denied(reason),
            None => Fault::spent(format!("it ended the encrypted connection ({alert:?})")),
        },
        // The server answers without TLS, and will do so again.
        rustls::Error::InvalidMessage(_) => Fault::new(ErrorKind::Denied, cause::without_tls()),
        other => Fault::spent(format!("no encrypted connection: {other}")),
    })
}

/// Returns the fault for an `error` during the handshake: that of [`refusal`], or one that quotes the error.
pub fn failure(error: &(dyn Error + 'static)) -> Fault {
    let broken = || {
        let by_system = sources(error).find_map(|error| error.downcast_ref::<io::Error>());
        let why = by_system.map_or_else(|| error.to_string(), |error| cause::said(error).to_string());
        Reason::from(format!("no encrypted connection: {why}")).asking("does it speak TLS on this port?")
    };
    refusal(error).unwrap_or_else(|| Fault::spent(broken()))
}

/// Returns `error`, the errors that it contains, and its sources.
fn sources<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    iter::successors(Some(error), |&error| {
        // The source of an `io::Error` is the source of the error it contains, which is itself skipped.
        match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            Some(inner) => Some(inner),
            None => error.source(),
        }
    })
}

fn not_trusted(why: &CertificateError) -> String {
    match why {
        CertificateError::ExpiredContext { not_after, .. } => {
            format!("its certificate expired on {}; renew it, or check this host's clock", day(*not_after))
        }
        CertificateError::NotValidYetContext { not_before, .. } => {
            format!("its certificate is not valid before {}; check this host's clock", day(*not_before))
        }
        CertificateError::UnknownIssuer => {
            "its certificate is signed by an unknown authority; name that with --cacert".to_owned()
        }
        CertificateError::NotValidForNameContext { expected, presented } if presented.is_empty() => {
            let name = expected.to_str();
            let kind = if matches!(expected, ServerName::IpAddress(_)) { "IP" } else { "DNS" };
            format!(
                "its certificate has no subjectAltName, and its CN does not count; sign it again with subjectAltName={kind}:{name}"
            )
        }
        CertificateError::NotValidForNameContext { expected, presented } => {
            let names: Vec<&str> = presented.iter().map(|name| bare(name)).collect();
            let names = names.join(", ");
            format!("its certificate is for {names}, not {}; see --tls-server-name", expected.to_str())
        }
        CertificateError::UnsupportedSignatureAlgorithmContext { .. }
        | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. }
        | CertificateError::BadSignature => format!(
            "its certificate is not signed as dlock accepts it; name the authority with --cacert, or {KEYS}"
        ),
        other => unusable(&format!("{other:?}")),
    }
}

/// The advice on signing a certificate.
const KEYS: &str =
    "sign it with SHA-256 or better by a key of RSA (2048 bits or more), P-256, P-384 or Ed25519";

/// Returns why a certificate is not trusted, for errors that the library describes only by a name, in `said`.
fn unusable(said: &str) -> String {
    if said.contains("CaUsedAsEndEntity") {
        "its certificate is that of an authority (CA:TRUE), which a server cannot show; make it one with \
         basicConstraints=CA:FALSE, signed by that authority"
            .to_owned()
    } else if said.contains("UnsupportedCertVersion") {
        "its certificate is of X.509 version 1; sign it again as version 3, with subjectAltName (openssl x509 -extfile FILE)".to_owned()
    } else {
        format!("its certificate is not trusted ({said})")
    }
}

/// Turns `DnsName("a")` into `a`.
fn bare(name: &str) -> &str {
    name.split_once('(').map_or(name, |(_, rest)| rest.trim_end_matches(')').trim_matches('"'))
}

fn day(time: UnixTime) -> String {
    let text =
        humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(time.as_secs())).to_string();
    text.split('T').next().unwrap_or_default().to_owned()
}

const NO_CERTIFICATE: &str = "it wants a client certificate; give --cert and --key";
const OTHER_CERTIFICATE: &str = "it does not accept this client's certificate; see --cert and --key";

/// The meaning of a server's alerts about this client's certificate, or about its absence.
const ALERTS: [(AlertDescription, &str); 10] = [
    (AlertDescription::CertificateRequired, NO_CERTIFICATE),
    (AlertDescription::NoCertificate, NO_CERTIFICATE),
    // Older servers send this alert also if there is no certificate.
    (AlertDescription::BadCertificate, "it wants a client certificate, or another one; see --cert and --key"),
    (
        AlertDescription::HandshakeFailure,
        "it and dlock have no cipher, curve or key type in common (dlock knows no key on P-521); if it asks for client certificates, see --cert \
         and --key",
    ),
    (AlertDescription::UnknownCA, OTHER_CERTIFICATE),
    (AlertDescription::UnsupportedCertificate, OTHER_CERTIFICATE),
    (AlertDescription::CertificateRevoked, OTHER_CERTIFICATE),
    (AlertDescription::CertificateExpired, OTHER_CERTIFICATE),
    (AlertDescription::CertificateUnknown, OTHER_CERTIFICATE),
    (AlertDescription::AccessDenied, OTHER_CERTIFICATE),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_places_count_as_this_host() {
        for (place, stays) in [
            ("localhost:1", true),
            ("LOCALHOST:1", true),
            ("127.0.0.1:1", true),
            ("127.9.9.9:1", true),
            ("[::1]:1", true),
            ("h:1", false),
            ("127.evil.example:1", false),
            ("localhost.example:1", false),
            ("0.0.0.0:1", false),
            ("[::2]:1", false),
        ] {
            assert_eq!(stays_here_at(place), stays, "{place}");
        }
        assert!(stays_here("::1") && !stays_here(""));
    }
}
