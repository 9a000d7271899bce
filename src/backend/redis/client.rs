//! Requests to the service, at the server that has the keys at the moment.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::{ServerError, Value};

use super::cluster::{self, Redirection};
use super::config::RedisConfig;
use super::connection::Connection;
use super::dial::Dialer;
use super::fault::{self, HUNG_UP};
use super::script::Call;
use crate::clock::Clock;
use crate::lock::{ErrorKind, Moment};
use crate::net::address::HostPort;
use crate::net::fault::{Fault, FaultResult, Retry};
use crate::net::link::Link;
use crate::net::request::Patience;
use crate::sync::locked;

/// How long to wait for keys that are moving before that is an error: moving a few takes a millisecond.
const MOVING: Duration = Duration::from_secs(1);
/// The most redirections in a row between nodes of a cluster.
const MOST_REDIRECTIONS: u32 = 8;

/// The connections of one client.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) config: RedisConfig,
    pub(super) clock: Clock,
    pub(super) link: Link<Dialer>,
    /// Whether a server has EVAL but not EVALSHA.
    sends_whole: AtomicBool,
    /// The number of connections in a row that were closed instead of an answer to [`HELLO`].
    hang_ups: AtomicU32,
}

/// The value of `hang_ups` from which [`HELLO`] counts as the cause: a single connection may have been closed for
/// another reason.
const TELLING: u32 = 2;

/// Requests the protocol with notifications of changed keys.
const HELLO: &str = "HELLO";
/// Requests notifications of explicitly chosen keys, except of this client's own changes.
pub(super) const OPTIN: [&str; 5] = ["CLIENT", "TRACKING", "ON", "OPTIN", "NOLOOP"];

/// Replies, and the connection that they came from.
pub(super) struct Answer {
    pub(super) replies: Vec<Value>,
    pub(super) connection: Arc<Connection>,
    /// When the request was sent, and the connection's number of notifications by then.
    pub(super) sent: Moment,
    pub(super) told: u64,
    /// Whether they come from a node to which the keys are still moving; it does not report changes.
    pub(super) detour: bool,
}

/// The node of a request.
#[derive(Clone, Debug)]
pub(super) enum To {
    /// The node that has this slot; any node if none has it.
    Slot(Option<u16>),
    /// Exactly this node.
    Node(HostPort),
}

/// The routing of one request.
struct Route<'a> {
    dialer: &'a Dialer,
    to: To,
    way: Mutex<Way>,
}

/// The redirections of a request so far.
#[derive(Default)]
struct Way {
    /// The node for the next attempt only.
    detour: Option<HostPort>,
    /// Whether the request was sent to such a node.
    asking: bool,
    redirections: u32,
}

impl Route<'_> {
    /// Returns the node for the next attempt.
    fn next(&self) -> Option<HostPort> {
        let mut way = locked(&self.way);
        let detour = way.detour.take();
        way.asking = detour.is_some();
        detour.or_else(|| match &self.to {
            To::Slot(slot) => self.dialer.route(*slot),
            To::Node(node) => Some(node.clone()),
        })
    }

    /// Sends the next attempt to the node that has the keys.
    fn redirect(&self, Redirection { slot, node, once }: Redirection) -> Fault {
        let mut way = locked(&self.way);
        way.redirections += 1;
        if way.redirections > MOST_REDIRECTIONS {
            way.redirections = 0;
            return Fault::spent(format!(
                "the nodes of the cluster do not agree on which of them has the keys (last {node})"
            ));
        }
        let fault = Fault::unavailable(format!("{node} has the keys")).helped_by(Retry::OtherNode);
        if once {
            way.detour = Some(node);
        } else {
            self.dialer.learn(slot, node);
        }
        fault
    }
}

impl Client {
    pub(super) fn new(config: RedisConfig, clock: Clock) -> Self {
        let link = Link::new(Dialer::new(config.clone()), clock);
        Self { config, clock, link, sends_whole: AtomicBool::default(), hang_ups: AtomicU32::default() }
    }

    /// Creates a client of the same service that shares no connection with this one.
    pub(super) fn apart(&self) -> Self {
        Self::new(self.config.clone(), self.clock)
    }

