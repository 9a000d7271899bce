//! A connection: requests go out at once and are answered in their order.

use std::collections::VecDeque;
use std::fmt;

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use super::wire::{Decoder, Reply};
use crate::backend::connector::{Stream, breach};
use crate::backend::document::{Fault, FaultResult};
use crate::lock::ErrorKind;

struct Order {
    bytes: Vec<u8>,
    replies: usize,
    answer: oneshot::Sender<Vec<Reply>>,
}

struct Due {
    missing: usize,
    replies: Vec<Reply>,
    answer: oneshot::Sender<Vec<Reply>>,
}

/// A connection. It closes when it is dropped; what is on its way then may still be done.
pub(super) struct Connection {
    orders: mpsc::UnboundedSender<Order>,
    end: watch::Receiver<Option<Fault>>,
    /// Where it leads, without secrets.
    pub(super) peer: String,
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
        let (ended, end) = watch::channel(None);
        let task = tokio::spawn(async move {
            let mut traffic = Traffic { due: VecDeque::new(), out: BytesMut::new(), received };
            let fault = traffic.run(stream).await;
            // Before the answers that will not come are dropped with the traffic: whoever waits asks why.
            ended.send_replace(Some(fault));
        });
        Self { orders, end, peer, task }
    }

    /// Sends `bytes` now and waits for so many replies. Dropping the future does not unsend them.
    pub(super) async fn exchange(&self, bytes: Vec<u8>, replies: usize) -> FaultResult<Vec<Reply>> {
        let (answer, answered) = oneshot::channel();
        // If nobody takes it, the answer is dropped with it.
        let _ = self.orders.send(Order { bytes, replies, answer });
        answered.await.map_err(|_| self.why())
    }

    fn why(&self) -> Fault {
        self.end.borrow().clone().unwrap_or_else(|| Fault::unavailable("the connection was closed"))
    }

    pub(super) fn is_open(&self) -> bool {
        self.end.borrow().is_none()
    }
}

struct Traffic {
    due: VecDeque<Due>,
    out: BytesMut,
    received: mpsc::UnboundedReceiver<Order>,
}

impl Traffic {
    /// Serves the connection until it ends, and says why it did.
    async fn run(&mut self, stream: Box<dyn Stream>) -> Fault {
        let (mut from, mut to) = tokio::io::split(stream);
        let mut buffer = BytesMut::with_capacity(4096);
        let mut decoder = Decoder::default();
        loop {
            tokio::select! {
                biased;
                order = self.received.recv() => match order {
                    Some(order) => self.take(order),
                    None => return Fault::unavailable("the connection was closed"),
                },
                sent = to.write_buf(&mut self.out), if !self.out.is_empty() => {
                    // Encryption keeps back what is not flushed.
                    let flushed = match sent {
                        Ok(_) if self.out.is_empty() => to.flush().await,
                        other => other.map(drop),
                    };
                    if let Err(error) = flushed {
                        return broken(&error);
                    }
                }
                read = from.read_buf(&mut buffer) => match read {
                    Ok(0) => return Fault::unavailable("the server closed the connection"),
                    Ok(_) => loop {
                        match decoder.next(&mut buffer) {
                            Ok(Some(reply)) => {
                                if let Some(fault) = self.give(reply) {
                                    return fault;
                                }
                            }
                            Ok(None) => break,
                            Err(fault) => return fault,
                        }
                    },
                    Err(error) => return broken(&error),
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

    /// Hands a reply to whoever waits for it. After a command that the server did not understand it may take what belongs to
    /// that for others, and one that lets nobody in answers only the first of several: nothing more is asked then.
    fn give(&mut self, reply: Reply) -> Option<Fault> {
        let refused = match &reply {
            Reply::Line(line) => super::fault::of(line),
            _ => None,
        };
        let Some(due) = self.due.front_mut() else {
            let said = format!("{reply:?}");
            return Some(refused.unwrap_or_else(|| super::fault::nonsense(&said)));
        };
        due.replies.push(reply);
        due.missing -= 1;
        let is_complete = due.missing == 0;
        if is_complete && let Some(due) = self.due.pop_front() {
            // Whoever asked may have given up.
            let _ = due.answer.send(due.replies);
        }
        refused.filter(|fault| match fault.kind {
            ErrorKind::Corrupt => true,
            ErrorKind::Denied => !is_complete,
            _ => false,
        })
    }
}

fn broken(error: &std::io::Error) -> Fault {
    let (kind, reason) = breach(error);
    Fault::new(kind, reason)
}
