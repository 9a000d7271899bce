//! Errors of memcached.

use crate::lock::ErrorKind;
use crate::net::cause;
use crate::net::fault::{Fault, Retry};

/// The backend's name.
pub(super) const NAME: &str = "memcached";

/// Returns the fault that a line of a reply reports, if it does.
pub(super) fn of(line: &str) -> Option<Fault> {
    let (code, details) = line.split_once(' ').unwrap_or((line, ""));
    Some(match code {
        "SERVER_ERROR" if details.contains("too large") => Fault::new(
            ErrorKind::Full,
            "there is no room for another claim: the queue is longer than an item may be; wait, or raise -I",
        ),
        "SERVER_ERROR" if details.contains("out of memory") => {
            Fault::new(ErrorKind::Full, cause::full("memory", details, "raise -m or wait"))
        }
        "SERVER_ERROR" => Fault::unavailable(line),
        "ERROR" if details.contains("open connections") => {
            Fault::new(ErrorKind::Full, cause::full("connection", details, "raise -c or wait"))
        }
        "CLIENT_ERROR" if details.contains("unauthenticated") => {
            Fault::new(ErrorKind::Denied, cause::no_password(""))
        }
        "CLIENT_ERROR" if details.contains("authentication failure") => {
            Fault::new(ErrorKind::Denied, cause::wrong_password("", ""))
        }
        "ERROR" | "CLIENT_ERROR" => nonsense(line),
        _ => return None,
    })
}

/// Returns the fault of an unexpected reply.
pub(super) fn nonsense(what: &str) -> Fault {
    let what: String = what.chars().take(60).collect();
    let reason = format!("the reply is not memcached's ({what:?})");
    Fault::new(ErrorKind::Corrupt, reason).helped_by(Retry::OtherConnection)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_has_its_kind() {
        for (line, kind) in [
            ("SERVER_ERROR object too large for cache", Some(ErrorKind::Full)),
            ("SERVER_ERROR out of memory storing object", Some(ErrorKind::Full)),
            ("SERVER_ERROR temporary failure", Some(ErrorKind::Unavailable)),
            ("ERROR Too many open connections", Some(ErrorKind::Full)),
            ("CLIENT_ERROR unauthenticated", Some(ErrorKind::Denied)),
            ("CLIENT_ERROR authentication failure", Some(ErrorKind::Denied)),
            ("ERROR", Some(ErrorKind::Corrupt)),
            ("CLIENT_ERROR bad data chunk", Some(ErrorKind::Corrupt)),
            ("STORED", None),
            ("17", None),
        ] {
            assert_eq!(of(line).map(|fault| fault.kind), kind, "{line}");
        }
    }
}
