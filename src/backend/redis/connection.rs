//! One connection, and what the server says over it unasked, which is counted.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::Poll;

use bytes::BytesMut;
use redis::{PushKind, Value, ValueCodec};
use tokio::sync::watch;
use tokio_util::codec::Decoder;

use super::fault::{self, HUNG_UP};
use crate::lock::ErrorKind;
use crate::net::connector::{Stream, breach};
use crate::net::fault::{Fault, FaultResult};
use crate::net::pipeline::{Pipeline, Protocol};

/// A connection. It closes when it is dropped; what is on its way then may still be done.
#[derive(Debug)]
pub(super) struct Connection {
    pipeline: Pipeline<Resp>,
    notified: watch::Sender<u64>,
    /// Whether the server tells of keys that change: not asked yet, or its answer.
    pub(super) can_notify: OnceLock<bool>,
}

impl Connection {
    /// Takes over `stream`, which leads to `peer`.
    pub(super) fn over(stream: Box<dyn Stream>, peer: String) -> Self {
        let notified = watch::Sender::new(0);
        let resp = Resp { codec: ValueCodec::default(), tell: notified.clone() };
        Self { pipeline: Pipeline::over(|_| resp, stream, peer), notified, can_notify: OnceLock::new() }
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
    ) -> impl Future<Output = FaultResult<Vec<Value>>> {
        self.pipeline.exchange(bytes, replies)
    }

    pub(super) fn is_open(&self) -> bool {
        self.pipeline.is_open()
    }

    /// Takes what it answered to HELLO 3 and to CLIENT TRACKING. Without the former it agrees to the latter and tells nothing.
    pub(super) fn answered(&self, hello: Option<&Value>, tracking: Option<&Value>) {
        let tells = matches!(hello, Some(Value::Map(_))) && tracking == Some(&Value::Okay);
        // Set once; another claim of this client may have asked meanwhile, and the answer is the same.
        let _ = self.can_notify.set(tells);
    }

    /// Whether the server has said that it tells of keys that change.
    pub(super) fn tells(&self) -> bool {
        self.can_notify.get() == Some(&true)
    }

    /// How often the server has told of a changed key.
    pub(super) fn notified_count(&self) -> u64 {
        *self.notified.borrow()
    }

    /// Has everybody look who listens on this connection: the server tells it nothing of what it did itself.
    pub(super) fn nudge(&self) {
        self.notified.send_modify(|notified| *notified += 1);
    }

    /// Completes when the server has told more often than `notified`, or the connection has ended.
    pub(super) async fn notified_after(&self, notified: u64) {
        let mut count = self.notified.subscribe();
        tokio::select! {
            _ = count.wait_for(|now| *now != notified) => {}
            () = self.pipeline.ended() => {}
        }
    }
}

/// Completes when one of these has told more often than that, or has ended; never if there is none.
pub(super) async fn any_notified(notified: &[(Arc<Connection>, u64)]) {
    let mut all: Vec<Pin<Box<dyn Future<Output = ()> + Send + '_>>> = notified
        .iter()
        .map(|(connection, notified)| Box::pin(connection.notified_after(*notified)) as Pin<Box<_>>)
        .collect();
    poll_fn(|context| {
        let ready = all.iter_mut().any(|one| one.as_mut().poll(context).is_ready());
        if ready { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// The protocol.
struct Resp {
    codec: ValueCodec,
    tell: watch::Sender<u64>,
}

impl Protocol for Resp {
    type Reply = Value;
    type Fault = Fault;

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
        // It closes the connection of a client that it does not know if the next request is long.
        let is_refused = !is_last && fault::is_unknown(error);
        let fault = fault::of(error);
        (is_refused || fault.kind == ErrorKind::Full).then_some(fault)
    }

    fn unasked(&self, reply: Value) -> Option<Fault> {
        // It has no room for another client, and hangs up.
        if let Value::ServerError(error) = reply { Some(fault::of(&error)) } else { None }
    }

    fn closed(why: &'static str) -> Fault {
        Fault::spent(why).coded(HUNG_UP)
    }

    fn broken(error: &io::Error) -> Fault {
        use io::ErrorKind as E;
        let fault = breach(error);
        let is_closed = matches!(error.kind(), E::ConnectionReset | E::BrokenPipe | E::UnexpectedEof);
        if is_closed && fault.is_transient() { fault.coded(HUNG_UP) } else { fault }
    }
}
