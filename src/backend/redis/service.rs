//! Requests to the service, whichever server has the keys at the moment.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::Value;
use tokio::sync::Mutex as Gate;

use super::config::RedisConfig;
use super::connection::Connection;
use super::dial;
use super::fault;
use super::script::Step;
use crate::clock::Clock;
use crate::lock::{ErrorKind, Moment};
use crate::net::address::HostPort;
use crate::net::cause;
use crate::net::fault::{Fault, FaultResult, Retry};

/// Between two attempts to reach a service that is down.
const PAUSE: Duration = Duration::from_millis(50);
/// How long keys that are moving are waited for before that is an answer: few of them take a millisecond.
const MOVING: Duration = Duration::from_secs(1);
/// How often a request follows what servers of a cluster say of each other.
const MOST_REDIRECTIONS: u32 = 8;

/// How long a request tries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Patience {
    /// A server that cannot be reached is an answer; a connection that breaks is made again once. Keys that are
    /// moving are waited for, for a moment.
    Once,
    /// Until the deadline.
    Deadline,
}

/// The connections of one client.
#[derive(Debug)]
pub(super) struct Service {
    pub(super) config: RedisConfig,
    pub(super) clock: Clock,
    /// By node; the one that the address leads to is `None`. The gate is held while one is opened.
    open: Gate<HashMap<Option<HostPort>, Arc<Connection>>>,
    /// Which node of a cluster has a slot, as far as nodes have said.
    routes: Mutex<HashMap<u16, HostPort>>,
    /// A connection was opened: what was sent over it may have been done.
    connected: AtomicBool,
    /// It has answered a request.
    answered: AtomicBool,
}

/// Replies, and who gave them.
pub(super) struct Answer {
    pub(super) replies: Vec<Value>,
    pub(super) connection: Arc<Connection>,
    /// When what was answered was sent, and how often the connection had told of changed keys by then.
    pub(super) sent: Moment,
    pub(super) told: u64,
    /// A node gave them to which the keys are only moving; it tells nobody of changes.
    pub(super) detour: bool,
}

impl Service {
    pub(super) fn new(config: RedisConfig, clock: Clock) -> Self {
        Self {
            config,
            clock,
            open: Gate::default(),
            routes: Mutex::default(),
            connected: AtomicBool::new(false),
            answered: AtomicBool::new(false),
        }
    }

    /// One to the same service that shares no connection with this one.
    pub(super) fn apart(&self) -> Self {
        Self::new(self.config.clone(), self.clock)
    }

    /// As [`crate::backend::Backend::has_connected`].
    pub(super) fn has_connected(&self) -> bool {
        self.connected.load(Ordering::Relaxed)
    }

    fn route(&self, slot: Option<u16>) -> Option<HostPort> {
        let routes = self.routes.lock().unwrap_or_else(PoisonError::into_inner);
        slot.and_then(|slot| routes.get(&slot).cloned())
    }

    /// The connection to whoever has `slot`.
    pub(super) async fn connection(&self, slot: Option<u16>) -> FaultResult<Arc<Connection>> {
        self.connection_at(self.route(slot)).await
    }

    async fn connection_at(&self, node: Option<HostPort>) -> FaultResult<Arc<Connection>> {
        let mut open = self.open.lock().await;
        if let Some(connection) = open.get(&node).filter(|connection| connection.is_open()) {
            return Ok(Arc::clone(connection));
        }
        let connection = dial::dial(&self.config, node.as_ref()).await?;
        self.connected.store(true, Ordering::Relaxed);
        open.insert(node, Arc::clone(&connection));
        Ok(connection)
    }

    /// Makes the next request open another connection.
    pub(super) async fn give_up(&self, connection: &Arc<Connection>) {
        self.open.lock().await.retain(|_, open| !Arc::ptr_eq(open, connection));
    }

