//! What Redis' errors mean.

use std::fmt;

use redis::ServerError;

use crate::lock::ErrorKind;
use crate::net::cause;
use crate::net::fault::{Fault, Retry};

/// The backend's name.
pub(super) const NAME: &str = "redis";

/// A reply that is not what was asked for.
pub(super) fn nonsense(what: impl fmt::Display) -> Fault {
    let fault = Fault::nonsense(what);
    Fault { reason: fault.reason.asking("is this a Redis server?"), ..fault }
}

fn unknown() -> Fault {
    Fault::new(ErrorKind::Denied, cause::no_password(""))
}

/// What the server's own error means.
pub(super) fn of(error: &ServerError) -> Fault {
    let details = error.details().unwrap_or_default();
    let text = format!("{} {details}", error.code());
    let text = text.trim();
    match error.code() {
        "NOAUTH" => unknown(),
        // Before a login it takes no request of more than ten words.
        "ERR" if details.contains("unauthenticated") => unknown(),
        "WRONGPASS" => Fault::new(ErrorKind::Denied, cause::wrong_password("", "")),
        "NOPERM" => Fault::new(
            ErrorKind::Denied,
            cause::no_right(text, "\"dlock man redis\" names the commands and keys that a user needs"),
        ),
        "DENIED" => Fault::new(ErrorKind::Denied, text),
        "ERR" if details.contains("without any password configured") => {
            Fault::new(ErrorKind::Denied, cause::needless_password())
        }
        "ERR" if details.contains("DB index") => Fault::new(
            ErrorKind::Corrupt,
            cause::no_database(details, ", or raise databases in its configuration"),
        ),
        "ERR" if details.contains("max number of clients") => {
            Fault::new(ErrorKind::Full, cause::full("connection", details, "raise maxclients or wait"))
        }
        "OOM" => Fault::unavailable(cause::full("memory", "maxmemory", "raise the limit or wait")),
        "LOADING" => Fault::unavailable("it is still loading its data; it can be used when that is done"),
        "TRYAGAIN" => {
            Fault::unavailable("the keys of the lock are moving to another node of the cluster (TRYAGAIN)")
                .helped_by(Retry::Again)
        }
        "MASTERDOWN" | "CLUSTERDOWN" | "BUSY" | "MISCONF" | "NOREPLICAS" => Fault::unavailable(text),
        "READONLY" | "UNBLOCKED" => {
            let said = text.split(" script: ").next().unwrap_or(text);
            Fault::unavailable(format!("{} (it is a replica)", cause::read_only(said)))
                .helped_by(Retry::OtherServer)
        }
        "MOVED" | "ASK" => Fault::new(
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
    fn each_refusal_has_its_kind() {
        for (line, kind) in [
            ("ERR max number of clients reached", ErrorKind::Full),
            ("OOM command not allowed when used memory > 'maxmemory'.", ErrorKind::Unavailable),
            ("LOADING Redis is loading the dataset in memory", ErrorKind::Unavailable),
            ("READONLY You can't write against a read only replica.", ErrorKind::Unavailable),
            ("NOAUTH Authentication required.", ErrorKind::Denied),
            ("ERR DB index is out of range", ErrorKind::Corrupt),
            ("MOVED 3999 127.0.0.1:6381", ErrorKind::Unsupported),
            ("ERR unknown command", ErrorKind::Corrupt),
        ] {
            assert_eq!(said(line).kind, kind, "{line}");
        }
    }
}
