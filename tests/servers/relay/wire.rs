//! Where the messages of a connection begin and end.

use super::fault::Way;

/// What stands at the beginning of what was received.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Unit {
    pub(crate) length: usize,
    /// What message it is; `None` if it is no message of its own: a part of one, or of the connection.
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

/// Reads one connection, both ways.
pub(crate) trait Wire: Send {
    /// The unit with which `bytes`, which go that way, begin; `None` if not all of it is there.
    fn next(&mut self, way: Way, bytes: &[u8]) -> Option<Unit>;
}

/// The number in `bytes`, the highest first.
pub(crate) fn number(bytes: &[u8]) -> usize {
    bytes.iter().fold(0, |number, byte| number << 8 | usize::from(*byte))
}

/// So much of a text that somebody who reads it knows which it is.
pub(crate) fn beginning(bytes: &[u8]) -> String {
    let text: String = String::from_utf8_lossy(bytes).chars().filter(|c| !c.is_control()).take(60).collect();
    text.trim().to_owned()
}
