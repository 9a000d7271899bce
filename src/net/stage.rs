//! How far an attempt to connect has come.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// How far an attempt to connect has come.
#[derive(Default, Debug)]
pub struct Stage {
    connected: AtomicBool,
    login: OnceLock<Instant>,
}

impl Stage {
    /// There is a connection, and the server may go on with the attempt although its client has gone.
    pub fn connected(&self) {
        self.connected.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_connected(&self) -> bool {
        self.connected.load(Ordering::Relaxed)
    }

    /// The login is sent.
    pub fn logs_in(&self) {
        self.login.get_or_init(Instant::now);
    }

    /// For how long the login has been under way, if it was sent.
    pub(super) fn login(&self) -> Option<Duration> {
        self.login.get().map(Instant::elapsed)
    }
}
