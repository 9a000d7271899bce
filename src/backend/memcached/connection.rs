//! How memcached answers over a connection.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::BytesMut;

use super::fault;
use super::wire::{Decoder, Reply};
use crate::backend::connector::{Stream, breach};
use crate::backend::fault::{Fault, FaultResult};
use crate::backend::pipeline::{Pipeline, Protocol};
use crate::lock::ErrorKind;

/// How many connections this process has made.
static MADE: AtomicU64 = AtomicU64::new(0);

/// A connection to a server. It closes when it is dropped; what is on its way then may still be done.
#[derive(Debug)]
pub(super) struct Connection {
    pipeline: Pipeline<Text>,
    /// Which one of this process it is.
    pub(super) number: u64,
}

impl Connection {
    /// Takes over `stream`, which leads to `peer`.
    pub(super) fn over(stream: Box<dyn Stream>, peer: String) -> Self {
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        Self { pipeline: Pipeline::over(Text(Decoder::of(number)), stream, peer), number }
    }

    /// Where it leads, without secrets.
    pub(super) fn peer(&self) -> &str {
        &self.pipeline.peer
    }

    /// Sends `bytes` now and waits for so many replies. Dropping the future does not unsend them.
    pub(super) fn exchange(
        &self,
        bytes: Vec<u8>,
        replies: usize,
    ) -> impl Future<Output = FaultResult<Vec<Reply>>> {
        self.pipeline.exchange(bytes, replies)
    }

    pub(super) fn is_open(&self) -> bool {
        self.pipeline.is_open()
    }
}

/// The text protocol.
struct Text(Decoder);

fn refusal(reply: &Reply) -> Option<Fault> {
    match reply {
        Reply::Line(line) => fault::of(line),
        _ => None,
    }
}

impl Protocol for Text {
    type Reply = Reply;
    type Fault = Fault;

    fn next(&mut self, buffer: &mut BytesMut) -> Result<Option<Reply>, Fault> {
        self.0.next(buffer)
    }

    fn sort(&mut self, reply: Reply) -> Option<Reply> {
        Some(reply)
    }

    /// After a command that the server did not understand it may take what belongs to that for others, and one that lets nobody
    /// in answers only the first of several.
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

    fn rehearse(&self) {}

    fn closed(why: &'static str) -> Fault {
        Fault::unavailable(why)
    }

    fn broken(error: &io::Error) -> Fault {
        breach(error)
    }
}
