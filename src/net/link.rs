//! The connections of one client to a service with one or several servers. A connection is opened when it is first
//! needed and kept while it works. Its replacement goes to the next server if there are several.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::hash::Hash;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::{Mutex as Gate, Notify, OwnedSemaphorePermit as Room, Semaphore};
use tokio::task::JoinHandle;

use super::fault::{Fault, FaultResult};
use super::rank::{Rank, Rest};
use crate::clock::Clock;
use crate::lock::ErrorKind;
use crate::sync::locked;

/// The most connections to one server at once: one in use, and one with an unanswered request. A server continues a
/// request after its client has gone, so each further attempt would occupy another connection.
const MOST: usize = 2;

/// Connects to the servers of a service.
pub trait Dial: fmt::Debug + Send + Sync + 'static {
    /// An open connection. It closes when it is dropped.
    type Connection: ?Sized + Send + Sync + 'static;
    /// Selects one of several connections; `()` if one is enough.
    type Node: Clone + Eq + fmt::Debug + Hash + Send + Sync + 'static;

    /// Whether a server that is alive answers every request soon. If not, a request may wait for long, such as for
    /// another transaction's row lock, and only connecting is bounded.
    const ANSWERS_SOON: bool = false;

    /// Returns how many servers may be tried for `node`.
    fn servers(&self, node: &Self::Node) -> usize;

    /// Returns the server of that number for display, without secrets.
    fn place(&self, node: &Self::Node, server: usize) -> String;

    /// Connects, encrypts and logs in, in one attempt that records its progress in `stage`. Errors name the server.
    fn dial(
        &self,
        node: &Self::Node,
        server: usize,
        stage: &Stage,
    ) -> impl Future<Output = FaultResult<Arc<Self::Connection>>> + Send;

    /// Returns whether `connection` seems usable.
    fn is_usable(&self, connection: &Self::Connection) -> impl Future<Output = bool> + Send;

    /// Completes when the server has answered everything sent over `connection`, or has closed it. Returns whether it
    /// can be used again. Returns at once if the server drops the requests of clients that have gone.
    fn settled(&self, connection: &Self::Connection) -> impl Future<Output = bool> + Send {
        let _ = connection;
        async { false }
    }

    /// Returns the server of `connection` for display, without secrets.
    fn peer(&self, connection: &Self::Connection) -> String;

    /// Probes the servers. Returns why all are unusable, or `None` if one seems to be the intended one.
    fn look(&self) -> impl Future<Output = Option<Fault>> + Send;
}

/// The progress of an attempt to connect.
#[derive(Default, Debug)]
pub struct Stage {
    connected: AtomicBool,
    answered: Arc<AtomicBool>,
}

impl Stage {
    /// Records that the server has sent something in the service's protocol, or completed a TLS handshake.
    pub fn answered(&self) {
        self.answered.store(true, Ordering::Relaxed);
    }

    /// Records that a connection exists: the server may continue the attempt after the client has gone.
    pub fn connected(&self) {
        self.connected.store(true, Ordering::Relaxed);
    }
}

type Connections<D> = HashMap<<D as Dial>::Node, Open<<D as Dial>::Connection>>;
type Rooms<D> = HashMap<(<D as Dial>::Node, usize), Arc<Semaphore>>;

/// The connections of one client to a service.
#[derive(Debug)]
pub struct Link<D: Dial> {
    /// Opens connections.
    pub dial: Arc<D>,
    /// The clock of the deadlines.
    pub clock: Clock,
    open: Arc<Mutex<Connections<D>>>,
    /// Notified when a connection that was set aside can be used again.
    returned: Arc<Notify>,
    /// Held while a connection is opened.
    gate: Gate<()>,
    /// Permits for connections to each server.
    rooms: Mutex<Rooms<D>>,
    /// The result of the last probe.
    found: Mutex<Option<Fault>>,
    /// The number of servers passed over. The next connection goes to the server of this number, modulo the count of
    /// servers.
    pub(super) turn: AtomicUsize,
    /// The number of connections opened.
    opened: AtomicUsize,
    /// Whether a server has ever sent something in the service's protocol.
    pub(super) answered: Arc<AtomicBool>,
    /// The number of servers that have not answered in time since one last did.
    pub(super) slow: AtomicU32,
    /// Notified when a connection is given up.
    changed: Notify,
    /// The purpose of the connections.
    rank: Mutex<Rank>,
    /// The servers that this client does not contact for a while.
    rests: Mutex<HashMap<(D::Node, usize), Rest>>,
}