    /// Returns the steps that request notifications over `connection`, with the options `tracking`; none if that was
    /// decided before. After [`TELLING`] connections in a row were closed at this request, the next one omits it.
    pub(super) fn listening<const N: usize>(
        &self,
        connection: &Connection,
        tracking: [&str; N],
    ) -> Vec<Call> {
        if self.hang_ups.load(Ordering::Relaxed) >= TELLING {
            connection.answered(None, None);
        }
        if connection.can_notify.get().is_some() {
            return Vec::new();
        }
        vec![Call::command([HELLO, "3"]), Call::command(tracking)]
    }

    /// Executes `steps` at the node that has `slot`, until `deadline`. An error reply to a script is an error; other
    /// error replies are returned. Steps may be executed repeatedly, and also after an error, so they must be
    /// idempotent.
    pub(super) async fn call(
        &self,
        slot: Option<u16>,
        deadline: Moment,
        patience: Patience,
        steps: impl Fn(&Connection) -> Vec<Call> + Send + Sync,
    ) -> FaultResult<Answer> {
        self.ask(To::Slot(slot), deadline, patience, false, steps).await
    }

    /// Executes `steps` like [`Client::call`]; if `strict`, an error reply to any step is an error.
    async fn ask(
        &self,
        to: To,
        deadline: Moment,
        patience: Patience,
        strict: bool,
        steps: impl Fn(&Connection) -> Vec<Call> + Send + Sync,
    ) -> FaultResult<Answer> {
        let dialer = &self.link.dial;
        let route = Route { dialer, to, way: Mutex::default() };
        let node = || route.next();
        // From this moment keys that are still moving are an error for a caller without patience.
        let known_at = if patience == Patience::Once { self.clock.now() + MOVING } else { Moment::NEVER };
        let request = |connection: Arc<Connection>| {
            let (steps, asking) = (steps(&connection), locked(&route.way).asking);
            let (sent, told) = (self.clock.now(), connection.notified_count());
            let route = &route;
            async move {
                match self.replies(&connection, &steps, asking, strict).await {
                    Ok(replies) => {
                        if steps.iter().any(Call::frees) {
                            connection.nudge();
                        }
                        Ok(Answer { replies, connection, sent, told, detour: asking })
                    }
                    Err(Setback::Redirected(redirection)) => Err(route.redirect(redirection)),
                    Err(Setback::Fault(fault)) => {
                        locked(&route.way).redirections = 0;
                        let is_answer = fault.retry == Retry::Again && sent >= known_at;
                        Err(if is_answer { fault.helped_by(Retry::Nothing) } else { fault })
                    }
                }
            }
        };
        let answer = self.link.call(deadline, patience, node, request).await;
        if answer.as_ref().is_err_and(Fault::is_spent) {
            // The slots of a silent node may have moved to other nodes.
            dialer.forget_routes();
        }
        answer
    }

    /// Executes one step and returns its reply.
    pub(super) async fn one(
        &self,
        to: To,
        deadline: Moment,
        patience: Patience,
        step: Call,
    ) -> FaultResult<Value> {
        let steps = move |_: &Connection| vec![step.clone()];
        let answer = self.ask(to, deadline, patience, true, steps).await?;
        answer.replies.into_iter().next().ok_or_else(|| fault::nonsense("no reply"))
    }

    /// Returns the replies to `steps`; `asking` if the keys are moving to this node.
    async fn replies(
        &self,
        connection: &Connection,
        steps: &[Call],
        asking: bool,
        strict: bool,
    ) -> Result<Vec<Value>, Setback> {
        let Some(verb) = steps.first().map(Call::verb) else { return Ok(Vec::new()) };
        for whole in [self.sends_whole.load(Ordering::Relaxed), true] {
            let (bytes, replies) = packed(steps, asking, whole);
            let replies = connection.exchange(bytes, replies).await;
            let is_closed = replies.as_ref().is_err_and(|fault| fault.code == HUNG_UP);
            let is_refusal = is_closed && verb == HELLO;
            if is_refusal {
                self.hang_ups.fetch_add(1, Ordering::Relaxed);
            } else if is_closed || verb == HELLO {
                self.hang_ups.store(0, Ordering::Relaxed);
            }
            let replies = replies.map_err(|fault| {
                let fault = fault::unanswered(fault, verb);
                // Another connection is tried, finally without this request.
                if is_refusal { fault.helped_by(Retry::OtherNode) } else { fault }
            });
            if let Some(replies) = self.sorted(connection, steps, asking, strict, replies)? {
                return Ok(replies);
            }
        }
        Err(Setback::Fault(fault::nonsense("NOSCRIPT to a whole script")))
    }

