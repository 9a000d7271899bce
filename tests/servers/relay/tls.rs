//! TLS: the content of messages cannot be read, so each record counts as one.

use super::fault::Way;
use super::wire::{Unit, Wire, number};

/// The kind, the version and the length of a record.
const HEAD: usize = 5;

/// An encrypted connection.
pub(crate) struct Tls;

impl Wire for Tls {
    fn next(&mut self, _: Way, bytes: &[u8]) -> Option<Unit> {
        let length = HEAD + number(bytes.get(3..HEAD)?);
        (bytes.len() >= length).then(|| Unit::message(length, format!("a record of {length} bytes")))
    }
}
