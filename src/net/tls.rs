//! Translates settings of encryption for rustls, and errors of rustls into sentences for users.

use std::error::Error;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use rustls::client::WantsClientCert;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{AlertDescription, CertificateError, ClientConfig, ConfigBuilder, RootCertStore, WantsVerifier};

use super::cause;
use super::credentials::{Pem, Tls};
use super::fault::{Fault, FaultResult};
use crate::lock::{ErrorKind, Reason};

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
    builder.with_client_auth_cert(certificates(&certificate)?, key).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => {
            unusable("the certificate and the key of this client do not belong together; see --cert and --key")
        }
        _ => unusable(
            "the key of this client's certificate is of a kind that dlock does not know; make one with RSA, P-256, P-384 or Ed25519",
        ),
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
    let is_empty = certificates.is_empty();
    let (added, _) = store.add_parsable_certificates(certificates);
    if added == 0 && given && !is_empty {
        let reason = "no certificate in the given file can be used as an authority's; openssl x509 -in FILE -text shows it";
        return Err(Fault::new(ErrorKind::Invalid, reason));
    }
    if added == 0 {
        let whose = if given { "the given file" } else { "the system's trust store; see --cacert" };
        return Err(Fault::new(ErrorKind::Invalid, format!("there is no CA certificate in {whose}")));
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
    let Some(found) = found(error) else { return told(error) };
    Some(match found {
        rustls::Error::InvalidCertificate(why) => Fault::new(ErrorKind::Denied, not_trusted(why)),
        rustls::Error::AlertReceived(alert) => match not_accepted(*alert) {
            Some(reason) => Fault::new(ErrorKind::Denied, reason),
            None => Fault::spent(format!("it ended the encrypted connection ({alert:?})")),
        },
        // The server answers without TLS, and will do so again.
        rustls::Error::InvalidMessage(_) => Fault::new(ErrorKind::Denied, cause::without_tls()),
        other => Fault::spent(format!("no encrypted connection: {other}")),
    })
}

/// Recognises an alert by its text, which is all that an HTTP/2 connection keeps of an error.
fn told(error: &(dyn Error + 'static)) -> Option<Fault> {
    let alerts = [
        AlertDescription::CertificateRequired,
        AlertDescription::NoCertificate,
        AlertDescription::BadCertificate,
        AlertDescription::HandshakeFailure,
        AlertDescription::UnknownCA,
        AlertDescription::UnsupportedCertificate,
        AlertDescription::CertificateRevoked,
        AlertDescription::CertificateExpired,
        AlertDescription::CertificateUnknown,
        AlertDescription::AccessDenied,
    ];
    let mut next = Some(error);
    while let Some(error) = next {
        let text = error.to_string();
        let said = alerts.iter().find(|alert| text == rustls::Error::AlertReceived(**alert).to_string());
        if let Some(reason) = said.and_then(|alert| not_accepted(*alert)) {
            return Some(Fault::new(ErrorKind::Denied, reason));
        }
        next = error.source();
    }
    None
}

/// Returns the fault for an `error` during the handshake: that of [`refusal`], or one that quotes the error.
pub fn failure(error: &(dyn Error + 'static)) -> Fault {
    let broken = || {
        let why = said(error).unwrap_or_else(|| error.to_string());
        Reason::from(format!("no encrypted connection: {why}")).asking("does it speak TLS on this port?")
    };
    refusal(error).unwrap_or_else(|| Fault::spent(broken()))
}

/// Returns the system's words, if `error` or one of its sources is an [`io::Error`].
fn said(error: &(dyn Error + 'static)) -> Option<String> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            return Some(cause::said(error).to_string());
        }
        next = error.source();
    }
    None
}

/// Returns the error of rustls that `error` is, contains, or has as a source.
fn found<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref::<rustls::Error>() {
            return Some(found);
        }
        // The source of an `io::Error` is the source of the error it contains, which is itself skipped.
        next = match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            Some(inner) => Some(inner),
            None => error.source(),
        };
    }
    None
}

fn not_trusted(why: &CertificateError) -> String {
    match why {
        CertificateError::ExpiredContext { not_after, .. } => {
            format!("its certificate expired on {}; renew it, or check this host's clock", day(*not_after))
        }
        CertificateError::Expired => {
            "its certificate has expired; renew it, or check this host's clock".to_owned()
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
        | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => format!(
            "its certificate, or that of its authority, is signed in a way that dlock does not accept; {KEYS}"
        ),
        CertificateError::BadSignature => format!(
            "its certificate is not signed by the authority that it names, or by a short key; name the authority with --cacert, or {KEYS}"
        ),
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "its certificate is not one for servers; sign one with extendedKeyUsage=serverAuth".to_owned()
        }
        other => unusable(&format!("{other:?}")),
    }
}

/// The advice on signing a certificate.
const KEYS: &str =
    "sign it with SHA-256 or better by a key of RSA (2048 bits or more), P-256, P-384 or Ed25519";

/// Returns why a certificate is not trusted, for errors that the library describes only by a name, in `said`.
fn unusable(said: &str) -> String {
    let known = [
        (
            "CaUsedAsEndEntity",
            "its certificate is that of an authority (CA:TRUE), which a server cannot show; make it one with \
             basicConstraints=CA:FALSE, signed by that authority",
        ),
        (
            "UnsupportedCertVersion",
            "its certificate is of X.509 version 1; sign it again as version 3, with subjectAltName (openssl x509 -extfile FILE)",
        ),
        (
            "EndEntityUsedAsCa",
            "its certificate is signed by one that is not an authority's; make that one with basicConstraints=CA:TRUE",
        ),
        (
            "PathLenConstraintViolated",
            "its certificate is signed by an authority that may not sign for another (pathlen)",
        ),
        (
            "NameConstraintViolation",
            "its certificate is for a name that its authority may not sign for (nameConstraints)",
        ),
        (
            "UnsupportedCriticalExtension",
            "its certificate has a critical extension that dlock does not know; leave that out",
        ),
    ];
    let found = known.iter().find(|(word, _)| said.contains(word));
    found.map_or_else(
        || format!("its certificate is not trusted ({said})"),
        |(_, sentence)| (*sentence).to_owned(),
    )
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

/// Returns the meaning of a server's alert about this client's certificate, or about its absence.
fn not_accepted(alert: AlertDescription) -> Option<&'static str> {
    match alert {
        AlertDescription::CertificateRequired | AlertDescription::NoCertificate => {
            Some("it wants a client certificate; give --cert and --key")
        }
        // Older servers send this alert also if there is no certificate.
        AlertDescription::BadCertificate => {
            Some("it wants a client certificate, or another one; see --cert and --key")
        }
        AlertDescription::HandshakeFailure => Some(
            "it and dlock have no cipher, curve or key type in common (dlock knows no key on P-521); if it asks for client certificates, see --cert \
             and --key",
        ),
        AlertDescription::UnknownCA
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::CertificateRevoked
        | AlertDescription::CertificateExpired
        | AlertDescription::CertificateUnknown
        | AlertDescription::AccessDenied => {
            Some("it does not accept this client's certificate; see --cert and --key")
        }
        _ => None,
    }
}

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
