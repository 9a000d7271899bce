//! One connection, with the server's notifications.

use std::future::pending;
use std::io;
use std::sync::OnceLock;

use bytes::BytesMut;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use redis::{PushKind, Value, ValueCodec};
use tokio::sync::watch;
use tokio_util::codec::Decoder;

use super::fault::{self, HUNG_UP};
use super::script::Call;
use crate::lock::ErrorKind;
use crate::net::fault::{Fault, FaultResult};
use crate::net::pipeline::{Pipeline, Protocol};
use crate::net::tls::{Stream, breach};

/// A connection. Dropping it closes it; the server may still execute requests in flight.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) pipeline: Pipeline<Resp>,
    notified: watch::Sender<()>,
    /// Whether the server reports changed keys; unset before the first request for that.
    pub(super) can_notify: OnceLock<bool>,
}

impl Connection {
    /// Takes over `stream`, which leads to `peer`.
    pub(super) fn over(stream: Box<dyn Stream>, peer: String) -> Self {
        let notified = watch::Sender::new(());
        let resp = Resp { codec: ValueCodec::default(), tell: notified.clone() };
        Self { pipeline: Pipeline::over(|_| resp, stream, peer), notified, can_notify: OnceLock::new() }
    }

    /// Sends `steps` now and waits for their replies; `whole` sends scripts as text. Dropping the future does not unsend
    /// them.
    pub(super) fn exchange(
        &self,
        steps: &[Call],
        whole: bool,
    ) -> impl Future<Output = FaultResult<Vec<Value>>> {
        let mut bytes = Vec::new();
        for step in steps {
            step.pack(whole, &mut bytes);
        }
        self.pipeline.exchange(bytes, steps.len())
    }

    /// Returns the notifications from now on.
    pub(super) fn heard(&self) -> Heard {
        Heard(self.notified.subscribe())
    }

    /// Wakes all listeners of this connection: the server does not report the client's own changes.
    pub(super) fn nudge(&self) {
        self.notified.send_replace(());
    }
}

/// The notifications over one connection since some moment.
#[derive(Clone, Debug)]
pub(super) struct Heard(watch::Receiver<()>);

impl Heard {
    /// Completes when there was a notification, or the connection has ended.
    pub(super) async fn news(&self) {
        // An error means that the connection is gone, too.
        let _ = self.0.clone().changed().await;
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
pub(super) struct Resp {
    codec: ValueCodec,
    tell: watch::Sender<()>,
}

impl Drop for Resp {
    fn drop(&mut self) {
        self.tell.send_replace(());
    }
}

impl Protocol for Resp {
    type Reply = Value;

    fn next(&mut self, buffer: &mut BytesMut) -> FaultResult<Option<Value>> {
        self.codec.decode(buffer).map_err(|error| fault::nonsense(error.category()))
    }

    fn sort(&mut self, reply: Value) -> Option<Value> {
        let Value::Push { kind, .. } = reply else { return Some(reply) };
        if kind == PushKind::Invalidate {
            self.tell.send_replace(());
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
        let fault = breach(error);
        if fault.is_transient() { fault.coded(HUNG_UP) } else { fault }
    }
}
