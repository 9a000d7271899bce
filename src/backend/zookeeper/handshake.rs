//! Finds out why there is no session with a server, which the client library does not report.

use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::lock::reason::About;
use crate::lock::{ErrorKind, Reason};
use crate::net::cause::{self, Manner, ProbeResult};
use crate::net::credentials::Tls;
use crate::net::fault::{Fault, Retry};
use crate::net::tls;

/// How long a server may take to refuse a client after the handshake.
const OBJECTION: Duration = Duration::from_millis(500);
/// How long a handshake and the rest of the probe may take.
const HANDSHAKE: Duration = Duration::from_secs(2);

/// How to recognise ZooKeeper. The command `srvr` is harmless, and servers that have it disabled report that.
const MANNER: Manner = Manner {
    service: "ZooKeeper",
    encryption: "does it want TLS?",
    hello: b"srvr",
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
        return Some(unable(server));
    }
    if found == ProbeResult::Closed && cause::hangs_up(server, &MANNER).await {
        let why = Reason::of(&server, "closes each connection at once");
        let why =
            why.about(About::Service).asking("is its limit of connections a host (maxClientCnxns) reached?");
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
    let tls = encryption?;
    let silent = || Some(Fault::unavailable(cause::silent(&server)));
    let said = tokio::time::timeout(HANDSHAKE, objection(tls, server)).await;
    said.unwrap_or_else(|_| silent())
}

fn unable(server: &str) -> Fault {
    Fault::unavailable(Reason::of(&server, "is up but serves no clients").asking("has it lost the others?"))
}

/// Returns the fault that one more handshake with `server` shows, if any.
async fn objection(wanted: &Tls, server: &str) -> Option<Fault> {
    let against = |fault: Fault| Some(Fault { retry: Retry::Nothing, ..fault }.at(&server));
    let host = server.rsplit_once(':').map_or(server, |(host, _)| host).trim_matches(['[', ']']);
    let config = match tls::client(wanted) {
        Ok(config) => config,
        Err(why) => return against(why),
    };
    let stream = match TcpStream::connect(server).await {
        Ok(stream) => stream,
        Err(error) => return Some(Fault::spent(cause::unreached(&server, &error))),
    };
    let name = ServerName::try_from(host.to_owned()).ok()?;
    let mut stream = match TlsConnector::from(Arc::new(config)).connect(name, stream).await {
        Ok(stream) => stream,
        Err(error) => return against(tls::failure(&error)),
    };
    // A server refuses a client's certificate only after the client considers itself connected.
    let mut byte = [0];
    match tokio::time::timeout(OBJECTION, stream.read(&mut byte)).await {
        Ok(Err(error)) if tls::refusal(&error).is_some() => against(tls::failure(&error)),
        // The end of the connection may overtake the server's alert.
        Ok(Err(_) | Ok(0)) => {
            let why = Reason::from("it closed the encrypted connection").at(&server);
            Some(Fault::unavailable(why.asking("does it want a client certificate (--cert and --key)?")))
        }
        // No objection so far.
        _ => {
            stream.write_all(MANNER.hello).await.ok()?;
            let mut text = Vec::new();
            let mut stream = stream.take(65_536);
            let read = tokio::time::timeout(OBJECTION, stream.read_to_end(&mut text)).await;
            if read.is_err() || !(MANNER.is_own)(&text) {
                let why = Reason::of(&server, "speaks TLS but does not answer as ZooKeeper does");
                return Some(Fault::unavailable(
                    why.about(About::Stranger).asking("is this the right port?"),
                ));
            }
            String::from_utf8_lossy(&text).contains(UNABLE).then(|| unable(server))
        }
    }
}
