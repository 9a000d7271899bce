//! The meaning of errors of etcd and its client library.

use std::error::Error;

use tonic::{Code, Status};

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
/// The server refuses this user or password.
pub(super) const LOGIN_REFUSED: i32 = 4;
/// The login token has expired or is unknown; a new one may help.
pub(super) const STALE_TOKEN: i32 = 5;

/// Returns the fault of an error that concerns encryption.
pub(super) fn of_encryption(error: &(dyn Error + 'static)) -> Option<Fault> {
    tls::refusal(error).map(|fault| fault.helped_by(Retry::OtherConnection))
}

/// Returns the end of the chain of sources of `error`, where the reason is, from TLS or the system.
pub(super) fn root<'a>(mut error: &'a (dyn Error + 'static)) -> &'a (dyn Error + 'static) {
    while let Some(source) = error.source() {
        error = source;
    }
    error
}

impl From<etcd_client::Error> for Fault {
    fn from(error: etcd_client::Error) -> Self {
        match error {
            etcd_client::Error::GRpcStatus(status) => of_status(&status),
            etcd_client::Error::LeaseKeepAliveError(text) if text.contains("not found") => lease_gone(),
            other => Self::spent(one_line(&other.to_string())),
        }
    }
}

fn lease_gone() -> Fault {
    Fault::unavailable("the lease is gone").coded(LEASE_GONE)
}

fn of_status(status: &Status) -> Fault {
    if let Some(fault) = of_encryption(status) {
        return fault;
    }
    // Only a failure of the connection has a source.
    if let Some(source) = status.source() {
        let reason = root(source);
        let said = reason.downcast_ref().map(cause::said);
        return Fault::spent(said.unwrap_or_else(|| one_line(&reason.to_string()).into()));
    }
    let text = one_line(status.message());
    // A signed token contains the revision of the users and roles for which it was created, and any change of them
    // invalidates it. A client that lacks a token, or the rights, gets another text.
    let stale = ["auth store is old", "invalid auth token"];
    match status.code() {
        _ if stale.iter().any(|words| text.contains(words)) => Fault::spent(text).coded(STALE_TOKEN),
        Code::NotFound if text.contains("lease") => lease_gone(),
        Code::FailedPrecondition if text.contains("lease already exists") => {
            Fault::unavailable("the lease is taken").coded(LEASE_EXISTS)
        }
        _ if text.contains("user name is empty") => Fault::new(ErrorKind::Denied, cause::no_password("")),
        _ if text.contains("authentication failed") => {
            Fault::new(ErrorKind::Denied, cause::wrong_password(&text, "")).coded(LOGIN_REFUSED)
        }
        Code::FailedPrecondition if text.contains("authentication is not enabled") => {
            Fault::new(ErrorKind::Denied, cause::needless_password())
        }
        Code::PermissionDenied if text.contains("permission denied") => {
            let remedy =
                "\"dlock man etcd\" names the keys that a user needs, which are more than for etcdctl";
            Fault::new(ErrorKind::Denied, cause::no_right(&text, remedy))
        }
        Code::PermissionDenied | Code::Unauthenticated => Fault::new(ErrorKind::Denied, text),
        Code::InvalidArgument if text.contains("too many operations") => {
            let reason = "one transaction of etcd takes at most 25 names; pass fewer";
            Fault::new(ErrorKind::Invalid, reason)
        }
        Code::ResourceExhausted if text.contains("space exceeded") => {
            let remedy = "compact and defragment the server's data, then disarm the alarm";
            Fault::unavailable(cause::full("space", &text, remedy)).coded(NO_SPACE)
        }
        Code::OutOfRange | Code::InvalidArgument | Code::NotFound | Code::Unimplemented => {
            Fault::new(ErrorKind::Corrupt, text)
        }
        _ => Fault::spent(text),
    }
}

fn one_line(text: &str) -> String {
    let text = text.strip_prefix("etcdserver: ").unwrap_or(text);
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
