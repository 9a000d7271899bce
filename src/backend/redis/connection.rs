//! One connection, with a count of the server's notifications.

use std::future::pending;
use std::io;
use std::sync::{Arc, OnceLock};

use bytes::BytesMut;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use redis::{PushKind, Value, ValueCodec};
use tokio::sync::watch;
use tokio_util::codec::Decoder;

use super::fault::{self, HUNG_UP};
use crate::lock::ErrorKind;
use crate::net::fault::{Fault, FaultResult};
use crate::net::pipeline::{Pipeline, Protocol};
use crate::net::tls::{Stream, breach};

/// A connection. Dropping it closes it; the server may still execute requests in flight.
#[derive(Debug)]
pub(super) struct Connection {
    pipeline: Pipeline<Resp>,
    notified: watch::Sender<u64>,
    /// Whether the server reports changed keys; unset before the first request for that.
    pub(super) can_notify: OnceLock<bool>,
}

impl Connection {
    /// Takes over `stream`, which leads to `peer`.
    pub(super) fn over(stream: Box<dyn Stream>, peer: String) -> Self {
        let notified = watch::Sender::new(0);
        let resp = Resp { codec: ValueCodec::default(), tell: notified.clone() };
        Self { pipeline: Pipeline::over(|_| resp, stream, peer), notified, can_notify: OnceLock::new() }
    }

    /// Returns the server, without secrets.
    pub(super) fn peer(&self) -> &str {
        &self.pipeline.peer
    }

    /// Sends `bytes` now and waits for `replies` replies. Dropping the future does not unsend them.
    pub(super) fn exchange(
        &self,
        bytes: Vec<u8>,
        replies: usize,
    ) -> impl Future<Output = FaultResult<Vec<Value>>> {
        self.pipeline.exchange(bytes, replies)
    }

    pub(super) fn is_open(&self) -> bool {
        self.pipeline.is_open()
    }

    /// Records whether the server reports changed keys, and returns it.
    pub(super) fn can_notify(&self, tells: bool) -> bool {
        *self.can_notify.get_or_init(|| tells)
    }

    /// Returns the number of notifications of changed keys.
    pub(super) fn notified_count(&self) -> u64 {
        *self.notified.borrow()
    }

    /// Wakes all listeners of this connection: the server does not report the client's own changes.
    pub(super) fn nudge(&self) {
        self.notified.send_modify(|notified| *notified += 1);
    }
}

/// A connection that reports changes, and its number of notifications at some moment.
#[derive(Clone, Debug)]
pub(super) struct Heard {
    pub(super) connection: Arc<Connection>,
    pub(super) count: u64,
}

impl Heard {
    /// Completes when there are more notifications, or the connection has ended.
    pub(super) async fn news(&self) {
        let mut count = self.connection.notified.subscribe();
        tokio::select! {
            _ = count.wait_for(|now| *now != self.count) => {}
            () = self.connection.pipeline.ended() => {}
        }
    }
}

/// Completes when one of the connections has news; never without a connection.
pub(super) async fn any_news(heard: &[Heard]) {
    let mut all: FuturesUnordered<_> = heard.iter().map(Heard::news).collect();
    if all.next().await.is_none() {
        pending::<()>().await;
    }
}

/// The protocol state.
struct Resp {
    codec: ValueCodec,
    tell: watch::Sender<u64>,
}

impl Protocol for Resp {
    type Reply = Value;

    fn next(&mut self, buffer: &mut BytesMut) -> FaultResult<Option<Value>> {
        self.codec.decode(buffer).map_err(|error| fault::nonsense(error.category()))
    }

    fn sort(&mut self, reply: Value) -> Option<Value> {
        let Value::Push { kind, .. } = reply else { return Some(reply) };
        if kind == PushKind::Invalidate {
            self.tell.send_modify(|notified| *notified += 1);
        }
        None
    }

    fn ends(&self, reply: &Value, is_last: bool) -> Option<Fault> {
        let Value::ServerError(error) = reply else { return None };
        // The server closes the connection of a client without a login if the next request is long.
        let is_refused = !is_last && fault::is_unknown(error);
        let fault = fault::of(error);
        (is_refused || fault.kind == ErrorKind::Full).then_some(fault)
    }

    fn unasked(&self, reply: Value) -> Option<Fault> {
        // The server has no room for another client, and closes the connection.
        if let Value::ServerError(error) = reply { Some(fault::of(&error)) } else { None }
    }

    fn broken(error: &io::Error) -> Fault {
        use io::ErrorKind as E;
        let fault = breach(error);
        let is_closed = matches!(error.kind(), E::ConnectionReset | E::BrokenPipe | E::UnexpectedEof);
        if is_closed && fault.is_transient() { fault.coded(HUNG_UP) } else { fault }
    }
}
