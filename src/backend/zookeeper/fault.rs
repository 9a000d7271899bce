//! What can go wrong with a request.

use zookeeper_client::Error as ZkError;

use crate::lock::{ErrorKind, Reason};

/// The backend's name.
pub(super) const NAME: &str = "zk";

/// Why something did not come about.
#[derive(Debug)]
pub(super) enum Fault {
    /// The service said so, or did not answer.
    Service(ZkError),
    /// It was not to be.
    Refusal(ErrorKind, Reason),
}

impl From<ZkError> for Fault {
    fn from(error: ZkError) -> Self {
        Self::Service(error)
    }
}

pub(super) type FaultResult<T> = std::result::Result<T, Fault>;

/// Whether a request that ended so may have been carried out all the same, and may be repeated.
pub(super) fn is_ambiguous(error: &ZkError) -> bool {
    matches!(
        error,
        ZkError::ConnectionLoss | ZkError::Timeout | ZkError::Custom(_) | ZkError::UnmarshalError { .. }
    )
}

/// Whether the session is over.
pub(super) fn is_over(error: &ZkError) -> bool {
    matches!(error, ZkError::SessionExpired | ZkError::ClientClosed | ZkError::SessionMoved)
}

/// Whether what failed so may succeed in another session.
pub(super) fn may_be_repeated(error: &ZkError) -> bool {
    is_ambiguous(error) || is_over(error)
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
