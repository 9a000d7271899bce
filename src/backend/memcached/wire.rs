//! The text protocol on a connection.
//!
//! <https://github.com/memcached/memcached/blob/master/doc/protocol.txt>

use std::io;

use bytes::{Buf, BytesMut};

use super::fault::{self, nonsense};
use crate::backend::facts::Properties;
use crate::lock::ErrorKind;
use crate::net::fault::{Fault, FaultResult};
use crate::net::pipeline::{Pipeline, Protocol};
use crate::net::tls::breach;
use crate::queue::document::{Stored, Version};

/// The longest line of a reply.
const LONGEST_LINE: usize = 16 * 1024;

/// A connection to a server.
pub(super) type Connection = Pipeline<Text>;

/// The reply to one command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Reply {
    /// One line, such as `STORED` or a number.
    Line(String),
    /// The found items, each with its key; also empty for an empty list.
    Items(Vec<(Vec<u8>, Stored)>),
    /// Lines that begin with `STAT` or `key=`.
    List(Vec<String>),
}

impl Reply {
    /// Returns the line, or the error that it reports.
    pub(super) fn line(self) -> FaultResult<String> {
        match self {
            Self::Line(line) => fault::of(&line).map_or(Ok(line), Err),
            other => Err(nonsense(&format!("{other:?}"))),
        }
    }

    /// Returns the found items.
    pub(super) fn items(self) -> FaultResult<Vec<(Vec<u8>, Stored)>> {
        match self {
            Self::Items(items) => Ok(items),
            other => Err(nonsense(&other.line()?)),
        }
    }

    /// Returns the requested item.
    pub(super) fn item(self) -> FaultResult<Option<Stored>> {
        Ok(self.items()?.into_iter().next().map(|(_, item)| item))
    }

    /// Returns the server's properties; empty for another reply.
    pub(super) fn stats(self) -> Properties {
        let Self::List(lines) = self else { return Properties::default() };
        let stat = |line: &String| {
            let (name, value) = line.strip_prefix("STAT ")?.split_once(' ')?;
            Some((name.to_owned(), value.to_owned()))
        };
        lines.iter().filter_map(stat).collect()
    }
}

/// The state of the protocol on one connection.
#[derive(Debug)]
pub(super) struct Text {
    /// The number of the connection.
    connection: u64,
    items: Vec<(Vec<u8>, Stored)>,
    lines: Vec<String>,
}

impl Text {
    /// Creates the state for the connection with this number.
    pub(super) fn of(connection: u64) -> Self {
        Self { connection, items: Vec::new(), lines: Vec::new() }
    }

    /// Parses `VALUE key flags length [cas]` and the data after it, which begins at `begin`. Returns whether the data
    /// was complete.
    fn item(&mut self, bytes: &mut BytesMut, begin: usize) -> FaultResult<bool> {
        let line = bytes[..begin].trim_ascii_end().to_vec();
        let wrong = || nonsense(&String::from_utf8_lossy(&line));
        let mut words = line.split(|byte| *byte == b' ').skip(1);
        let key = words.next().ok_or_else(wrong)?.to_vec();
        let mut rest = words.skip(1).map(String::from_utf8_lossy);
        let length: usize = rest.next().and_then(|text| text.parse().ok()).ok_or_else(wrong)?;
        let write = rest.next().unwrap_or_default().into_owned();
        if bytes.len() < begin + length + 2 {
            return Ok(false);
        }
        let value = bytes[begin..begin + length].to_vec();
        if bytes[begin + length..begin + length + 2] != *b"\r\n" {
            return Err(wrong());
        }
        bytes.advance(begin + length + 2);
        let version = Version { write, connection: self.connection };
        self.items.push((key, Stored { bytes: value, version }));
        Ok(true)
    }
}

/// Returns the error that `reply` reports, if it does.
pub(super) fn refusal(reply: &Reply) -> Option<Fault> {
    if let Reply::Line(line) = reply { fault::of(line) } else { None }
}

impl Protocol for Text {
    type Reply = Reply;

    fn next(&mut self, bytes: &mut BytesMut) -> FaultResult<Option<Reply>> {
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
            if line == "END" {
                let (items, lines) = (std::mem::take(&mut self.items), std::mem::take(&mut self.lines));
                return Ok(Some(if lines.is_empty() { Reply::Items(items) } else { Reply::List(lines) }));
            }
            if !line.starts_with("STAT ") && !line.starts_with("key=") {
                return Ok(Some(Reply::Line(line)));
            }
            self.lines.push(line);
        }
    }

    fn sort(&mut self, reply: Reply) -> Option<Reply> {
        Some(reply)
    }

    /// After a command that the server did not understand, it may take the data of that command for further ones. A
    /// server that demands a login answers only the first of several commands.
    fn ends(&self, reply: &Reply, is_last: bool) -> Option<Fault> {
        refusal(reply)
            .filter(|fault| fault.kind == ErrorKind::Corrupt || fault.kind == ErrorKind::Denied && !is_last)
    }

    fn unasked(&self, reply: Reply) -> Option<Fault> {
        Some(refusal(&reply).unwrap_or_else(|| nonsense(&format!("{reply:?}"))))
    }

    fn broken(error: &io::Error) -> Fault {
        breach(error)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::TcpListener;
    use std::time::Duration;

    use tokio::net::TcpStream;

    use super::*;

    /// Returns the replies in `text`, which arrives in pieces of `piece` bytes.
    fn decode(text: &[u8], piece: usize) -> FaultResult<Vec<Reply>> {
        let (mut decoder, mut bytes, mut replies) = (Text::of(5), BytesMut::new(), Vec::new());
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
        let item = |bytes: &[u8], write: &str| Stored {
            bytes: bytes.to_vec(),
            version: Version { write: write.into(), connection: 5 },
        };
        let expected = [
            Reply::Line("STORED".into()),
            Reply::Items(vec![(b"k".to_vec(), item(b"a\r\nb", "17")), (vec![0xff], item(b"", ""))]),
            Reply::Items(vec![]),
            Reply::Line("12".into()),
            Reply::List(vec!["STAT pid 7".into(), "STAT version 1.6 x".into()]),
            Reply::List(vec!["key=a%20b exp=-1".into(), "key=c exp=-1".into()]),
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

    /// The request then finds a connection that was reset.
    #[tokio::test]
    async fn reason_of_a_closed_connection_is_read_after_a_reset() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let stream = TcpStream::connect(address).await.expect("connects");
        let (mut accepted, _) = listener.accept().expect("a connection");
        accepted.write_all(b"ERROR Too many open connections\r\n").expect("written");
        rustix::net::sockopt::set_socket_linger(&accepted, Some(Duration::ZERO)).expect("set");
        drop(accepted);
        let connection = Connection::over(Text::of, Box::new(stream), address.to_string());
        let replies = connection.exchange(b"version\r\n".to_vec(), 1).await.expect("an answer");
        let [Reply::Line(line)] = replies.as_slice() else { panic!("{replies:?}") };
        assert_eq!(line, "ERROR Too many open connections");
    }
}
