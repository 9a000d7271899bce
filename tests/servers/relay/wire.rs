//! The boundaries of the messages on a connection.

use super::fault::Way;

/// The first unit of the received bytes.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Unit {
    pub(crate) length: usize,
    /// The text that identifies the message. `None` for a part of a message and for the setup of the connection.
    pub(crate) message: Option<String>,
}

impl Unit {
    pub(crate) fn message(length: usize, what: impl Into<String>) -> Self {
        Self { length, message: Some(what.into()) }
    }

    pub(crate) fn other(length: usize) -> Self {
        Self { length, message: None }
    }
}

/// Reads one connection in both directions.
pub(crate) trait Wire: Send {
    /// Returns the first unit of `bytes`, which go in that direction. Returns `None` if the unit is incomplete.
    fn next(&mut self, way: Way, bytes: &[u8]) -> Option<Unit>;
}

/// Returns the big-endian number in `bytes`.
pub(crate) fn number(bytes: &[u8]) -> usize {
    bytes.iter().fold(0, |number, byte| number << 8 | usize::from(*byte))
}

/// Returns as much of a text as a reader needs to identify it.
pub(crate) fn beginning(bytes: &[u8]) -> String {
    let text: String = String::from_utf8_lossy(bytes).chars().filter(|c| !c.is_control()).take(60).collect();
    text.trim().to_owned()
}
