//! Progress of an attempt to connect.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::time::Instant;

/// The progress of an attempt to connect.
#[derive(Default, Debug)]
pub struct Stage {
    connected: AtomicBool,
    login: OnceLock<Instant>,
    answered: Arc<AtomicBool>,
}

impl Stage {
    /// Creates the stage of a new attempt; `answered` is whether a server of the service has ever answered.
    pub(super) fn new(answered: &Arc<AtomicBool>) -> Self {
        Self { answered: Arc::clone(answered), ..Self::default() }
    }

    /// Records that the server has sent something in the service's protocol, or completed a TLS handshake.
    pub fn answered(&self) {
        self.answered.store(true, Ordering::Relaxed);
    }

    /// Records that a connection exists: the server may continue the attempt after the client has gone.
    pub fn connected(&self) {
        self.connected.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_connected(&self) -> bool {
        self.connected.load(Ordering::Relaxed)
    }

    /// Records that the login is sent.
    pub fn logs_in(&self) {
        self.login.get_or_init(Instant::now);
    }

    /// Returns how long ago the login was sent, if it was.
    pub(super) fn login(&self) -> Option<Duration> {
        self.login.get().map(Instant::elapsed)
    }
}
