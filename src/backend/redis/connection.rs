//! One connection: requests go out in order, answers come back in order, and what the server says unasked is
//! counted.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::BytesMut;
use redis::{PushKind, Value, ValueCodec};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio_util::codec::Decoder;

use super::fault::{Fault, Outcome};
use crate::backend::connector::{Stream, breach};

struct Order {
    bytes: Vec<u8>,
    replies: usize,
    answer: oneshot::Sender<Vec<Value>>,
}

struct Due {
    missing: usize,
    replies: Vec<Value>,
    answer: oneshot::Sender<Vec<Value>>,
}

/// How many connections this process has made.
static MADE: AtomicU64 = AtomicU64::new(0);

/// A connection. It closes when it is dropped; what is on its way then may still be done.
pub(super) struct Connection {
    orders: mpsc::UnboundedSender<Order>,
    news: watch::Sender<u64>,
    end: watch::Receiver<Option<Fault>>,
    /// Whether the server tells of keys that change: not asked yet, or its answer.
    pub(super) tells: std::sync::OnceLock<bool>,
    /// Where it leads, without secrets.
    pub(super) peer: String,
    /// Which one of this process it is.
    pub(super) number: u64,
    task: JoinHandle<()>,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Connection({})", self.peer)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Connection {
    /// Takes over `stream`, which leads to `peer`.
    pub(super) fn over(stream: Box<dyn Stream>, peer: String) -> Self {
        let (orders, received) = mpsc::unbounded_channel();
        let news = watch::Sender::new(0);
        let tell = news.clone();
        let (ended, end) = watch::channel(None);
        let task = tokio::spawn(async move {
            let mut traffic = Traffic { due: VecDeque::new(), out: BytesMut::new(), received, tell };
            let fault = traffic.run(stream).await;
            // Before the answers that will not come are dropped with the traffic: whoever waits asks why.
            ended.send_replace(Some(fault));
        });
        Self {
            orders,
            news,
            end,
            tells: std::sync::OnceLock::new(),
            peer,
            number: MADE.fetch_add(1, Ordering::Relaxed),
            task,
        }
    }

    /// Sends `bytes` now and waits for so many replies. Dropping the future does not unsend them.
    pub(super) async fn exchange(&self, bytes: Vec<u8>, replies: usize) -> Outcome<Vec<Value>> {
        let (answer, answered) = oneshot::channel();
        // If nobody takes it, the answer is dropped with it.
        let _ = self.orders.send(Order { bytes, replies, answer });
        answered.await.map_err(|_| self.why())
    }

    fn why(&self) -> Fault {
        self.end.borrow().clone().unwrap_or_else(|| Fault::spent("the connection was closed"))
    }

    pub(super) fn is_open(&self) -> bool {
        self.end.borrow().is_none()
    }

    /// How often the server has told of a changed key.
    pub(super) fn told(&self) -> u64 {
        *self.news.borrow()
    }

    /// Has everybody look who listens on this connection: the server tells it nothing of what it did itself.
    pub(super) fn nudge(&self) {
        self.news.send_modify(|told| *told += 1);
    }

    /// Completes when the server has told more often than `told`, or the connection has ended.
    pub(super) async fn news_after(&self, told: u64) {
        let (mut news, mut end) = (self.news.subscribe(), self.end.clone());
        tokio::select! {
            _ = news.wait_for(|now| *now != told) => {}
            _ = end.wait_for(Option::is_some) => {}
        }
    }
}

struct Traffic {
    due: VecDeque<Due>,
    out: BytesMut,
    received: mpsc::UnboundedReceiver<Order>,
    tell: watch::Sender<u64>,
}

impl Traffic {
    /// Serves the connection until it ends, and says why it did.
    async fn run(&mut self, stream: Box<dyn Stream>) -> Fault {
        let (mut from, mut to) = tokio::io::split(stream);
        let mut buffer = BytesMut::with_capacity(4096);
        let mut codec = ValueCodec::default();
        let mut rehearsed = false;
        loop {
            tokio::select! {
                biased;
                order = self.received.recv() => match order {
                    Some(order) => self.take(order),
                    None => return Fault::spent("the connection was closed"),
                },
                sent = to.write_buf(&mut self.out), if !self.out.is_empty() => {
                    // Encryption keeps back what is not flushed.
                    let flushed = match sent {
                        Ok(_) if self.out.is_empty() => to.flush().await,
                        other => other.map(drop),
                    };
                    if let Err(error) = flushed {
                        return Fault::found(breach(&error));
                    }
                }
                () = std::future::ready(()), if !rehearsed && !self.due.is_empty() && self.out.is_empty() => {
                    rehearsed = true;
                    rehearse();
                }
                read = from.read_buf(&mut buffer) => match read {
                    Ok(0) => return Fault::spent("the server closed the connection"),
                    Ok(_) => loop {
                        match codec.decode(&mut buffer) {
                            Ok(Some(value)) => self.give(value),
                            Ok(None) => break,
                            Err(error) => return Fault::nonsense(error.category()),
                        }
                    },
                    Err(error) => return Fault::found(breach(&error)),
                },
            }
        }
    }

    fn take(&mut self, order: Order) {
        // Nobody waits any more: it need not be sent.
        if !order.answer.is_closed() {
            self.out.extend_from_slice(&order.bytes);
            self.due.push_back(Due { missing: order.replies, replies: Vec::new(), answer: order.answer });
        }
    }

    fn give(&mut self, value: Value) {
        if let Value::Push { kind, .. } = value {
            if kind == PushKind::Invalidate {
                self.tell.send_modify(|told| *told += 1);
            }
            return;
        }
        let Some(due) = self.due.front_mut() else { return };
        due.replies.push(value);
        due.missing -= 1;
        if due.missing == 0
            && let Some(due) = self.due.pop_front()
        {
            // Whoever asked may have given up.
            let _ = due.answer.send(due.replies);
        }
    }
}

/// Reads an answer once while the server works on the first request: what that takes, also what a library finds out
/// about the processor, is done with when the answer comes.
fn rehearse() {
    let mut sample = BytesMut::from("*2\r\n$2\r\nin\r\n*2\r\n:1\r\n_\r\n");
    drop(ValueCodec::default().decode(&mut sample));
}
