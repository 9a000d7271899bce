//! What went wrong at the service, before it is known during what.

use std::fmt;

use redis::ServerError;

use crate::backend::cause::{self, Cause};
use crate::lock::{Error, ErrorKind, LockName};

/// The backend's name.
pub(super) const NAME: &str = "redis";

/// Said of keys of which some are on one node and some on another.
const MOVING: &str = "the keys of the lock are moving to another node of the cluster (TRYAGAIN)";
/// How the refusal of a replica ends.
const REPLICA: &str = "(it is a replica)";

/// A failure; becomes an [`Error`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Fault {
    pub(super) kind: ErrorKind,
    pub(super) reason: String,
    /// The connection is of no more use: it is broken, or leads to a server that cannot do this.
    pub(super) spent: bool,
}

/// What came out, or what went wrong.
pub(super) type FaultResult<T> = Result<T, Fault>;

impl Fault {
    pub(super) fn new(kind: ErrorKind, reason: impl fmt::Display) -> Self {
        Self { kind, reason: reason.to_string(), spent: false }
    }

    /// One after which another connection may help.
    pub(super) fn spent(reason: impl fmt::Display) -> Self {
        Self { kind: ErrorKind::Unavailable, reason: reason.to_string(), spent: true }
    }

    /// What a look at the server found.
    pub(super) fn found((kind, reason): Cause) -> Self {
        Self { kind, ..Self::spent(reason) }
    }

    /// A reply that is not what was asked for.
    pub(super) fn nonsense(what: impl fmt::Display) -> Self {
        let reason = format!("the reply makes no sense ({what}); is this a Redis server?");
        Self { kind: ErrorKind::Corrupt, reason, spent: true }
    }

    /// Whether the keys are on their way from one node to another: the end of that is worth waiting for.
    pub(super) fn is_moving(&self) -> bool {
        self.reason.ends_with(MOVING)
    }

    /// Whether a replica refused to do what only a master may.
    pub(super) fn is_of_a_replica(&self) -> bool {
        self.reason.ends_with(REPLICA)
    }

    fn unknown() -> Self {
        Self::new(ErrorKind::Denied, cause::no_password(""))
    }

    /// What the server's own error means.
    pub(super) fn of(error: &ServerError) -> Self {
        let details = error.details().unwrap_or_default();
        let text = format!("{} {details}", error.code());
        let text = text.trim();
        match error.code() {
            "NOAUTH" => Self::unknown(),
            // Before a login it takes no request of more than ten words.
            "ERR" if details.contains("unauthenticated") => Self::unknown(),
            "WRONGPASS" => Self::new(ErrorKind::Denied, cause::wrong_password("", "")),
            "NOPERM" => Self::new(
                ErrorKind::Denied,
                cause::no_right(text, "\"dlock man redis\" names the commands and keys that a user needs"),
            ),
            "DENIED" => Self::new(ErrorKind::Denied, text),
            "ERR" if details.contains("without any password configured") => {
                Self::new(ErrorKind::Denied, cause::NEEDLESS_PASSWORD)
            }
            "ERR" if details.contains("DB index") => Self::new(
                ErrorKind::Corrupt,
                cause::no_database(details, ", or raise databases in its configuration"),
            ),
            "ERR" if details.contains("max number of clients") => {
                Self::spent(cause::full("connection", details, "raise maxclients or wait"))
            }
            "OOM" => Self::new(
                ErrorKind::Unavailable,
                cause::full("memory", "maxmemory", "raise the limit or wait"),
            ),
            "LOADING" => Self::new(
                ErrorKind::Unavailable,
                "it is still loading its data; it can be used when that is done",
            ),
            "TRYAGAIN" => Self::new(ErrorKind::Unavailable, MOVING),
            "MASTERDOWN" | "CLUSTERDOWN" | "BUSY" | "MISCONF" | "NOREPLICAS" => {
                Self::new(ErrorKind::Unavailable, text)
            }
            "READONLY" | "UNBLOCKED" => Self::spent(format!(
                "{} {REPLICA}",
                cause::read_only(text.split(" script: ").next().unwrap_or(text))
            )),
            "MOVED" | "ASK" => Self::new(
                ErrorKind::Unsupported,
                "it is a node of a cluster; write the address as redis+cluster://HOST:PORT",
            ),
            _ => Self::new(ErrorKind::Corrupt, text),
        }
    }

    /// The error of `operation` on `lock`.
    pub(super) fn during(self, operation: &'static str, lock: Option<&LockName>) -> Error {
        let error = Error::new(self.kind, NAME, operation, self.reason);
        match lock {
            Some(lock) => error.on(lock),
            None => error,
        }
    }
}
