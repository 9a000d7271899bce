//! Requests to the service, whichever server has the keys at the moment.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
use crate::net::rank::Rank;
use crate::net::request::Patience;

/// How long keys that are moving are waited for before that is an answer: few of them take a millisecond.
const MOVING: Duration = Duration::from_secs(1);
/// How often in a row a request follows what servers of a cluster say of each other.
const MOST_REDIRECTIONS: u32 = 8;

/// The connections of one client.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) config: RedisConfig,
    pub(super) clock: Clock,
    link: Link<Dialer>,
    /// A server has EVAL and not EVALSHA.
    sends_whole: AtomicBool,
    /// How many connections in a row were closed instead of an answer to [`HELLO`].
    hang_ups: AtomicU32,
}

/// Of one connection it cannot be told whether it was closed on account of [`HELLO`].
const TELLING: u32 = 2;

/// Asks for the protocol in which a server tells of changed keys.
const HELLO: &str = "HELLO";
/// Has the server tell of those keys that it is asked to, but not of what this client does itself.
pub(super) const OPTIN: [&str; 5] = ["CLIENT", "TRACKING", "ON", "OPTIN", "NOLOOP"];

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

/// Which node one request is for.
#[derive(Clone, Debug)]
pub(super) enum To {
    /// The one that has this slot; any if it is about none.
    Slot(Option<u16>),
    /// This one and no other.
    Node(HostPort),
}

impl From<Option<HostPort>> for To {
    fn from(node: Option<HostPort>) -> Self {
        node.map_or(Self::Slot(None), Self::Node)
    }
}

/// Which node one request is sent to.
struct Route<'a> {
    dialer: &'a Dialer,
    to: To,
    way: Mutex<Way>,
}

/// How a request has come to where it is.
#[derive(Default)]
struct Way {
    /// The node that is asked this once.
    detour: Option<HostPort>,
    /// It has been sent to such a node.
    asking: bool,
    redirections: u32,
}

impl Route<'_> {
    fn way(&self) -> MutexGuard<'_, Way> {
        self.way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The node that is asked next.
    fn next(&self) -> Option<HostPort> {
        let mut way = self.way();
        let detour = way.detour.take();
        way.asking = detour.is_some();
        detour.or_else(|| match &self.to {
            To::Slot(slot) => self.dialer.route(*slot),
            To::Node(node) => Some(node.clone()),
        })
    }

    /// Has the next attempt go to the node that has what is asked for.
    fn redirect(&self, Redirection { slot, node, once }: Redirection) -> Fault {
        let mut way = self.way();
        way.redirections += 1;
        if way.redirections > MOST_REDIRECTIONS {
            way.redirections = 0;
            return Fault::spent(format!(
                "the nodes of the cluster do not agree on who has the keys (last {node})"
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

    /// One to the same service that shares no connection with this one.
    pub(super) fn apart(&self) -> Self {
        Self::new(self.config.clone(), self.clock)
    }

    /// As [`crate::backend::Backend::connects_as`].
    pub(super) fn connects_as(&self, rank: Rank) {
        self.link.connects_as(rank);
    }

    /// As [`crate::backend::Backend::has_connected`].
    pub(super) fn has_connected(&self) -> bool {
        self.link.opened() > 0
    }

    /// The connection to whoever has `slot`.
    pub(super) async fn connection(&self, slot: Option<u16>) -> FaultResult<Arc<Connection>> {
        self.link.connection(&self.link.dial.route(slot)).await
    }

    /// What has the server tell of changed keys over `connection`, by `tracking`; nothing if it was asked before. Where
    /// [`TELLING`] connections in a row were closed at this question, another one does without.
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

    /// Has `steps` done by whoever has `slot`, by `deadline`. An error among the replies is an error, except of
    /// steps that are no scripts. What was sent may still be done after an error, so steps must bear repetition.
    pub(super) async fn call(
        &self,
        slot: Option<u16>,
        deadline: Moment,
        patience: Patience,
        steps: impl Fn(&Connection) -> Vec<Call> + Send,
    ) -> FaultResult<Answer> {
        self.ask(To::Slot(slot), deadline, patience, false, steps).await
    }

    /// [`Client::call`]; if it is `strict`, an error among the replies is an error of any step.
    async fn ask(
        &self,
        to: To,
        deadline: Moment,
        patience: Patience,
        strict: bool,
        steps: impl Fn(&Connection) -> Vec<Call> + Send,
    ) -> FaultResult<Answer> {
        let dialer = &self.link.dial;
        let route = Route { dialer, to, way: Mutex::default() };
        let node = || route.next();
        // From then on keys that are still moving are an answer to a caller without patience.
        let known_at = if patience == Patience::Once { self.clock.now() + MOVING } else { Moment::NEVER };
        let request = |connection: Arc<Connection>| {
            let (steps, asking) = (steps(&connection), route.way().asking);
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
                        route.way().redirections = 0;
                        let is_answer = fault.retry == Retry::Again && sent >= known_at;
                        Err(if is_answer { fault.helped_by(Retry::Nothing) } else { fault })
                    }
                }
            }
        };
        let answer = self.link.call(deadline, patience, node, request).await;
        if answer.as_ref().is_err_and(Fault::is_spent) {
            // A node that is silent may have left its slots to others.
            dialer.forget_routes();
        }
        answer
    }

    /// The one reply to one step.
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

    /// The replies to `steps`; `asking` of a node to which the keys are moving.
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
                // Another connection does it, in the end without this question.
                if is_refusal { fault.helped_by(Retry::OtherNode) } else { fault }
            });
            if let Some(replies) = self.sorted(connection, steps, asking, strict, replies)? {
                return Ok(replies);
            }
        }
        Err(Setback::Fault(fault::nonsense("NOSCRIPT to a whole script")))
    }

    /// The replies to `steps` among all; `None` if the server does not know one of the scripts.
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

    /// What an error of the service means; in a cluster another node may answer.
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

/// How many commands make a step.
fn each(asking: bool) -> usize {
    if asking { 2 } else { 1 }
}

/// `steps` as they are sent, and how many replies there will be.
fn packed(steps: &[Call], asking: bool, whole: bool) -> (Vec<u8>, usize) {
    let mut bytes = Vec::with_capacity(1024);
    for step in steps {
        if asking {
            // It is good for one command.
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

impl Client {
    /// The nodes of a cluster that have slots, with some of these; `None` of a server alone.
    ///
    /// Errors: also if those would not be all.
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

    /// All that have keys: the nodes of a cluster; a server alone is none by its place.
    pub(super) async fn all_nodes(&self, deadline: Moment) -> FaultResult<Vec<Option<HostPort>>> {
        let nodes = self.slots(deadline).await?;
        Ok(nodes.map_or_else(|| vec![None], |nodes| nodes.into_iter().map(|(_, node)| Some(node)).collect()))
    }
}
