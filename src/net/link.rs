//! The connections of one client to a service of one or several servers: each is opened when it is first needed, kept as long as
//! it is of use, and then replaced, by one to the next server if there are several.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::hash::Hash;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Mutex as Gate, Notify};

use super::fault::{Fault, FaultResult};
use super::rank::{Rank, Rest};
use crate::clock::Clock;

/// How the servers of a service are connected to.
pub trait Dial: fmt::Debug + Send + Sync {
    /// An open connection. It closes when it is dropped.
    type Connection: ?Sized + Send + Sync;
    /// Which connection of several; `()` where one is enough.
    type Node: Clone + Eq + Hash + Send + Sync;

    /// Whether a server that is alive answers every request soon. Elsewhere a request may wait for a long time (for another
    /// transaction's row lock), and only connecting is bounded.
    const ANSWERS_SOON: bool = false;

    /// How many servers may be tried for `node`.
    fn servers(&self, node: &Self::Node) -> usize;

    /// The server of that number, for people; without secrets.
    fn place(&self, node: &Self::Node, server: usize) -> String;

    /// Connects, encrypts and logs in; one attempt. Errors name the server.
    fn dial(
        &self,
        node: &Self::Node,
        server: usize,
    ) -> impl Future<Output = FaultResult<Arc<Self::Connection>>> + Send;

    /// Whether a request can be sent over `connection`, as far as is known.
    fn is_usable(&self, connection: &Self::Connection) -> impl Future<Output = bool> + Send;

    /// Where `connection` leads, without secrets.
    fn peer(&self, connection: &Self::Connection) -> String;

    /// Looks at the servers: why none of them can be used, or `None` if one seems to be what was meant.
    fn look(&self) -> impl Future<Output = Option<Fault>> + Send;
}

/// The connections of one client to a service.
#[derive(Debug)]
pub struct Link<D: Dial> {
    /// How it connects.
    pub dial: D,
    /// By which it keeps deadlines.
    pub clock: Clock,
    open: Mutex<HashMap<D::Node, Open<D::Connection>>>,
    /// Held while a connection is opened.
    gate: Gate<()>,
    /// Counts the servers that were passed over; the next connection is made to the one that this, modulo their number, says.
    pub(super) turn: AtomicUsize,
    /// How many connections were opened.
    opened: AtomicUsize,
    /// A server has answered a request.
    pub(super) answered: AtomicBool,
    /// How many servers have not answered in time since one last did.
    pub(super) slow: AtomicU32,
    /// A connection was given up.
    changed: Notify,
    /// What the connections are for.
    rank: Mutex<Rank>,
    /// The servers that this client leaves alone for a while.
    rests: Mutex<HashMap<(D::Node, usize), Rest>>,
}

/// An open connection, and the turn at which it was opened.
struct Open<C: ?Sized> {
    connection: Arc<C>,
    turn: usize,
}