/// An open connection, the turn at which it was opened, and its permit.
struct Open<C: ?Sized> {
    connection: Arc<C>,
    turn: usize,
    _room: Room,
}

/// An attempt to connect. If it is dropped before a connection exists, it stops. Otherwise it continues to its end, and
/// keeps its permit until then, because the server may continue, too.
struct Attempt<T> {
    stage: Arc<Stage>,
    task: JoinHandle<T>,
}

impl<T> Drop for Attempt<T> {
    fn drop(&mut self) {
        if !self.stage.connected.load(Ordering::Relaxed) {
            self.task.abort();
        }
    }
}

impl<C: ?Sized> fmt::Debug for Open<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Open").field("turn", &self.turn).finish_non_exhaustive()
    }
}

fn stopped() -> Fault {
    Fault::spent("the attempt to connect was stopped")
}

impl<D: Dial> Link<D> {
    /// Creates a link that connects with the first request.
    pub fn new(dial: D, clock: Clock) -> Self {
        Self {
            dial: Arc::new(dial),
            clock,
            open: Arc::default(),
            returned: Arc::default(),
            gate: Gate::default(),
            rooms: Mutex::default(),
            found: Mutex::default(),
            turn: AtomicUsize::new(0),
            opened: AtomicUsize::new(0),
            answered: Arc::default(),
            slow: AtomicU32::new(0),
            changed: Notify::new(),
            rank: Mutex::default(),
            rests: Mutex::default(),
        }
    }

    /// Sets the purpose of the connections from now on.
    pub fn connects_as(&self, rank: Rank) {
        *locked(&self.rank) = rank;
    }

    pub(super) fn rank(&self) -> Rank {
        *locked(&self.rank)
    }

    /// Returns the number of connections opened. A request over an earlier connection may still be executed.
    pub fn opened(&self) -> usize {
        self.opened.load(Ordering::Relaxed)
    }

    /// Returns the server to which the next connection for `node` goes.
    pub fn place(&self, node: &D::Node) -> String {
        self.dial.place(node, self.server(node))
    }

    /// Returns the number of that server.
    pub fn server(&self, node: &D::Node) -> usize {
        self.server_at(self.turn.load(Ordering::Relaxed), node)
    }

    /// Returns whether a connection was ever opened.
    pub fn has_connected(&self) -> bool {
        self.opened() > 0
    }

    fn server_at(&self, turn: usize, node: &D::Node) -> usize {
        turn % self.dial.servers(node).max(1)
    }

    /// Returns the open connection for `node` if it is usable; an unusable one is given up.
    async fn usable(&self, node: &D::Node) -> Option<Arc<D::Connection>> {
        let connection = Arc::clone(&locked(&self.open).get(node)?.connection);
        if self.dial.is_usable(&connection).await {
            return Some(connection);
        }
        self.set_aside(&connection, false);
        None
    }

    /// Waits until a replacement connection for `node` may be opened: connections of holders go first.
    pub(super) async fn turn_comes(&self, node: &D::Node) {
        let delay = self.rank().delay();
        if self.opened() > 0 && !delay.is_zero() && self.usable(node).await.is_none() {
            self.clock.sleep_until(self.clock.now() + delay).await;
        }
    }

