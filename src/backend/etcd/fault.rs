//! What can go wrong with a request.

use std::error::Error as _;

use crate::lock::{ErrorKind, Reason};
use crate::net::{cause, fault, tls};

/// The backend's name.
pub(super) const NAME: &str = "etcd";

/// Why a request came to nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Fault {
    /// There is no such lease: it ran out, was revoked, or is not there yet.
    LeaseNotFound,
    /// There is one with that id.
    LeaseExists,
    /// The connection failed or the server cannot serve now; another one, or a later attempt, may.
    Passing(Reason),
    /// That server and this client do not trust each other; another one may.
    NotTrusted(Reason),
    /// The token that says who asks is too old or not known; a new one may do.
    StaleToken(Reason),
    /// The server has no space for what was to be written.
    Full(String),
    /// This user may not do that, in the server's words.
    NotPermitted(String),
    /// Anything else.
    Said(ErrorKind, Reason),
}

pub(super) type FaultResult<T> = Result<T, Fault>;

/// gRPC's numbers for what a call came to.
mod code {
    pub(super) const INVALID_ARGUMENT: i32 = 3;
    pub(super) const NOT_FOUND: i32 = 5;
    pub(super) const PERMISSION_DENIED: i32 = 7;
    pub(super) const RESOURCE_EXHAUSTED: i32 = 8;
    pub(super) const FAILED_PRECONDITION: i32 = 9;
    pub(super) const OUT_OF_RANGE: i32 = 11;
    pub(super) const UNIMPLEMENTED: i32 = 12;
    pub(super) const UNAUTHENTICATED: i32 = 16;
}

impl Fault {
    /// An answer that makes no sense.
    pub(super) fn corrupt(what: &str) -> Self {
        Self::Said(ErrorKind::Corrupt, format!("the server's answer makes no sense: {what}").into())
    }

    /// No answer.
    pub(super) fn late() -> Self {
        Self::Passing("no answer in time".into())
    }

    /// Whether a later attempt may come to more.
    pub(super) fn is_transient(&self) -> bool {
        fault::Fault::from(self.clone()).kind.is_transient()
    }

    /// What a look at the servers found.
    pub(super) fn found(found: fault::Fault) -> Self {
        match found.kind {
            ErrorKind::Unavailable => Self::Passing(found.reason),
            _ => Self::NotTrusted(found.reason),
        }
    }

    /// What encryption has to do with it, if it has.
    pub(super) fn of_encryption(error: &(dyn std::error::Error + 'static)) -> Option<Self> {
        tls::refusal(error).map(Self::found)
    }
}

impl From<Fault> for fault::Fault {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::LeaseNotFound => Self::unavailable("the lease is gone"),
            Fault::LeaseExists => Self::unavailable("the lease is taken"),
            Fault::Passing(reason) => Self::spent(reason),
            Fault::StaleToken(reason) => Self::unavailable(reason),
            Fault::NotTrusted(reason) => Self::new(ErrorKind::Denied, reason),
            Fault::Full(text) => Self::unavailable(cause::full(
                "space",
                &text,
                "compact and defragment the server's data, then disarm the alarm",
            )),
            Fault::NotPermitted(text) => Self::new(ErrorKind::Denied, text),
            Fault::Said(kind, reason) => Self::new(kind, reason),
        }
    }
}

impl From<etcd_client::Error> for Fault {
    fn from(error: etcd_client::Error) -> Self {
        use etcd_client::Error as E;
        match error {
            E::GRpcStatus(status) => {
                if let Some(fault) = Self::of_encryption(&status) {
                    return fault;
                }
                let mut text = status.message().to_owned();
                // The reason stands at the end of the chain: what TLS or the system said.
                let mut source = status.source();
                while let Some(next) = source {
                    if next.source().is_none()
                        && let Some(system) = next.downcast_ref()
                    {
                        return Self::Passing(cause::said(system));
                    }
                    text = next.to_string();
                    source = next.source();
                }
                of_status(status.code() as i32, one_line(&text))
            }
            E::LeaseKeepAliveError(text) if text.contains("not found") => Self::LeaseNotFound,
            E::InvalidArgs(text) => Self::Said(ErrorKind::Invalid, one_line(&text).into()),
            E::InvalidUri(error) => Self::Said(ErrorKind::Invalid, one_line(&error.to_string()).into()),
            E::TransportError(error) => {
                let text = error.source().map_or_else(|| error.to_string(), ToString::to_string);
                Self::Said(
                    ErrorKind::Invalid,
                    format!("the certificates cannot be used: {}", one_line(&text)).into(),
                )
            }
            other => Self::Passing(one_line(&other.to_string()).into()),
        }
    }
}