    /// Has `steps` done by whoever has `slot`, by `deadline`. An error among the replies is an error, except of
    /// steps that are no scripts. What was sent may still be done after an error, so steps must bear repetition.
    pub(super) async fn call(
        &self,
        slot: Option<u16>,
        deadline: Moment,
        patience: Patience,
        steps: impl Fn(&Connection) -> Vec<Step> + Send,
    ) -> FaultResult<Answer> {
        let mut current = None;
        let mut last = None;
        let work = self.attempts(slot, patience, steps, &mut current, &mut last);
        let gives_up = patience != Patience::Deadline;
        let found = match cause::by(self.clock, deadline, gives_up, work, || self.why_silent()).await {
            Ok(Ok(answer)) => {
                self.answered.store(true, Ordering::Relaxed);
                return Ok(answer);
            }
            Ok(Err(fault))
                if fault.is_spent() && matches!(fault.kind, ErrorKind::Unavailable | ErrorKind::Corrupt) =>
            {
                return Err(cause::behind(fault, self.clock, deadline, self.why_silent()).await);
            }
            Ok(Err(fault)) => return Err(fault),
            Err(found) => found.or(last),
        };
        let Some(connection) = current else {
            return Err(found.unwrap_or_else(|| Fault::spent(cause::silent(&self.config.identity()))));
        };
        // Whatever holds it up, another connection need not wait for it.
        self.give_up(&connection).await;
        Err(found.unwrap_or_else(|| Fault::spent(cause::silent(&connection.peer()))))
    }

    /// The one reply to one step.
    pub(super) async fn one(
        &self,
        slot: Option<u16>,
        deadline: Moment,
        patience: Patience,
        step: Step,
    ) -> FaultResult<Value> {
        let steps = move |_: &Connection| vec![step.clone()];
        match self.call(slot, deadline, patience, steps).await?.replies.into_iter().next() {
            Some(Value::ServerError(error)) => Err(fault::of(&error)),
            Some(reply) => Ok(reply),
            None => Err(fault::nonsense("no reply")),
        }
    }

    /// Why a server that never answered does not; `None` of one that has.
    async fn why_silent(&self) -> Option<Fault> {
        if self.answered.load(Ordering::Relaxed) { None } else { dial::why_silent(&self.config).await }
    }

    async fn attempts(
        &self,
        slot: Option<u16>,
        patience: Patience,
        steps: impl Fn(&Connection) -> Vec<Step>,
        current: &mut Option<Arc<Connection>>,
        last: &mut Option<Fault>,
    ) -> FaultResult<Answer> {
        let begun = self.clock.now();
        let mut redirections = 0;
        let mut broken = 0;
        let mut detour = None;
        loop {
            *current = None;
            let asking = detour.is_some();
            let fault = match self.connection_at(detour.take().or_else(|| self.route(slot))).await {
                Ok(connection) => {
                    *current = Some(Arc::clone(&connection));
                    let steps = steps(&connection);
                    let (sent, told) = (self.clock.now(), connection.notified_count());
                    match self.replies(&connection, &steps, asking).await {
                        Ok(replies) => {
                            if steps.iter().any(Step::frees) {
                                connection.nudge();
                            }
                            return Ok(Answer { replies, connection, sent, told, detour: asking });
                        }
                        Err(Setback::Redirected { slot, node, once }) if redirections < MOST_REDIRECTIONS => {
                            redirections += 1;
                            detour = self.redirect(slot, node, once);
                            continue;
                        }
                        Err(Setback::Redirected { node, .. }) => Fault::spent(format!(
                            "the nodes of the cluster do not agree on who has the keys (last {node})"
                        )),
                        Err(Setback::Fault(fault)) => {
                            let fault = fault.at(&connection.peer());
                            // A server that has none left closes the one over which it says so.
                            if fault.is_spent() || fault.kind == ErrorKind::Full {
                                self.give_up(&connection).await;
                            }
                            broken += u32::from(fault.is_spent());
                            fault
                        }
                    }
                }
                Err(fault) => {
                    // A node that is gone may have left its slots to others.
                    self.routes.lock().unwrap_or_else(PoisonError::into_inner).clear();
                    if patience != Patience::Deadline {
                        return Err(fault);
                    }
                    fault
                }
            };
            let moving = fault.retry == Retry::Again && self.clock.now() < begun + MOVING;
            let again = patience == Patience::Deadline || broken == 1 || moving;
            if !fault.kind.is_transient() || !again {
                return Err(fault);
            }
            if broken > 1 || !fault.is_spent() || patience == Patience::Deadline {
                self.clock.sleep_until(self.clock.now() + PAUSE).await;
                redirections = 0;
            }
            *last = Some(fault);
        }
    }

    /// Remembers which node has `slot`; one that has it only for this request is returned.
    fn redirect(&self, slot: u16, node: HostPort, once: bool) -> Option<HostPort> {
        if once {
            return Some(node);
        }
        self.routes.lock().unwrap_or_else(PoisonError::into_inner).insert(slot, node);
        None
    }

