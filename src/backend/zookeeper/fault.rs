//! Failures of requests.

use zookeeper_client::Error as ZkError;

use crate::lock::ErrorKind;
use crate::net::cause;
use crate::net::fault::{Fault, Retry};

/// The backend's name.
pub(super) const NAME: &str = "zk";

/// The code of a failure with a broken connection: the request may have been executed, and may be repeated.
pub(super) const LOST: i32 = 1;
/// The code of a failure that ends the session.
pub(super) const OVER: i32 = 2;
/// The code of all other failures.
const SAID: i32 = 3;

impl From<ZkError> for Fault {
    fn from(error: ZkError) -> Self {
        let reason = match error {
            ZkError::NoAuth => cause::no_right("the path is another user's", "see --user, --password-file"),
            ZkError::AuthFailed => cause::wrong_password("", ""),
            ref error => error.to_string().into(),
        };
        let fault = Self::new(kind(&error), reason);
        let code = if is_ambiguous(&error) {
            LOST
        } else if matches!(error, ZkError::SessionExpired | ZkError::ClientClosed | ZkError::SessionMoved) {
            OVER
        } else {
            SAID
        };
        let retry = if fault.is_transient() { Retry::OtherConnection } else { Retry::Nothing };
        fault.helped_by(retry).coded(code)
    }
}

/// Returns whether a request with this error may have been executed, and may be repeated.
pub(super) fn is_ambiguous(error: &ZkError) -> bool {
    matches!(
        error,
        ZkError::ConnectionLoss
            | ZkError::Timeout
            | ZkError::Custom(_)
            | ZkError::UnexpectedError(_)
            | ZkError::UnmarshalError { .. }
    )
}

/// Returns the kind of a failure.
fn kind(error: &ZkError) -> ErrorKind {
    match error {
        ZkError::NoAuth | ZkError::AuthFailed | ZkError::InvalidAcl => ErrorKind::Denied,
        ZkError::BadArguments(_) => ErrorKind::Invalid,
        ZkError::Unimplemented => ErrorKind::Unsupported,
        _ => ErrorKind::Unavailable,
    }
}
