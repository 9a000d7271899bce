//! `PostgreSQL`: a request ends with a Sync, or is a message that has an answer of its own. An answer ends with
//! `ReadyForQuery`. A notification is a message of its own.
//!
//! <https://www.postgresql.org/docs/current/protocol-message-formats.html>

use crate::servers::relay::fault::Way;
use crate::servers::relay::wire::{Unit, Wire, beginning, number};

/// The server answers a request for TLS or GSS with one byte.
const ENCRYPTION: [usize; 2] = [80_877_103, 80_877_104];

/// A connection to `PostgreSQL`.
#[derive(Default)]
pub(crate) struct Postgres {
    /// Whether the client has sent its startup message. From then on messages have a kind.
    has_begun: bool,
    asked_for_encryption: bool,
}

impl Wire for Postgres {
    fn next(&mut self, way: Way, bytes: &[u8]) -> Option<Unit> {
        match way {
            Way::Request if !self.has_begun => self.greeting(bytes),
            Way::Request => request(bytes),
            Way::Answer if self.asked_for_encryption => {
                bytes.first()?;
                self.asked_for_encryption = false;
                Some(Unit::message(1, "encryption"))
            }
            Way::Answer => answer(bytes),
        }
    }
}

impl Postgres {
    fn greeting(&mut self, bytes: &[u8]) -> Option<Unit> {
        let length = number(bytes.get(..4)?);
        let code = number(bytes.get(4..8)?);
        if bytes.len() < length {
            return None;
        }
        self.asked_for_encryption = ENCRYPTION.contains(&code);
        self.has_begun = !self.asked_for_encryption;
        Some(Unit::message(length, if self.has_begun { "who it is" } else { "encryption" }))
    }
}

/// Returns the end of the message at `at`, if all of it has arrived.
fn end(bytes: &[u8], at: usize) -> Option<usize> {
    let end = at + 1 + number(bytes.get(at + 1..at + 5)?);
    (bytes.len() >= end).then_some(end)
}

fn request(bytes: &[u8]) -> Option<Unit> {
    let (mut at, mut what) = (0, String::new());
    loop {
        let next = end(bytes, at)?;
        what.push_str(&beginning(&bytes[at + 5..next]));
        if matches!(bytes[at], b'S' | b'Q' | b'p' | b'X' | b'H') {
            return Some(Unit::message(next, format!("{} {what}", char::from(bytes[at]))));
        }
        at = next;
    }
}

fn answer(bytes: &[u8]) -> Option<Unit> {
    let first = end(bytes, 0)?;
    match bytes[0] {
        b'A' => return Some(Unit::message(first, format!("notification {}", beginning(&bytes[9..first])))),
        b'N' | b'S' => return Some(Unit::other(first)),
        // The authentication continues. 0 is its success, and 12 is the server's last message.
        b'R' if ![0, 12].contains(&number(&bytes[5..9])) => {
            return Some(Unit::message(first, "authentication"));
        }
        _ => {}
    }
    let mut at = 0;
    loop {
        let next = end(bytes, at)?;
        if bytes[at] == b'Z' {
            return Some(Unit::message(next, format!("{} to Z", char::from(bytes[0]))));
        }
        at = next;
    }
}