    /// Connects to a server for `node`. If that server refused this waiter just now, returns the refusal instead.
    async fn dial_in_turn(&self, node: &D::Node, server: usize) -> FaultResult<(Arc<D::Connection>, Room)> {
        let (at, rank) = ((node.clone(), server), self.rank());
        let before = locked(&self.rests).get(&at).cloned();
        if let Some(rest) = before.as_ref().filter(|rest| rank.waits() && self.clock.now() < rest.until) {
            return Err(rest.fault.clone());
        }
        let dialled = self.attempt_to_connect(node, server).await;
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

    /// Returns the connection for `node`, opened if necessary. It takes as long as the server takes.
    pub async fn connection(&self, node: &D::Node) -> FaultResult<Arc<D::Connection>> {
        if let Some(connection) = self.usable(node).await {
            return Ok(connection);
        }
        let _gate = self.gate.lock().await;
        loop {
            let mut returned = std::pin::pin!(self.returned.notified());
            returned.as_mut().enable();
            // Another request may have opened one meanwhile.
            if let Some(connection) = self.usable(node).await {
                return Ok(connection);
            }
            let turn = self.turn.load(Ordering::Relaxed);
            tokio::select! {
                biased;
                connected = self.dial_in_turn(node, self.server_at(turn, node)) => {
                    let (connection, room) = connected?;
                    self.opened.fetch_add(1, Ordering::Relaxed);
                    locked(&self.open).insert(node.clone(), Open { connection: Arc::clone(&connection), turn, _room: room });
                    return Ok(connection);
                }
                () = returned => {}
            }
        }
    }

    /// Waits for a permit, and opens a connection.
    async fn attempt_to_connect(
        &self,
        node: &D::Node,
        server: usize,
    ) -> FaultResult<(Arc<D::Connection>, Room)> {
        let Ok(room) = self.rooms(node, server).acquire_owned().await else { return Err(stopped()) };
        let stage = Arc::new(Stage { answered: Arc::clone(&self.answered), ..Stage::default() });
        let (dial, node, reached) = (Arc::clone(&self.dial), node.clone(), Arc::clone(&stage));
        let task = tokio::spawn(async move {
            let connection = dial.dial(&node, server, &reached).await?;
            Ok((connection, room))
        });
        let mut attempt = Attempt { stage, task };
        let connected = (&mut attempt.task).await.unwrap_or_else(|_| Err(stopped()));
        connected.map_err(|fault: Fault| match fault.kind {
            // The files were valid for an earlier connection, so they are being replaced.
            ErrorKind::Invalid if self.opened() > 0 => Fault::spent(fault.reason),
            _ => fault,
        })
    }

    fn rooms(&self, node: &D::Node, server: usize) -> Arc<Semaphore> {
        let mut rooms = locked(&self.rooms);
        let rooms = rooms.entry((node.clone(), server));
        Arc::clone(rooms.or_insert_with(|| Arc::new(Semaphore::new(MOST))))
    }

    /// Returns why no server has ever answered: probes if there is a permit for that, else returns the last finding.
    pub(super) async fn look(&self, node: &D::Node) -> Option<Fault> {
        if self.rooms(node, self.server(node)).available_permits() > 0 {
            let found = self.dial.look().await;
            // The probes had answers.
            self.answered.fetch_or(found.is_none(), Ordering::Relaxed);
            *locked(&self.found) = found;
        }
        locked(&self.found).clone()
    }

    /// Makes the next request open another connection, to the next server if there are several. Returns whether the
    /// turn changed.
    pub fn give_up(&self, connection: &Arc<D::Connection>) -> bool {
        self.set_aside(connection, false).is_some_and(|turn| self.pass_over(turn))
    }

    /// Gives up a connection with a late answer. Once the answer has come, the connection may be used again.
    pub(super) fn leave_unanswered(&self, connection: &Arc<D::Connection>) -> bool {
        self.set_aside(connection, true).is_some_and(|turn| self.pass_over(turn))
    }

    /// Closes `connection`, which has no pending request. The next request opens another one.
    pub fn close(&self, connection: &Arc<D::Connection>) {
        locked(&self.open).retain(|_, open| !Arc::ptr_eq(&open.connection, connection));
    }

    /// Keeps `connection` from use until all its requests are answered, and then closes it. It is used again if it was
    /// only `late`, no other connection has replaced it, and there is no other server. Returns its turn, if it was in
    /// use.
    fn set_aside(&self, connection: &Arc<D::Connection>, late: bool) -> Option<usize> {
        let mut open = locked(&self.open);
        let found = open.iter().find(|(_, open)| Arc::ptr_eq(&open.connection, connection));
        let node = found.map(|(node, _)| node.clone())?;
        let aside = open.remove(&node)?;
        drop(open);
        self.changed.notify_waiters();
        let turn = aside.turn;
        let (dial, open, returned) =
            (Arc::clone(&self.dial), Arc::clone(&self.open), Arc::clone(&self.returned));
        tokio::spawn(async move {
            let is_of_use = dial.settled(&aside.connection).await && late && dial.servers(&node) == 1;
            if is_of_use {
                locked(&open).entry(node).or_insert(aside);
                returned.notify_waiters();
            }
        });
        Some(turn)
    }

    /// Sends the next connection to the server after that of `turn`. Returns whether the turn changed.
    pub(super) fn pass_over(&self, turn: usize) -> bool {
        self.turn.compare_exchange(turn, turn + 1, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Returns the open connection for `node`.
    pub fn opened_for(&self, node: &D::Node) -> Option<Arc<D::Connection>> {
        locked(&self.open).get(node).map(|open| Arc::clone(&open.connection))
    }

    /// Completes when `connection` has been given up.
    pub async fn given_up(&self, connection: &Arc<D::Connection>) {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if !locked(&self.open).values().any(|open| Arc::ptr_eq(&open.connection, connection)) {
                return;
            }
            changed.await;
        }
    }
}