fn of_status(code: i32, text: String) -> Fault {
    let said = |kind| Fault::Said(kind, text.as_str().into());
    let credentials = ["authentication failed", "user name", "password", "permission"];
    let stale = ["auth store is old", "invalid auth token"];
    match code {
        // A token of the kind that is signed names the state of users and roles that it was made for, and any
        // change to them makes it useless. Who has none, or the wrong rights, is told so in other words.
        _ if stale.iter().any(|words| text.contains(words)) => Fault::StaleToken(text.into()),
        code::NOT_FOUND if text.contains("lease") => Fault::LeaseNotFound,
        code::FAILED_PRECONDITION if text.contains("lease already exists") => Fault::LeaseExists,
        _ if text.contains("user name is empty") => Fault::Said(ErrorKind::Denied, cause::no_password("")),
        _ if text.contains("authentication failed") => {
            Fault::Said(ErrorKind::Denied, cause::wrong_password(&text, ""))
        }
        code::PERMISSION_DENIED if text.contains("permission denied") => Fault::NotPermitted(text),
        code::PERMISSION_DENIED | code::UNAUTHENTICATED => said(ErrorKind::Denied),
        code::INVALID_ARGUMENT | code::FAILED_PRECONDITION
            if credentials.iter().any(|word| text.contains(word)) =>
        {
            said(ErrorKind::Denied)
        }
        code::FAILED_PRECONDITION if text.contains("authentication is not enabled") => {
            Fault::Said(ErrorKind::Denied, cause::needless_password())
        }
        code::RESOURCE_EXHAUSTED if text.contains("space exceeded") => Fault::Full(text),
        code::OUT_OF_RANGE | code::INVALID_ARGUMENT | code::NOT_FOUND => said(ErrorKind::Corrupt),
        code::UNIMPLEMENTED => Fault::corrupt(&text),
        _ => Fault::Passing(text.into()),
    }
}

fn one_line(text: &str) -> String {
    let text = text.strip_prefix("etcdserver: ").unwrap_or(text);
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_may_pass_is_tried_again() {
        let kind = |code, text: &str| match of_status(code, text.to_owned()) {
            Fault::Said(kind, _) => Some(kind),
            _ => None,
        };
        assert_eq!(kind(14, "connection refused"), None);
        assert_eq!(kind(1, "timeout expired"), None);
        assert_eq!(kind(8, "too many requests"), None);
        let full = of_status(8, "mvcc: database space exceeded".to_owned());
        assert!(matches!(full, Fault::Full(_)), "{full:?}");
        assert_eq!(fault::Fault::from(full).kind, ErrorKind::Unavailable);
        assert_eq!(kind(3, "authentication failed, invalid user ID or password"), Some(ErrorKind::Denied));
        assert_eq!(kind(7, "something else"), Some(ErrorKind::Denied));
        let denied = of_status(7, "permission denied".to_owned());
        assert_eq!(denied, Fault::NotPermitted("permission denied".to_owned()));
        assert_eq!(fault::Fault::from(denied).kind, ErrorKind::Denied);
        for (code, text) in [(3, "revision of auth store is old"), (16, "invalid auth token")] {
            let stale = of_status(code, text.to_owned());
            assert!(matches!(stale, Fault::StaleToken(_)), "{stale:?}");
            assert_eq!(fault::Fault::from(stale).kind, ErrorKind::Unavailable, "it may pass");
        }
        assert_eq!(of_status(5, "requested lease not found".to_owned()), Fault::LeaseNotFound);
        assert_eq!(of_status(9, "lease already exists".to_owned()), Fault::LeaseExists);
    }
}
