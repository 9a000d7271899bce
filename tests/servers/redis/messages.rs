//! Redis: every value is a message. Exceptions are commands that only prepare the next one, their answers, and an empty
//! line.
//!
//! <https://redis.io/docs/latest/develop/reference/protocol-spec/>

use crate::servers::relay::fault::Way;
use crate::servers::relay::wire::{Unit, Wire, beginning};

/// A connection to Redis.
pub(crate) struct Resp;

impl Wire for Resp {
    fn next(&mut self, way: Way, bytes: &[u8]) -> Option<Unit> {
        let length = value(bytes, 0)?;
        let what = match way {
            Way::Request => words(&bytes[..length]),
            Way::Answer => beginning(&bytes[..length]),
        };
        if ["CLIENT CACHING YES", "+OK", ""].contains(&what.as_str()) {
            return Some(Unit::other(length));
        }
        Some(Unit::message(length, what))
    }
}

/// Returns the line that begins at `at`, and the start of the next one.
fn line(bytes: &[u8], at: usize) -> Option<(&str, usize)> {
    let end = at + bytes.get(at..)?.windows(2).position(|two| two == b"\r\n")?;
    let said = bytes.get(at + 1..end).unwrap_or_default();
    Some((std::str::from_utf8(said).unwrap_or_default(), end + 2))
}

/// Returns the end of the value that begins at `at`.
fn value(bytes: &[u8], at: usize) -> Option<usize> {
    let (said, mut end) = line(bytes, at)?;
    // A null has the length -1.
    let number = said.parse::<usize>().unwrap_or(0);
    match bytes[at] {
        b'$' | b'=' | b'!' if !said.starts_with('-') => {
            (bytes.len() >= end + number + 2).then_some(end + number + 2)
        }
        b'*' | b'~' | b'>' | b'%' | b'|' => {
            let of_each = if matches!(bytes[at], b'%' | b'|') { 2 } else { 1 };
            for _ in 0..number * of_each {
                end = value(bytes, end)?;
            }
            // An attribute precedes its value.
            if bytes[at] == b'|' { value(bytes, end) } else { Some(end) }
        }
        _ => Some(end),
    }
}

/// Returns the command and the first of its words that identify it.
fn words(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let words = text.split("\r\n").filter(|word| !word.starts_with(['*', '$']) && !word.is_empty());
    words.take(5).map(|word| word.chars().take(20).collect::<String>()).collect::<Vec<_>>().join(" ")
}