    /// The replies to `steps`; `asking` of a node to which the keys are moving.
    async fn replies(
        &self,
        connection: &Connection,
        steps: &[Step],
        asking: bool,
    ) -> Result<Vec<Value>, Setback> {
        for whole in [false, true] {
            let (bytes, replies) = packed(steps, asking, whole);
            let replies = connection.exchange(bytes, replies).await;
            if let Some(replies) = self.sorted(connection, steps, asking, replies)? {
                return Ok(replies);
            }
        }
        Err(Setback::Fault(fault::nonsense("NOSCRIPT to a whole script")))
    }

    /// The replies to `steps` among all; `None` if the server does not know one of the scripts.
    fn sorted(
        &self,
        connection: &Connection,
        steps: &[Step],
        asking: bool,
        replies: FaultResult<Vec<Value>>,
    ) -> Result<Option<Vec<Value>>, Setback> {
        let each = each(asking);
        let replies = replies.map_err(Setback::Fault)?;
        let replies: Vec<Value> = replies.into_iter().skip(each - 1).step_by(each).collect();
        let mut known = true;
        for (step, reply) in steps.iter().zip(&replies) {
            let Value::ServerError(error) = reply else { continue };
            let script = matches!(step, Step::Script { .. });
            match error.code() {
                "NOSCRIPT" => known = false,
                "MOVED" if self.config.is_cluster() && (script || !asking) => {
                    return Err(redirection(error.details().unwrap_or_default(), connection, false));
                }
                "ASK" if self.config.is_cluster() && script => {
                    return Err(redirection(error.details().unwrap_or_default(), connection, true));
                }
                _ if script => return Err(Setback::Fault(fault::of(error))),
                _ => {}
            }
        }
        Ok(known.then_some(replies))
    }
}

/// How many commands make a step.
fn each(asking: bool) -> usize {
    if asking { 2 } else { 1 }
}

/// `steps` as they are sent, and how many replies there will be.
fn packed(steps: &[Step], asking: bool, whole: bool) -> (Vec<u8>, usize) {
    let mut bytes = Vec::with_capacity(1024);
    for step in steps {
        if asking {
            // It is good for one command.
            Step::command(["ASKING"]).pack(whole, &mut bytes);
        }
        step.pack(whole, &mut bytes);
    }
    (bytes, steps.len() * each(asking))
}

enum Setback {
    Fault(Fault),
    /// Another node has the slot, or has what is asked for this once.
    Redirected {
        slot: u16,
        node: HostPort,
        once: bool,
    },
}

/// What `MOVED 3999 127.0.0.1:6381` says, or `ASK`; an empty host is the one that said it.
fn redirection(details: &str, from: &Connection, once: bool) -> Setback {
    let parsed = details.split_once(' ').and_then(|(slot, node)| {
        let (host, port) = node.rsplit_once(':')?;
        let own = from.peer().rsplit_once(':').map_or("", |(host, _)| host.trim_matches(['[', ']']));
        let host = if host.is_empty() { own } else { host };
        Some((slot.parse().ok()?, HostPort { host: host.to_owned(), port: port.parse().ok()? }))
    });
    match parsed {
        Some((slot, node)) => Setback::Redirected { slot, node, once },
        None => Setback::Fault(fault::nonsense(format!("redirected to {details}"))),
    }
}

impl Service {
    /// One slot of each node that has any; of a server alone, none in particular.
    pub(super) async fn slots_of_all_nodes(&self, deadline: Moment) -> FaultResult<Vec<Option<u16>>> {
        if !self.config.is_cluster() {
            return Ok(vec![None]);
        }
        let step = Step::command(["CLUSTER", "SLOTS"]);
        let Value::Array(ranges) = self.one(None, deadline, Patience::Once, step).await? else {
            return Err(fault::nonsense("no slots"));
        };
        let mut found: HashMap<HostPort, u16> = HashMap::new();
        for range in ranges {
            let Value::Array(parts) = range else { continue };
            let [start, _, Value::Array(master), ..] = parts.as_slice() else { continue };
            let [host, port, ..] = master.as_slice() else { continue };
            let (host, port) = (dial::text(host), dial::text(port).and_then(|port| port.parse().ok()));
            let slot = dial::text(start).and_then(|slot| slot.parse().ok());
            if let (Some(host), Some(port), Some(slot)) = (host, port, slot) {
                found.entry(HostPort { host, port }).or_insert(slot);
            }
        }
        let mut routes = self.routes.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(found.into_iter().map(|(node, slot)| (routes.insert(slot, node), Some(slot)).1).collect())
    }
}
