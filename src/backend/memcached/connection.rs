//! The protocol of memcached on a connection.

use std::io;

use bytes::BytesMut;

use super::fault;
use super::wire::{Decoder, Reply};
use crate::lock::ErrorKind;
use crate::net::connector::breach;
use crate::net::fault::Fault;
use crate::net::pipeline::{Pipeline, Protocol};

/// A connection to a server.
pub(super) type Connection = Pipeline<Text>;

/// The text protocol.
pub(super) struct Text(Decoder);

impl Text {
    /// Creates the protocol state of the connection with this number.
    pub(super) fn of(connection: u64) -> Self {
        Self(Decoder::of(connection))
    }
}

fn refusal(reply: &Reply) -> Option<Fault> {
    match reply {
        Reply::Line(line) => fault::of(line),
        _ => None,
    }
}

impl Protocol for Text {
    type Reply = Reply;

    fn next(&mut self, buffer: &mut BytesMut) -> Result<Option<Reply>, Fault> {
        self.0.next(buffer)
    }

    fn sort(&mut self, reply: Reply) -> Option<Reply> {
        Some(reply)
    }

    /// After a command that the server did not understand, it may take the data of that command for further ones. A
    /// server that demands a login answers only the first of several commands.
    fn ends(&self, reply: &Reply, is_last: bool) -> Option<Fault> {
        refusal(reply).filter(|fault| match fault.kind {
            ErrorKind::Corrupt => true,
            ErrorKind::Denied => !is_last,
            _ => false,
        })
    }

    fn unasked(&self, reply: Reply) -> Option<Fault> {
        Some(refusal(&reply).unwrap_or_else(|| fault::nonsense(&format!("{reply:?}"))))
    }

    fn closed(why: &'static str) -> Fault {
        Fault::spent(why)
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
