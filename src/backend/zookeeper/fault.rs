//! Failures of requests, and why there is no session with a server, which the client library does not report.

use std::time::Duration;

use tokio::io::AsyncReadExt;
use zookeeper_client::Error as ZkError;

use crate::lock::reason::About;
use crate::lock::{ErrorKind, Reason};
use crate::net::address::HostPort;
use crate::net::cause::{self, Manner, ProbeResult};
use crate::net::credentials::Tls;
use crate::net::fault::{Fault, Retry};
use crate::net::tls;

/// The backend's name.
pub(super) const NAME: &str = "zk";

/// The code of a failure with a broken connection: the request may have been executed, and may be repeated.
const LOST: i32 = 1;
/// The code of a failure that ends the session.
pub(super) const OVER: i32 = 2;
/// The code of all other failures.
const SAID: i32 = 3;
/// The code of a refusal because the node is another user's.
pub(super) const NO_RIGHT: i32 = 4;

/// Returns whether the request may be repeated over another connection.
pub(super) fn is_lost(fault: &Fault) -> bool {
    matches!(fault.code, LOST | OVER)
}

impl From<ZkError> for Fault {
    fn from(error: ZkError) -> Self {
        let said = || Reason::from(error.to_string());
        let (kind, reason) = match error {
            ZkError::NoAuth => {
                let remedy = "see --user, --password-file";
                (ErrorKind::Denied, cause::no_right("the path is another user's", remedy))
            }
            ZkError::AuthFailed => (ErrorKind::Denied, cause::wrong_password("", "")),
            ZkError::BadArguments(_) => (ErrorKind::Invalid, said()),
            ZkError::Unimplemented => (ErrorKind::Unsupported, said()),
            _ => (ErrorKind::Unavailable, said()),
        };
        let code = match error {
            ZkError::ConnectionLoss
            | ZkError::Timeout
            | ZkError::Custom(_)
            | ZkError::UnexpectedError(_)
            | ZkError::UnmarshalError { .. } => LOST,
            ZkError::SessionExpired | ZkError::ClientClosed | ZkError::SessionMoved => OVER,
            ZkError::NoAuth => NO_RIGHT,
            _ => SAID,
        };
        let retry = if kind.is_transient() { Retry::OtherConnection } else { Retry::Nothing };
        Self::new(kind, reason).helped_by(retry).coded(code)
    }
}

/// How long a server may take to refuse a client after the handshake.
const OBJECTION: Duration = Duration::from_millis(500);
/// How long a handshake and the rest of the probe may take.
const HANDSHAKE: Duration = Duration::from_secs(2);

/// How to recognise ZooKeeper. The command `srvr` is harmless, and servers that have it disabled report that.
const MANNER: Manner = Manner {
    service: "ZooKeeper",
    encryption: "does it want TLS?",
    // With a fifth byte a server that expects TLS closes the connection.
    hello: b"srvr\n",
    is_own: |answer| {
        let text = String::from_utf8_lossy(answer);
        ["Zookeeper version", "whitelist", UNABLE].iter().any(|words| text.contains(words))
    },
};

/// The answer of a server that has lost the others.
const UNABLE: &str = "not currently serving";

/// Returns why the ZooKeeper at `server` cannot be used; `None` if there is no reason. For an absent or foreign server,
/// another server may help. For one that may recover, only time helps.
pub(super) async fn complaint(server: &str, encryption: Option<&Tls>) -> Option<Fault> {
    let found = cause::look(server, &MANNER).await;
    if let ProbeResult::Own(answer) = &found
        && encryption.is_none()
        && String::from_utf8_lossy(answer).contains(UNABLE)
    {
        let why = Reason::of(&server, "is up but serves no clients").asking("has it lost the others?");
        return Some(Fault::unavailable(why));
    }
    if found == ProbeResult::Closed && cause::hangs_up(server, &MANNER).await {
        let why = Reason::of(&server, "closes each connection at once").about(About::Service);
        let why = why.asking("is its limit of connections a host (maxClientCnxns) reached?");
        return Some(Fault::new(ErrorKind::Full, why).helped_by(Retry::OtherConnection));
    }
    if let Some(cause) = cause::complaint(server, &MANNER, encryption.is_some(), &found) {
        return Some(match found {
            ProbeResult::Away | ProbeResult::Silent => Fault::unavailable(cause),
            // The server answers without TLS, and will do so again.
            ProbeResult::Own(_) => Fault::new(ErrorKind::Denied, cause),
            _ => Fault::spent(cause),
        });
    }
    let said = tokio::time::timeout(HANDSHAKE, objection(encryption?, server)).await;
    said.unwrap_or_else(|_| Some(Fault::unavailable(cause::silent(&server))))
}

/// Returns the fault that one more handshake with `server` shows, if any.
async fn objection(wanted: &Tls, server: &str) -> Option<Fault> {
    let (host, port) = server.rsplit_once(':')?;
    let at = HostPort { host: host.trim_matches(['[', ']']).to_owned(), port: port.parse().ok()? };
    let closed = || {
        let why = Reason::from("it closed the encrypted connection");
        Fault::unavailable(why.asking("does it want a client certificate (--cert and --key)?"))
    };
    let fault = match tls::connect(&at, Some(wanted)).await {
        Err(fault) => fault,
        // A server refuses a client's certificate only after the client considers itself connected.
        Ok(mut stream) => match tokio::time::timeout(OBJECTION, stream.read(&mut [0])).await {
            // No objection so far.
            Err(_) | Ok(Ok(1..)) => return None,
            Ok(Err(error)) => tls::refusal(&error).unwrap_or_else(closed).at(&at),
            // The end of the connection may overtake the server's alert.
            Ok(Ok(0)) => closed().at(&at),
        },
    };
    Some(fault.helped_by(Retry::Nothing))
}

/// Returns the version that the server at `server` reports without encryption, with the command `srvr`, which is enabled
/// by default.
pub(super) async fn reported_version(server: &str) -> Option<String> {
    let ProbeResult::Own(answer) = cause::look(server, &MANNER).await else { return None };
    version_in(&String::from_utf8_lossy(&answer))
}

fn version_in(answer: &str) -> Option<String> {
    let version = answer.strip_prefix("Zookeeper version:")?.trim_start().split([',', '-', ' ']).next()?;
    Some(version.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_status_is_parsed() {
        let text = "Zookeeper version: 3.8.0-${mvngit.commit.id}, built on 2022-03-21 11:23 UTC\n\
                    Latency min/avg/max: 0/0.0/0\nMode: standalone\n";
        assert_eq!(version_in(text).as_deref(), Some("3.8.0"));
        assert_eq!(version_in("srvr is not executed because it is not in the whitelist."), None);
    }
}
