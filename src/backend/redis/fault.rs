//! The meaning of Redis' errors.

use std::fmt;

use redis::ServerError;

use crate::lock::{ErrorKind, Reason};
use crate::net::cause;
use crate::net::fault::{Fault, Retry};

/// The backend's name.
pub(super) const NAME: &str = "redis";

/// The advice after a refused command.
const RIGHTS: &str = "\"dlock man redis\" names the commands and keys that a user needs";

/// The code of a failure with a connection that ended before the answer.
pub(super) const HUNG_UP: i32 = 1;

/// Returns the fault of an unexpected reply.
pub(super) fn nonsense(what: impl fmt::Display) -> Fault {
    let fault = Fault::nonsense(what);
    Fault { reason: fault.reason.asking("is this a Redis server?"), ..fault }
}

/// Returns whether the server demands a login. Before one it accepts no request of more than ten words.
pub(super) fn is_unknown(error: &ServerError) -> bool {
    let is_refused = error.details().is_some_and(|details| details.contains("unauthenticated"));
    error.code() == "NOAUTH" || error.code() == "ERR" && is_refused
}

/// Returns whether the server does not know a script by its hash, or does not take one.
pub(super) fn is_unknown_script(error: &ServerError) -> bool {
    let details = error.details().unwrap_or_default().to_lowercase();
    error.code() == "NOSCRIPT" || details.contains("'evalsha'") || details.contains("`evalsha`")
}

/// Returns the code and the details of an error. Before Redis 7 those of a command in a script are at the end.
fn parts(error: &ServerError) -> (&str, &str) {
    let (code, details) = (error.code(), error.details().unwrap_or_default());
    let of_script =
        details.strip_prefix("Error running script").and_then(|at| at.rsplit_once("user_script:"));
    let Some((_, raised)) = of_script else { return (code, details) };
    let raised = raised.trim_start_matches(|c: char| matches!(c, ' ' | ':' | '-') || c.is_ascii_digit());
    let own = raised.split_once(' ').filter(|(code, _)| code.chars().all(|c| c.is_ascii_uppercase()));
    own.unwrap_or((code, raised))
}

/// Returns the fault for an error reply.
pub(super) fn of(error: &ServerError) -> Fault {
    let (code, details) = parts(error);
    // A script's hash and line and a command's arguments are of no use to users.
    let details = details.split(" script: ").next().unwrap_or(details);
    let details = details.split(", with args").next().unwrap_or(details);
    let text = format!("{code} {details}");
    let text = text.trim();
    match code {
        _ if is_unknown(error) => Fault::new(ErrorKind::Denied, cause::no_password("")),
        "WRONGPASS" => Fault::new(ErrorKind::Denied, cause::wrong_password("", "")),
        _ if code == "NOPERM" || details.contains("user executing the script") => {
            Fault::new(ErrorKind::Denied, cause::no_right(text, RIGHTS))
        }
        "DENIED" => Fault::new(ErrorKind::Denied, text),
        "ERR" if details.contains("without any password configured") => {
            Fault::new(ErrorKind::Denied, cause::needless_password())
        }
        // From a script it lacks the command's name.
        "ERR" if details.to_lowercase().starts_with("unknown ") => {
            Fault::new(ErrorKind::Corrupt, Reason::from(text).advising(RIGHTS))
        }
        "ERR" if details.contains("DB index") => Fault::new(
            ErrorKind::Corrupt,
            cause::no_database(details, ", or raise databases in its configuration"),
        ),
        "ERR" if details.contains("max number of clients") => {
            let reason = cause::full("connection", details, "raise maxclients or wait");
            Fault::new(ErrorKind::Full, reason).helped_by(Retry::OtherConnection)
        }
        "OOM" => Fault::unavailable(cause::full("memory", "maxmemory", "raise the limit or wait")),
        "LOADING" => Fault::unavailable("it is still loading its data; it can be used when that is done"),
        // Not all of its keys are at one node.
        "TRYAGAIN" | "ASK" => {
            Fault::unavailable("the keys of the lock are moving to another node of the cluster")
                .helped_by(Retry::Again)
        }
        "MASTERDOWN" | "CLUSTERDOWN" | "BUSY" | "MISCONF" | "NOREPLICAS" => Fault::unavailable(text),
        "READONLY" | "UNBLOCKED" => {
            Fault::unavailable(format!("{} (it is a replica)", cause::read_only(text)))
                .helped_by(Retry::OtherServer)
        }
        "MOVED" => Fault::new(
            ErrorKind::Unsupported,
            "it is a node of a cluster; write the address as redis+cluster://HOST:PORT",
        ),
        _ => Fault::new(ErrorKind::Corrupt, text),
    }
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use redis::{Value, ValueCodec};
    use tokio_util::codec::Decoder;

    use super::*;

    fn said(line: &str) -> Fault {
        let mut bytes = BytesMut::from(format!("-{line}\r\n").as_str());
        let reply = ValueCodec::default().decode(&mut bytes).expect("a reply");
        let Some(Value::ServerError(error)) = reply else { panic!("no error") };
        of(&error)
    }

    #[test]
    fn a_script_of_redis_6_fails_like_the_command_in_it() {
        for (raised, alone) in [
            (" 25: -READONLY You can't write", "READONLY You can't write"),
            (" 25: -OOM command not allowed", "OOM command not allowed"),
            (" 25: -NOREPLICAS Not enough good replicas", "NOREPLICAS Not enough good replicas"),
            (" 25: -MISCONF Errors writing: No space left", "MISCONF Errors writing: No space left"),
            (" 9: The user executing the script can't", "ERR The user executing the script can't"),
            (" 9: Unknown Redis command called", "ERR Unknown Redis command called"),
            ("9: WRONGTYPE Operation against a key", "WRONGTYPE Operation against a key"),
        ] {
            let line =
                format!("ERR Error running script (call to f_0a): @user_script:9: @user_script:{raised}");
            assert_eq!(said(&line), said(alone));
        }
    }

    #[test]
    fn a_missing_command_is_named_and_no_script_is() {
        for (line, part) in [
            ("ERR unknown command 'EVAL', with args beginning with: '-- An' '4'", "unknown command 'EVAL'"),
            ("ERR Unknown Redis command called from script script: 936f54, on @user_script:21.", "man redis"),
            ("MISCONF Errors writing to the AOF file script: 936f54, on @user_script:21.", "MISCONF"),
        ] {
            let reason = said(line).reason.to_string();
            assert!(reason.contains(part), "{reason}");
            assert!(!reason.contains("936f54") && !reason.contains("args"), "{reason}");
        }
    }
}
