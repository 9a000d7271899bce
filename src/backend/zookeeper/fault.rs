//! What can go wrong with a request.

use zookeeper_client::Error as ZkError;

use crate::lock::ErrorKind;
use crate::net::cause;
use crate::net::fault::{Fault, Retry};

/// The backend's name.
pub(super) const NAME: &str = "zk";

/// The number of a failure in whose course the connection broke: the request may have been carried out, and may be repeated.
pub(super) const LOST: i32 = 1;
/// The number of a failure after which the session is over.
pub(super) const OVER: i32 = 2;
/// The number of everything else that the service says.
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
        } else if is_over(&error) {
            OVER
        } else {
            SAID
        };
        let retry = if fault.is_transient() { Retry::OtherConnection } else { Retry::Nothing };
        fault.helped_by(retry).coded(code)
    }
}

/// Whether a request that ended so may have been carried out all the same, and may be repeated.
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

/// Whether the session is over.
pub(super) fn is_over(error: &ZkError) -> bool {
    matches!(error, ZkError::SessionExpired | ZkError::ClientClosed | ZkError::SessionMoved)
}

/// What kind of failure it is.
pub(super) fn kind(error: &ZkError) -> ErrorKind {
    match error {
        ZkError::NoAuth | ZkError::AuthFailed | ZkError::InvalidAcl => ErrorKind::Denied,
        ZkError::BadArguments(_) => ErrorKind::Invalid,
        ZkError::Unimplemented => ErrorKind::Unsupported,
        _ => ErrorKind::Unavailable,
    }
}
