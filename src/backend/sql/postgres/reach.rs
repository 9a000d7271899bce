//! Connecting to a server, to log in or to cancel a request.

use std::io;
use std::net::SocketAddr;

use futures_util::FutureExt as _;
use tokio::net::UnixStream;
use tokio_postgres::CancelToken;

use super::config::{PgMode, PgPlace};
use super::tls::Encryption;
use crate::net::connector::Stream;
use crate::net::credentials::Tls;
use crate::net::tcp;

/// Connects to the server at `place`.
pub(super) async fn reach(place: &PgPlace) -> io::Result<Box<dyn Stream>> {
    if let Some(path) = place.socket() {
        return Ok(Box::new(UnixStream::connect(&path).await?));
    }
    Ok(Box::new(match place.address {
        Some(address) => tcp::connect_to(SocketAddr::new(address, place.port)).await?,
        None => tcp::connect(&place.host, place.port).await?,
    }))
}

/// Cancels the requests of one connection.
pub(super) struct Canceller {
    pub(super) token: CancelToken,
    pub(super) place: PgPlace,
    pub(super) mode: PgMode,
    pub(super) tls: Tls,
}

impl Canceller {
    /// Makes the server end the statement that it executes. A commit that waits for a standby is complete without it.
    pub(super) async fn cancel(&self) {
        let Ok(stream) = reach(&self.place).await else { return };
        if let Ok(encryption) = Encryption::new(self.mode, &self.tls, &self.place.host) {
            // Without it, the statement takes as long as the server takes.
            let _ = self.token.cancel_query_raw(stream, encryption).boxed().await;
        }
    }

    /// Returns the server for display.
    pub(super) fn peer(&self) -> String {
        self.place.to_string()
    }
}
