//! Why a server and this client do not come to an encrypted connection: the session's own attempts do not say.

use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::backend::options::Tls;
use crate::backend::tls;

/// How long a server may take for its objection to a client whose handshake is done.
const OBJECTION: Duration = Duration::from_millis(500);

/// Whether the ZooKeeper at the other end serves; `None` if there is none that says so. It is asked for what any may be
/// asked; one that does not answer to it says that.
pub(super) async fn serves(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> Option<bool> {
    let asked = async {
        stream.write_all(b"srvr").await.ok()?;
        let mut text = Vec::new();
        stream.take(65_536).read_to_end(&mut text).await.ok()?;
        let text = String::from_utf8_lossy(&text).into_owned();
        let is_up = text.contains("Zookeeper version") || text.contains("whitelist");
        (is_up || text.contains("not currently serving")).then_some(is_up)
    };
    tokio::time::timeout(OBJECTION, asked).await.ok().flatten()
}

/// What one more handshake over `stream`, which leads to `server`, says; `None` if it says nothing against either side.
pub(super) async fn objection(wanted: &Tls, server: &str, stream: TcpStream) -> Option<String> {
    let host = server.rsplit_once(':').map_or(server, |(host, _)| host).trim_matches(['[', ']']);
    let config = match tls::client(wanted) {
        Ok(config) => config,
        Err((_, why)) => return Some(why),
    };
    let name = ServerName::try_from(host.to_owned()).ok()?;
    let mut stream = match TlsConnector::from(Arc::new(config)).connect(name, stream).await {
        Ok(stream) => stream,
        Err(error) => return Some(meaning(&error)),
    };
    // A server refuses a client's certificate only after the client believes that it is connected.
    let mut byte = [0];
    match tokio::time::timeout(OBJECTION, stream.read(&mut byte)).await {
        Ok(Err(error)) if tls::refusal(&error).is_some() => Some(meaning(&error)),
        // The end of the connection may overtake the server's last words.
        Ok(Err(_) | Ok(0)) => {
            let wish = "it closed the encrypted connection; does it want a certificate? see --cert and --key";
            Some(wish.to_owned())
        }
        // It may simply have nothing to say yet.
        _ => match serves(&mut stream).await {
            Some(true) => None,
            Some(false) => Some("it is up but serves nobody; has it lost the others?".to_owned()),
            None => Some("it does not answer as ZooKeeper does over TLS".to_owned()),
        },
    }
}

fn meaning(error: &std::io::Error) -> String {
    match tls::refusal(error) {
        Some((_, reason)) => reason,
        None => format!("no encrypted connection: {error}; does it speak TLS on this port?"),
    }
}
