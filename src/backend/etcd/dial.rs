//! From an address to a connection, and why there is none.

use std::error::Error;
use std::time::Duration;

use etcd_client::{Certificate, ConnectOptions, Identity, TlsOptions};
use tonic::transport::Endpoint;

use super::config::EtcdConfig;
use super::fault;
use crate::lock::ErrorKind;
use crate::net::cause;
use crate::net::fault::{Fault, FaultResult};

/// How long a connection may take to come about: less than a server is given to answer, so that one that is not
/// there is told from one that is slow.
const CONNECT: Duration = Duration::from_millis(1400);
/// When a silent connection with an open stream is asked whether it lives, and how long it may take to answer.
/// etcd hangs up on clients that ask more often than every five seconds.
const PROBE: (Duration, Duration) = (Duration::from_secs(20), Duration::from_secs(10));

/// Who asks, and of whom.
pub(super) fn options(config: &EtcdConfig) -> ConnectOptions {
    let options = ConnectOptions::new().with_require_leader(true).with_auto_token_refresh(true);
    match &config.login {
        Some((user, password)) => options.with_user(user, password.reveal()),
        None => options,
    }
}

/// How to reach the server at `url`.
pub(super) fn endpoint(url: &str, config: &EtcdConfig) -> FaultResult<Endpoint> {
    let unusable = |error: tonic::transport::Error| {
        let reason = error.source().map_or_else(|| error.to_string(), ToString::to_string);
        Fault::new(ErrorKind::Invalid, format!("the certificates cannot be used: {reason}"))
    };
    let endpoint = Endpoint::from_shared(url.to_owned())
        .map_err(|error| Fault::new(ErrorKind::Invalid, format!("{url} is not an address: {error}")))?
        .connect_timeout(CONNECT)
        .http2_keep_alive_interval(PROBE.0)
        .keep_alive_timeout(PROBE.1)
        .keep_alive_while_idle(false);
    if !url.starts_with("https:") {
        return Ok(endpoint);
    }
    let mut tls = match &config.tls.authority {
        Some(pem) => TlsOptions::new().ca_certificate(Certificate::from_pem(pem.as_bytes())),
        None => TlsOptions::new().with_native_roots(),
    };
    if let Some(identity) = &config.tls.identity {
        let (certificate, key) = (identity.certificate.as_bytes(), identity.key.as_bytes());
        tls = tls.identity(Identity::from_pem(certificate, key));
    }
    if let Some(name) = &config.tls.server_name {
        tls = tls.domain_name(name);
    }
    endpoint.tls_config(tls).map_err(unusable)
}

/// The reason stands at the end of the chain: what TLS or the system said.
pub(super) fn unreached(error: &tonic::transport::Error) -> Fault {
    if let Some(fault) = fault::of_encryption(error) {
        return fault;
    }
    let mut reason: &dyn Error = error;
    while let Some(source) = reason.source() {
        reason = source;
    }
    let said = reason.downcast_ref::<std::io::Error>().map(cause::said);
    Fault::spent(said.unwrap_or_else(|| reason.to_string().into()))
}
