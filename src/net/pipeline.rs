//! A connection that sends requests without waiting for earlier answers. Answers come in the order of requests.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{fmt, io};

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot, watch};

use super::fault::{Fault, FaultResult};
use super::tls::Stream;

/// The format of a service's replies.
pub trait Protocol: Send + 'static {
    /// One reply.
    type Reply: Send + 'static;

    /// Takes the next whole reply out of `buffer`. After an error the connection is unusable.
    fn next(&mut self, buffer: &mut BytesMut) -> FaultResult<Option<Self::Reply>>;

    /// Records the server's notices about itself, and returns a reply to a request.
    fn sort(&mut self, reply: Self::Reply) -> Option<Self::Reply>;

    /// Returns the fault that ends the connection after `reply`, if it does. `is_last` is whether `reply` is the last
    /// one to its request.
    fn ends(&self, reply: &Self::Reply, is_last: bool) -> Option<Fault>;

    /// Returns the fault that ends the connection after a reply without a request, if it does.
    fn unasked(&self, reply: Self::Reply) -> Option<Fault>;

    /// Returns the fault of a connection that broke, or was closed.
    fn broken(error: &io::Error) -> Fault;
}

/// A request, and its replies so far.
struct Due<R> {
    bytes: Vec<u8>,
    missing: usize,
    replies: Vec<R>,
    answer: oneshot::Sender<Vec<R>>,
}

/// The number of pipelines that this process has opened.
static MADE: AtomicU64 = AtomicU64::new(0);

/// A connection. Dropping it closes the connection; the server may still execute requests in flight.
pub struct Pipeline<P: Protocol> {
    orders: mpsc::UnboundedSender<Due<P::Reply>>,
    end: watch::Receiver<Option<Fault>>,
    /// The server, without secrets.
    pub peer: String,
    /// Its number within this process.
    pub number: u64,
}

impl<P: Protocol> fmt::Debug for Pipeline<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Connection({})", self.peer)
    }
}

impl<P: Protocol> Pipeline<P> {
    /// Takes over `stream`, which leads to `peer`, and calls `protocol` with the number of the connection. Needs a
    /// running tokio runtime.
    pub fn over(protocol: impl FnOnce(u64) -> P, stream: Box<dyn Stream>, peer: String) -> Self {
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let protocol = protocol(number);
        let (orders, received) = mpsc::unbounded_channel();
        let (ended, end) = watch::channel(None);
        tokio::spawn(async move {
            let mut traffic = Traffic { protocol, due: VecDeque::new(), out: BytesMut::new(), received };
            let fault = traffic.run(stream).await;
            // Before the pending answers are dropped with the traffic: their callers then ask for the fault.
            ended.send_replace(Some(fault));
        });
        Self { orders, end, peer, number }
    }

    /// Sends `bytes` now and waits for `replies` replies. Dropping the future does not unsend them.
    ///
    /// Errors: why the connection has ended.
    pub fn exchange(
        &self,
        bytes: Vec<u8>,
        replies: usize,
    ) -> impl Future<Output = FaultResult<Vec<P::Reply>>> {
        let (answer, answered) = oneshot::channel();
        // If the task has ended, the sender of the answer is dropped here.
        let _ = self.orders.send(Due { bytes, missing: replies, replies: Vec::new(), answer });
        async { answered.await.map_err(|_| self.why()) }
    }

    fn why(&self) -> Fault {
        self.end.borrow().clone().unwrap_or_else(closed::<P>)
    }

    /// Returns whether the connection has not ended yet, as far as this client knows.
    pub fn is_open(&self) -> bool {
        self.end.borrow().is_none()
    }

    /// Completes when the connection has ended.
    pub async fn ended(&self) {
        // An error means that the task is gone, which is an end, too.
        let _ = self.end.clone().wait_for(Option::is_some).await;
    }
}

fn closed<P: Protocol>() -> Fault {
    P::broken(&io::ErrorKind::UnexpectedEof.into())
}

struct Traffic<P: Protocol> {
    protocol: P,
    due: VecDeque<Due<P::Reply>>,
    out: BytesMut,
    received: mpsc::UnboundedReceiver<Due<P::Reply>>,
}

impl<P: Protocol> Traffic<P> {
    /// Serves the connection until it ends, and returns why it did.
    async fn run(&mut self, stream: Box<dyn Stream>) -> Fault {
        let (mut from, mut to) = tokio::io::split(stream);
        let mut buffer = BytesMut::with_capacity(4096);
        // A server that closes at once may have said why before the request failed.
        let mut unsent = None;
        loop {
            tokio::select! {
                biased;
                order = self.received.recv() => match order {
                    // If the caller has gone, the request need not be sent.
                    Some(order) if order.answer.is_closed() => {}
                    Some(order) => {
                        self.out.extend_from_slice(&order.bytes);
                        self.due.push_back(order);
                    }
                    None => return closed::<P>(),
                },
                sent = to.write_buf(&mut self.out), if !self.out.is_empty() && unsent.is_none() => {
                    // TLS holds back data until it is flushed.
                    let flushed = match sent {
                        Ok(_) if self.out.is_empty() => to.flush().await,
                        other => other.map(drop),
                    };
                    unsent = flushed.err().map(|error| P::broken(&error));
                }
                read = from.read_buf(&mut buffer) => match read {
                    Ok(0) => return unsent.unwrap_or_else(closed::<P>),
                    Ok(_) => loop {
                        match self.protocol.next(&mut buffer) {
                            Ok(Some(reply)) => if let Some(fault) = self.give(reply) {
                                return fault;
                            },
                            Ok(None) => break,
                            Err(fault) => return fault,
                        }
                    },
                    Err(error) => return unsent.unwrap_or_else(|| P::broken(&error)),
                },
            }
        }
    }

    /// Passes a reply to its request. Returns the fault that ends the connection, if it does.
    fn give(&mut self, reply: P::Reply) -> Option<Fault> {
        let reply = self.protocol.sort(reply)?;
        let Some(due) = self.due.front_mut() else { return self.protocol.unasked(reply) };
        due.missing -= 1;
        let is_last = due.missing == 0;
        let end = self.protocol.ends(&reply, is_last);
        due.replies.push(reply);
        if is_last && let Some(due) = self.due.pop_front() {
            // The caller may have gone.
            let _ = due.answer.send(due.replies);
        }
        end
    }
}
