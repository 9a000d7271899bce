//! memcached: every command is a message with its value, and so is every reply.
//!
//! <https://github.com/memcached/memcached/blob/master/doc/protocol.txt>

use crate::servers::relay::fault::Way;
use crate::servers::relay::wire::{Unit, Wire, beginning};

/// A connection to memcached in its text protocol.
pub(crate) struct Memcached;

impl Wire for Memcached {
    fn next(&mut self, way: Way, bytes: &[u8]) -> Option<Unit> {
        let length = match way {
            Way::Request => command(bytes)?,
            Way::Answer => reply(bytes)?,
        };
        Some(Unit::message(length, beginning(&bytes[..length])))
    }
}

/// Returns the words of the line that begins at `at`, and the start of the next line.
fn line(bytes: &[u8], at: usize) -> Option<(Vec<String>, usize)> {
    let end = at + bytes.get(at..)?.iter().position(|byte| *byte == b'\n')?;
    let text = String::from_utf8_lossy(&bytes[at..end]).trim_end().to_owned();
    Some((text.split(' ').map(str::to_owned).collect(), end + 1))
}

/// Returns the end of the value that begins at `at`. `word` is its length.
fn value(bytes: &[u8], at: usize, word: Option<&String>) -> Option<usize> {
    let length: usize = word.and_then(|word| word.parse().ok()).unwrap_or(0);
    (bytes.len() >= at + length + 2).then_some(at + length + 2)
}

fn command(bytes: &[u8]) -> Option<usize> {
    let (words, end) = line(bytes, 0)?;
    if ["set", "add", "cas"].contains(&words[0].as_str()) {
        value(bytes, end, words.get(4))
    } else {
        Some(end)
    }
}

fn reply(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        let (words, end) = line(bytes, at)?;
        at = match words[0].as_str() {
            "VALUE" => value(bytes, end, words.get(3))?,
            "STAT" => end,
            word if word.starts_with("key=") => end,
            _ => return Some(end),
        };
    }
}
