//! The meaning of errors of etcd and its client library.

use std::error::Error as _;

use tonic::Code;

use crate::lock::ErrorKind;
use crate::net::fault::{Fault, Retry};
use crate::net::{cause, tls};

/// The backend's name.
pub(super) const NAME: &str = "etcd";

/// The lease does not exist: it expired, was revoked, or is not created yet.
pub(super) const LEASE_GONE: i32 = 1;
/// A lease with that id exists.
pub(super) const LEASE_EXISTS: i32 = 2;
/// The server has no space for the write.
pub(super) const NO_SPACE: i32 = 3;
/// This user lacks the right.
pub(super) const NOT_PERMITTED: i32 = 4;
/// The login token has expired or is unknown; a new one may help.
pub(super) const STALE_TOKEN: i32 = 5;
/// The server refuses this user or password.
pub(super) const LOGIN_REFUSED: i32 = 6;

/// Returns the fault of an answer that makes no sense.
pub(super) fn corrupt(what: &str) -> Fault {
    Fault::new(ErrorKind::Corrupt, format!("the server's answer makes no sense: {what}"))
}

/// Returns the fault of an error that concerns encryption.
pub(super) fn of_encryption(error: &(dyn std::error::Error + 'static)) -> Option<Fault> {
    tls::refusal(error).map(|fault| fault.helped_by(Retry::OtherConnection))
}

impl From<etcd_client::Error> for Fault {
    fn from(error: etcd_client::Error) -> Self {
        use etcd_client::Error as E;
        match error {
            E::GRpcStatus(status) => {
                if let Some(fault) = of_encryption(&status) {
                    return fault;
                }
                let mut text = status.message().to_owned();
                // The reason is at the end of the chain of sources, from TLS or the system.
                let mut source = status.source();
                while let Some(next) = source {
                    if next.source().is_none()
                        && let Some(system) = next.downcast_ref()
                    {
                        return Self::spent(cause::said(system));
                    }
                    text = next.to_string();
                    source = next.source();
                }
                of_status(status.code(), one_line(&text))
            }
            E::LeaseKeepAliveError(text) if text.contains("not found") => lease_gone(),
            E::InvalidArgs(text) => Self::new(ErrorKind::Invalid, one_line(&text)),
            E::InvalidUri(error) => Self::new(ErrorKind::Invalid, one_line(&error.to_string())),
            E::TransportError(error) => {
                let text = error.source().map_or_else(|| error.to_string(), ToString::to_string);
                Self::new(ErrorKind::Invalid, format!("the certificates cannot be used: {}", one_line(&text)))
            }
            other => Self::spent(one_line(&other.to_string())),
        }
    }
}

fn lease_gone() -> Fault {
    Fault::unavailable("the lease is gone").coded(LEASE_GONE)
}

fn of_status(code: Code, text: String) -> Fault {
    let said = |kind| Fault::new(kind, text.as_str());
    let credentials = ["authentication failed", "user name", "password", "permission"];
    let stale = ["auth store is old", "invalid auth token"];
    match code {
        // A signed token contains the revision of the users and roles for which it was created, and any change of them
        // invalidates it. A client that lacks a token, or the rights, gets another text.
        _ if stale.iter().any(|words| text.contains(words)) => {
            Fault::unavailable(text).helped_by(Retry::Again).coded(STALE_TOKEN)
        }
        Code::NotFound if text.contains("lease") => lease_gone(),
        Code::FailedPrecondition if text.contains("lease already exists") => {
            Fault::unavailable("the lease is taken").coded(LEASE_EXISTS)
        }
        _ if text.contains("user name is empty") => Fault::new(ErrorKind::Denied, cause::no_password("")),
        _ if text.contains("authentication failed") => {
            Fault::new(ErrorKind::Denied, cause::wrong_password(&text, "")).coded(LOGIN_REFUSED)
        }
        Code::PermissionDenied if text.contains("permission denied") => {
            said(ErrorKind::Denied).coded(NOT_PERMITTED)
        }
        Code::PermissionDenied | Code::Unauthenticated => said(ErrorKind::Denied),
        Code::InvalidArgument | Code::FailedPrecondition
            if credentials.iter().any(|word| text.contains(word)) =>
        {
            said(ErrorKind::Denied)
        }
        Code::FailedPrecondition if text.contains("authentication is not enabled") => {
            Fault::new(ErrorKind::Denied, cause::needless_password())
        }
        Code::ResourceExhausted if text.contains("space exceeded") => {
            let remedy = "compact and defragment the server's data, then disarm the alarm";
            Fault::unavailable(cause::full("space", &text, remedy)).coded(NO_SPACE)
        }
        Code::OutOfRange | Code::InvalidArgument | Code::NotFound => said(ErrorKind::Corrupt),
        Code::Unimplemented => corrupt(&text),
        _ => Fault::spent(text),
    }
}

fn one_line(text: &str) -> String {
    let text = text.strip_prefix("etcdserver: ").unwrap_or(text);
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
