//! A connection over which requests go out at once and are answered in their order.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{fmt, io};

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use super::connector::Stream;

/// How a service answers.
pub trait Protocol: Send + 'static {
    /// One reply.
    type Reply: Send + 'static;
    /// What can go wrong.
    type Fault: Clone + Send + Sync + 'static;

    /// Takes the next whole reply out of `buffer`. After an error the connection is of no use.
    fn next(&mut self, buffer: &mut BytesMut) -> Result<Option<Self::Reply>, Self::Fault>;

    /// Keeps what the server says of itself, and gives back what answers a request.
    fn sort(&mut self, reply: Self::Reply) -> Option<Self::Reply>;

    /// Why nothing more is asked after `reply`, if that is so; whether it is the last one to its request.
    fn ends(&self, reply: &Self::Reply, is_last: bool) -> Option<Self::Fault>;

    /// Why nothing more is asked after a reply to nothing, if that is so.
    fn unasked(&self, reply: Self::Reply) -> Option<Self::Fault>;

    /// The fault of a connection that was closed.
    fn closed(why: &'static str) -> Self::Fault;

    /// The fault of a connection that broke.
    fn broken(error: &io::Error) -> Self::Fault;
}

struct Order<R> {
    bytes: Vec<u8>,
    replies: usize,
    answer: oneshot::Sender<Vec<R>>,
}

struct Due<R> {
    missing: usize,
    replies: Vec<R>,
    answer: oneshot::Sender<Vec<R>>,
}

/// How many this process has made.
static MADE: AtomicU64 = AtomicU64::new(0);

/// A connection. It closes when it is dropped; what is on its way then may still be done.
pub struct Pipeline<P: Protocol> {
    orders: mpsc::UnboundedSender<Order<P::Reply>>,
    end: watch::Receiver<Option<P::Fault>>,
    /// Where it leads, without secrets.
    pub peer: String,
    /// Which one of this process it is.
    pub number: u64,
    task: JoinHandle<()>,
}

impl<P: Protocol> fmt::Debug for Pipeline<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Connection({})", self.peer)
    }
}

impl<P: Protocol> Drop for Pipeline<P> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl<P: Protocol> Pipeline<P> {
    /// Takes over `stream`, which leads to `peer`, and speaks the protocol that is made for the connection of that number.
    /// Needs a running tokio runtime.
    pub fn over(protocol: impl FnOnce(u64) -> P, stream: Box<dyn Stream>, peer: String) -> Self {
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let protocol = protocol(number);
        let (orders, received) = mpsc::unbounded_channel();
        let (ended, end) = watch::channel(None);
        let task = tokio::spawn(async move {
            let mut traffic = Traffic { protocol, due: VecDeque::new(), out: BytesMut::new(), received };
            let fault = traffic.run(stream).await;
            // Before the answers that will not come are dropped with the traffic: whoever waits asks why.
            ended.send_replace(Some(fault));
        });
        Self { orders, end, peer, number, task }
    }

    /// Sends `bytes` now and waits for so many replies. Dropping the future does not unsend them.
    ///
    /// Errors: why the connection has ended.
    pub fn exchange(
        &self,
        bytes: Vec<u8>,
        replies: usize,
    ) -> impl Future<Output = Result<Vec<P::Reply>, P::Fault>> {
        let (answer, answered) = oneshot::channel();
        // If nobody takes it, the answer is dropped with it.
        let _ = self.orders.send(Order { bytes, replies, answer });
        async { answered.await.map_err(|_| self.why()) }
    }

    fn why(&self) -> P::Fault {
        self.end.borrow().clone().unwrap_or_else(|| P::closed("the connection was closed"))
    }

    /// Whether it has not ended yet, as far as this client knows.
    pub fn is_open(&self) -> bool {
        self.end.borrow().is_none()
    }

    /// Completes when it has ended.
    pub async fn ended(&self) {
        // That nobody can say so any more is an end, too.
        let _ = self.end.clone().wait_for(Option::is_some).await;
    }
}

struct Traffic<P: Protocol> {
    protocol: P,
    due: VecDeque<Due<P::Reply>>,
    out: BytesMut,
    received: mpsc::UnboundedReceiver<Order<P::Reply>>,
}

impl<P: Protocol> Traffic<P> {
    /// Serves the connection until it ends, and says why it did.
    async fn run(&mut self, stream: Box<dyn Stream>) -> P::Fault {
        let (mut from, mut to) = tokio::io::split(stream);
        let mut buffer = BytesMut::with_capacity(4096);
        loop {
            tokio::select! {
                biased;
                order = self.received.recv() => match order {
                    Some(order) => self.take(order),
                    None => return P::closed("the connection was closed"),
                },
                sent = to.write_buf(&mut self.out), if !self.out.is_empty() => {
                    // Encryption keeps back what is not flushed.
                    let flushed = match sent {
                        Ok(_) if self.out.is_empty() => to.flush().await,
                        other => other.map(drop),
                    };
                    if let Err(error) = flushed {
                        return P::broken(&error);
                    }
                }
                read = from.read_buf(&mut buffer) => match read {
                    Ok(0) => return P::closed("the server closed the connection"),
                    Ok(_) => loop {
                        match self.protocol.next(&mut buffer) {
                            Ok(Some(reply)) => if let Some(fault) = self.give(reply) {
                                return fault;
                            },
                            Ok(None) => break,
                            Err(fault) => return fault,
                        }
                    },
                    Err(error) => return P::broken(&error),
                },
            }
        }
    }

    fn take(&mut self, order: Order<P::Reply>) {
        // Nobody waits any more: it need not be sent.
        if !order.answer.is_closed() {
            self.out.extend_from_slice(&order.bytes);
            self.due.push_back(Due { missing: order.replies, replies: Vec::new(), answer: order.answer });
        }
    }

    /// Hands a reply to whoever waits for it; why it is the last one, if it is.
    fn give(&mut self, reply: P::Reply) -> Option<P::Fault> {
        let reply = self.protocol.sort(reply)?;
        let Some(due) = self.due.front_mut() else { return self.protocol.unasked(reply) };
        due.missing -= 1;
        let is_last = due.missing == 0;
        let end = self.protocol.ends(&reply, is_last);
        due.replies.push(reply);
        if is_last && let Some(due) = self.due.pop_front() {
            // Whoever asked may have given up.
            let _ = due.answer.send(due.replies);
        }
        end
    }
}