impl<C: ?Sized> fmt::Debug for Open<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Open").field("turn", &self.turn).finish_non_exhaustive()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<D: Dial> Link<D> {
    /// One that connects with the first request.
    pub fn new(dial: D, clock: Clock) -> Self {
        Self {
            dial,
            clock,
            open: Mutex::default(),
            gate: Gate::default(),
            turn: AtomicUsize::new(0),
            opened: AtomicUsize::new(0),
            answered: AtomicBool::new(false),
            slow: AtomicU32::new(0),
            changed: Notify::new(),
            rank: Mutex::default(),
            rests: Mutex::default(),
        }
    }

    /// What the connections are for from now on.
    pub fn connects_as(&self, rank: Rank) {
        *locked(&self.rank) = rank;
    }

    pub(super) fn rank(&self) -> Rank {
        *locked(&self.rank)
    }

    /// How many connections were opened: what was sent over one may have been done, and over an earlier one may still be.
    pub fn opened(&self) -> usize {
        self.opened.load(Ordering::Relaxed)
    }

    fn open(&self) -> MutexGuard<'_, HashMap<D::Node, Open<D::Connection>>> {
        locked(&self.open)
    }

    /// The server to which the next connection for `node` is made.
    pub fn place(&self, node: &D::Node) -> String {
        self.dial.place(node, self.server(node))
    }

    /// The number of that server.
    pub fn server(&self, node: &D::Node) -> usize {
        self.server_at(self.turn.load(Ordering::Relaxed), node)
    }

    fn server_at(&self, turn: usize, node: &D::Node) -> usize {
        turn % self.dial.servers(node).max(1)
    }

    /// The open connection for `node`, if it is usable.
    async fn usable(&self, node: &D::Node) -> Option<Arc<D::Connection>> {
        let connection = Arc::clone(&self.open().get(node)?.connection);
        self.dial.is_usable(&connection).await.then_some(connection)
    }

    /// Waits until a connection for `node` may be opened if it has to replace one: hold's go first.
    pub(super) async fn turn_comes(&self, node: &D::Node) {
        let delay = self.rank().delay();
        if self.opened() > 0 && !delay.is_zero() && self.usable(node).await.is_none() {
            self.clock.sleep_until(self.clock.now() + delay).await;
        }
    }

    /// Connects to a server for `node`, unless that refused this waiter just now: then that is the answer.
    async fn dial_in_turn(&self, node: &D::Node, server: usize) -> FaultResult<Arc<D::Connection>> {
        let (at, rank) = ((node.clone(), server), self.rank());
        let before = locked(&self.rests).get(&at).cloned();
        if let Some(rest) = before.as_ref().filter(|rest| rank.waits() && self.clock.now() < rest.until) {
            return Err(rest.fault.clone());
        }
        let dialled = self.dial.dial(node, server).await;
        let refusal = dialled.as_ref().err();
        let rest = refusal.and_then(|fault| rank.rest(fault, self.clock.now(), before.as_ref()));
        let mut rests = locked(&self.rests);
        match rest {
            Some(rest) => rests.insert(at, rest),
            None => rests.remove(&at),
        };
        drop(rests);
        dialled
    }

    /// The connection for `node`, opened if there is none. It takes as long as the server takes.
    pub async fn connection(&self, node: &D::Node) -> FaultResult<Arc<D::Connection>> {
        if let Some(connection) = self.usable(node).await {
            return Ok(connection);
        }
        let _gate = self.gate.lock().await;
        // Another request may have opened one meanwhile.
        if let Some(connection) = self.usable(node).await {
            return Ok(connection);
        }
        let turn = self.turn.load(Ordering::Relaxed);
        let connection = self.dial_in_turn(node, self.server_at(turn, node)).await?;
        self.opened.fetch_add(1, Ordering::Relaxed);
        self.open().insert(node.clone(), Open { connection: Arc::clone(&connection), turn });
        Ok(connection)
    }

    /// Makes the next request open another connection, to the next server if there are several. Says whether that is news.
    pub fn give_up(&self, connection: &Arc<D::Connection>) -> bool {
        let mut open = self.open();
        let found = open.iter().find(|(_, open)| Arc::ptr_eq(&open.connection, connection));
        let Some(node) = found.map(|(node, _)| node.clone()) else { return false };
        let given_up = open.remove(&node);
        drop(open);
        self.changed.notify_waiters();
        given_up.is_some_and(|open| self.pass_over(open.turn))
    }

    /// Has the next connection made to the server after that of `turn`. Says whether that is news.
    pub(super) fn pass_over(&self, turn: usize) -> bool {
        self.turn.compare_exchange(turn, turn + 1, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Completes when `connection` has been given up.
    pub async fn given_up(&self, connection: &Arc<D::Connection>) {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if !self.open().values().any(|open| Arc::ptr_eq(&open.connection, connection)) {
                return;
            }
            changed.await;
        }
    }
}
