//! From what people say of encryption to what rustls wants to know.

use std::fmt::Display;
use std::net::IpAddr;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use super::options::{Pem, Tls};
use crate::lock::ErrorKind;

/// Whether what is sent to `host`, a name or an address without brackets, stays on this host.
pub fn stays_here(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost") || host.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

/// As [`stays_here`], of `HOST:PORT` with brackets around an IPv6 address.
pub fn stays_here_at(place: &str) -> bool {
    let host = place.rsplit_once(':').map_or(place, |(host, _)| host);
    stays_here(host.trim_start_matches('[').trim_end_matches(']'))
}

/// What is wrong with the certificates that were given, and of what kind that is.
pub type Unusable = (ErrorKind, String);

/// A client that believes whom `tls` says, and shows what it says.
///
/// Errors: `Invalid` for certificates and keys that cannot be used, `Internal` for a defect.
pub fn client(tls: &Tls) -> Result<ClientConfig, Unusable> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| (ErrorKind::Internal, error.to_string()))?
        .with_root_certificates(roots(tls.authority.as_ref())?);
    let Some(identity) = &tls.identity else { return Ok(builder.with_no_client_auth()) };
    let unusable = |error: &dyn Display| {
        (ErrorKind::Invalid, format!("the certificate or key of this client cannot be used: {error}"))
    };
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).map_err(|e| unusable(&e))?;
    builder.with_client_auth_cert(certificates(&identity.certificate)?, key).map_err(|e| unusable(&e))
}

/// The given authorities alone, or the system's: reading those takes milliseconds.
fn roots(authority: Option<&Pem>) -> Result<RootCertStore, Unusable> {
    let mut store = RootCertStore::empty();
    let (given, certificates) = match authority {
        Some(pem) => (true, certificates(pem)?),
        None => (false, rustls_native_certs::load_native_certs().certs),
    };
    let (added, _) = store.add_parsable_certificates(certificates);
    if added == 0 {
        let whose = if given { "the given file" } else { "the system's store; see --cacert" };
        return Err((ErrorKind::Invalid, format!("there is no certificate of an authority in {whose}")));
    }
    Ok(store)
}

fn certificates(pem: &Pem) -> Result<Vec<CertificateDer<'static>>, Unusable> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    read.map_err(|error| (ErrorKind::Invalid, format!("a certificate cannot be read: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_surely_this_host_is_taken_for_it() {
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