    /// Returns the replies to `steps` among all; `None` if the server does not know one of the scripts.
    fn sorted(
        &self,
        connection: &Connection,
        steps: &[Call],
        asking: bool,
        strict: bool,
        replies: FaultResult<Vec<Value>>,
    ) -> Result<Option<Vec<Value>>, Setback> {
        let each = each(asking);
        let replies = replies.map_err(Setback::Fault)?;
        let replies: Vec<Value> = replies.into_iter().skip(each - 1).step_by(each).collect();
        let mut known = true;
        for (step, reply) in steps.iter().zip(&replies) {
            let Value::ServerError(error) = reply else { continue };
            let script = strict || matches!(step, Call::Script { .. });
            let once = error.code() == "ASK";
            match error.code() {
                "NOSCRIPT" => known = false,
                _ if fault::is_missing(error, "evalsha") => {
                    self.sends_whole.store(true, Ordering::Relaxed);
                    known = false;
                }
                "MOVED" | "ASK" if self.config.is_cluster() && (script || !asking && !once) => {
                    let details = error.details().unwrap_or_default();
                    let redirection = cluster::redirection(details, once, connection);
                    return Err(redirection.map_or_else(Setback::Fault, Setback::Redirected));
                }
                _ if script => return Err(Setback::Fault(self.refusal(error))),
                _ => {}
            }
        }
        Ok(known.then_some(replies))
    }

    /// Returns the nodes of a cluster that have slots, each with some of them; `None` for a single server.
    ///
    /// Errors: also if the list would be incomplete.
    pub(super) async fn slots(
        &self,
        deadline: Moment,
    ) -> FaultResult<Option<Vec<(RangeInclusive<u16>, HostPort)>>> {
        if !self.config.is_cluster() {
            return Ok(None);
        }
        let steps = |_: &Connection| vec![Call::command(["CLUSTER", "SLOTS"])];
        let answer = self.ask(To::Slot(None), deadline, Patience::Once, true, steps).await?;
        cluster::nodes(answer.replies.first().unwrap_or(&Value::Nil), &answer.connection).map(Some)
    }

    /// Returns all nodes that have keys; `None` stands for a single server.
    pub(super) async fn all_nodes(&self, deadline: Moment) -> FaultResult<Vec<Option<HostPort>>> {
        let nodes = self.slots(deadline).await?;
        Ok(nodes.map_or_else(|| vec![None], |nodes| nodes.into_iter().map(|(_, node)| Some(node)).collect()))
    }

    /// Returns the fault for an error reply; in a cluster another node may help.
    fn refusal(&self, error: &ServerError) -> Fault {
        let fault = fault::of(error);
        let is_of_a_node = fault.kind == ErrorKind::Denied
            || matches!(error.code(), "LOADING" | "CLUSTERDOWN" | "MASTERDOWN");
        if !self.config.is_cluster() || !is_of_a_node {
            return fault;
        }
        self.link.dial.forget_routes();
        fault.helped_by(Retry::OtherServer)
    }
}

/// Returns the number of commands for each step.
fn each(asking: bool) -> usize {
    if asking { 2 } else { 1 }
}

/// Returns the encoded `steps`, and the number of replies.
fn packed(steps: &[Call], asking: bool, whole: bool) -> (Vec<u8>, usize) {
    let mut bytes = Vec::with_capacity(1024);
    for step in steps {
        if asking {
            // ASKING applies to one command.
            Call::command(["ASKING"]).pack(whole, &mut bytes);
        }
        step.pack(whole, &mut bytes);
    }
    (bytes, steps.len() * each(asking))
}

enum Setback {
    Fault(Fault),
    Redirected(Redirection),
}
