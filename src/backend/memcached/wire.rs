//! Replies of the text protocol.
//!
//! <https://github.com/memcached/memcached/blob/master/doc/protocol.txt>

use bytes::{Buf, BytesMut};

use super::fault::nonsense;
use crate::backend::facts::Properties;
use crate::net::fault::{Fault, FaultResult};
use crate::queue::document::{Item, Version};

/// The longest line of a reply.
const LONGEST_LINE: usize = 16 * 1024;

/// The reply to one command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Reply {
    /// One line, such as `STORED` or a number.
    Line(String),
    /// The found items, each with its key; also empty for an empty list of stats or keys.
    Items(Vec<(Vec<u8>, Item)>),
    /// Facts about the server.
    Stats(Vec<(String, String)>),
    /// Lines that begin with `key=`.
    Keys(Vec<String>),
}

impl Reply {
    /// Returns the line, or the error that it reports.
    pub(super) fn line(self) -> FaultResult<String> {
        match self {
            Self::Line(line) => match super::fault::of(&line) {
                Some(fault) => Err(fault),
                None => Ok(line),
            },
            other => Err(nonsense(&format!("{other:?}"))),
        }
    }

    /// Returns the found items.
    pub(super) fn items(self) -> FaultResult<Vec<(Vec<u8>, Item)>> {
        match self {
            Self::Items(items) => Ok(items),
            Self::Line(line) => Err(super::fault::of(&line).unwrap_or_else(|| nonsense(&line))),
            other => Err(nonsense(&format!("{other:?}"))),
        }
    }

    /// Returns the requested item.
    pub(super) fn item(self) -> FaultResult<Option<Item>> {
        Ok(self.items()?.into_iter().next().map(|(_, item)| item))
    }

    /// Returns the server's properties; empty for another reply.
    pub(super) fn stats(self) -> Properties {
        if let Self::Stats(stats) = self { stats.into_iter().collect() } else { Properties::default() }
    }
}

/// Parses replies.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    /// The number of their connection.
    connection: u64,
    items: Vec<(Vec<u8>, Item)>,
    stats: Vec<(String, String)>,
    keys: Vec<String>,
}

impl Decoder {
    /// Creates a decoder for the connection with this number.
    pub(super) fn of(connection: u64) -> Self {
        Self { connection, ..Self::default() }
    }

    /// Returns the next reply, if it is complete.
    ///
    /// Errors: bytes that are not memcached's.
    pub(super) fn next(&mut self, bytes: &mut BytesMut) -> FaultResult<Option<Reply>> {
        loop {
            // The lines of a list of keys end without a carriage return.
            let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else {
                let begin = String::from_utf8_lossy(&bytes[..bytes.len().min(60)]);
                return if bytes.len() > LONGEST_LINE { Err(nonsense(&begin)) } else { Ok(None) };
            };
            if bytes.starts_with(b"VALUE ") {
                if !self.item(bytes, end + 1)? {
                    return Ok(None);
                }
                continue;
            }
            let line = String::from_utf8_lossy(&bytes[..end]).trim_end_matches('\r').to_owned();
            bytes.advance(end + 1);
            if let Some(stat) = line.strip_prefix("STAT ") {
                let (name, value) = stat.split_once(' ').unwrap_or((stat, ""));
                self.stats.push((name.to_owned(), value.to_owned()));
            } else if line.starts_with("key=") {
                self.keys.push(line);
            } else if line == "END" {
                return Ok(Some(self.end()));
            } else {
                return Ok(Some(Reply::Line(line)));
            }
        }
    }

    fn end(&mut self) -> Reply {
        let (items, stats, keys) = (
            std::mem::take(&mut self.items),
            std::mem::take(&mut self.stats),
            std::mem::take(&mut self.keys),
        );
        if !stats.is_empty() {
            Reply::Stats(stats)
        } else if !keys.is_empty() {
            Reply::Keys(keys)
        } else {
            Reply::Items(items)
        }
    }

    /// Parses `VALUE key flags length [cas]` and the data after it, which begins at `begin`. Returns whether the data
    /// was complete.
    fn item(&mut self, bytes: &mut BytesMut, begin: usize) -> FaultResult<bool> {
        let wrong = |line: &[u8]| -> Fault { nonsense(&String::from_utf8_lossy(line)) };
        let line = bytes[..begin].trim_ascii_end().to_vec();
        let mut words = line.split(|byte| *byte == b' ').skip(1);
        let key = words.next().ok_or_else(|| wrong(&line))?.to_vec();
        let mut number = || std::str::from_utf8(words.next()?).ok();
        let _flags = number();
        let length: usize = number().and_then(|text| text.parse().ok()).ok_or_else(|| wrong(&line))?;
        let version = Version { write: number().unwrap_or("").to_owned(), connection: self.connection };
        if bytes.len() < begin + length + 2 {
            return Ok(false);
        }
        let value = bytes[begin..begin + length].to_vec();
        if bytes[begin + length..begin + length + 2] != *b"\r\n" {
            return Err(wrong(&line));
        }
        bytes.advance(begin + length + 2);
        self.items.push((key, Item { bytes: value, version }));
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the replies in `text`, which arrives in pieces of `piece` bytes.
    fn decode(text: &[u8], piece: usize) -> FaultResult<Vec<Reply>> {
        let (mut decoder, mut bytes, mut replies) = (Decoder::of(5), BytesMut::new(), Vec::new());
        for piece in text.chunks(piece) {
            bytes.extend_from_slice(piece);
            while let Some(reply) = decoder.next(&mut bytes)? {
                replies.push(reply);
            }
        }
        assert!(bytes.is_empty(), "{bytes:?}");
        Ok(replies)
    }

    #[test]
    fn replies_are_understood_however_they_come() {
        let text = b"STORED\r\nVALUE k 0 4 17\r\na\r\nb\r\nVALUE \xff 3 0\r\n\r\nEND\r\nEND\r\n12\r\n\
                     STAT pid 7\r\nSTAT version 1.6 x\r\nEND\r\nkey=a%20b exp=-1\nkey=c exp=-1\nEND\r\nEXISTS\r\n";
        let item = |bytes: &[u8], write: &str| Item {
            bytes: bytes.to_vec(),
            version: Version { write: write.into(), connection: 5 },
        };
        let stat = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let expected = [
            Reply::Line("STORED".into()),
            Reply::Items(vec![(b"k".to_vec(), item(b"a\r\nb", "17")), (vec![0xff], item(b"", ""))]),
            Reply::Items(vec![]),
            Reply::Line("12".into()),
            Reply::Stats(vec![stat("pid", "7"), stat("version", "1.6 x")]),
            Reply::Keys(vec!["key=a%20b exp=-1".into(), "key=c exp=-1".into()]),
            Reply::Line("EXISTS".into()),
        ];
        for piece in [1, 2, 7, 1000] {
            assert_eq!(decode(text, piece), Ok(expected.to_vec()), "in pieces of {piece}");
        }
    }

    #[test]
    fn malformed_reply_is_an_error() {
        for text in [b"VALUE k 0 x\r\n" as &[u8], b"VALUE k 0 1 2\r\nabc\r\n", &vec![b'x'; 20_000]] {
            assert!(decode(text, 1000).is_err(), "{:?}", String::from_utf8_lossy(&text[..10]));
        }
    }
}
