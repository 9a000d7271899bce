//! Requests to the service, at the server that has the keys at the moment.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::{ServerError, Value};

use super::config::RedisConfig;
use super::connection::{Connection, Heard};
use super::dial::Dialer;
use super::fault::{self, HUNG_UP};
use super::script::Call;
use crate::clock::Clock;
use crate::lock::{ErrorKind, Moment, Reason};
use crate::net::address::HostPort;
use crate::net::fault::{Fault, FaultResult, Retry};
use crate::net::link::Link;
use crate::net::request::Patience;
use crate::sync::locked;

/// How long to wait for keys that are moving before that is an error: moving a few takes a millisecond.
const MOVING: Duration = Duration::from_secs(1);

/// The connections of one client.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) config: RedisConfig,
    pub(super) clock: Clock,
    pub(super) link: Link<Dialer>,
}

/// Requests notifications of explicitly chosen keys, except of this client's own changes.
pub(super) const OPTIN: &[&str] = &["CLIENT", "TRACKING", "ON", "OPTIN", "NOLOOP"];

/// Replies, and the connection that they came from.
pub(super) struct Answer {
    pub(super) replies: Vec<Value>,
    pub(super) connection: Arc<Connection>,
    /// When the request was sent.
    pub(super) sent: Moment,
    /// Where the server reports changes since then, if it does.
    pub(super) heard: Option<Heard>,
}

/// The node of a request.
#[derive(Clone, Debug)]
pub(super) enum To {
    /// The node that has this slot; any node if none has it.
    Slot(Option<u16>),
    /// Exactly this node.
    Node(HostPort),
}

/// The redirections of a request so far.
#[derive(Debug, Default)]
struct Way {
    /// The node for the next attempt only.
    detour: Option<HostPort>,
    /// Whether the request was sent to such a node.
    asking: bool,
    was_redirected: bool,
}

impl Way {
    /// Begins the next attempt, and returns the node only for this one.
    fn next(&mut self) -> Option<HostPort> {
        let detour = self.detour.take();
        self.asking = detour.is_some();
        detour
    }

    /// Returns the fault of an attempt that was redirected because of `what`. The nodes may disagree for a while.
    fn redirected(&mut self, what: String) -> Fault {
        let retry = if self.was_redirected { Retry::Again } else { Retry::OtherNode };
        self.was_redirected = true;
        Fault::unavailable(what).helped_by(retry)
    }
}

impl Client {
    pub(super) fn new(config: RedisConfig, clock: Clock) -> Self {
        let link = Link::new(Dialer::new(config.clone()), clock);
        Self { config, clock, link }
    }

    /// Creates a client of the same service that shares no connection with this one.
    pub(super) fn apart(&self) -> Self {
        Self::new(self.config.clone(), self.clock)
    }

    /// Requests notifications with the options `tracking` over the connection to the node that has `slot`, unless that
    /// was done before. Returns whether there will be any.
    pub(super) async fn listen(
        &self,
        slot: Option<u16>,
        deadline: Moment,
        tracking: &[&str],
    ) -> FaultResult<bool> {
        let route = self.link.dial.route(slot);
        let open = self.link.opened_for(&route);
        if let Some(tells) = open.and_then(|connection| connection.can_notify.get().copied()) {
            return Ok(tells);
        }
        let steps = [Call::attempt(["HELLO", "3"]), Call::attempt(tracking)];
        match self.call(slot, deadline, Patience::Once, &steps).await {
            Ok(Answer { replies, connection, .. }) => {
                // Without HELLO a server accepts the latter and reports nothing.
                let tells = matches!(replies.first(), Some(Value::Map(_)));
                Ok(connection.can_notify(tells && replies.get(1) == Some(&Value::Okay)))
            }
            // Proxies close the connection at unknown commands. The request was sent over two.
            Err(fault) if fault.code == HUNG_UP => Ok(self.link.connection(&route).await?.can_notify(false)),
            Err(fault) => Err(fault),
        }
    }

    /// Executes `steps` at the node that has `slot`, until `deadline`. An error reply is an error, unless its step may
    /// fail. Steps may be executed repeatedly, and also after an error, so they must be idempotent.
    pub(super) async fn call(
        &self,
        slot: Option<u16>,
        deadline: Moment,
        patience: Patience,
        steps: &[Call],
    ) -> FaultResult<Answer> {
        self.ask(&To::Slot(slot), deadline, patience, steps).await
    }

    /// Executes one step and returns its reply.
    pub(super) async fn one(
        &self,
        to: &To,
        deadline: Moment,
        patience: Patience,
        step: Call,
    ) -> FaultResult<Value> {
        let answer = self.ask(to, deadline, patience, &[step]).await?;
        answer.replies.into_iter().next().ok_or_else(|| fault::nonsense("no reply"))
    }

    async fn ask(
        &self,
        to: &To,
        deadline: Moment,
        patience: Patience,
        steps: &[Call],
    ) -> FaultResult<Answer> {
        let (clock, dialer) = (self.clock, &self.link.dial);
        let way = Mutex::new(Way::default());
        let node = || {
            locked(&way).next().or_else(|| match to {
                To::Slot(slot) => dialer.route(*slot),
                To::Node(node) => Some(node.clone()),
            })
        };
        // From this moment keys that are still moving are an error for a caller without patience.
        let known_at = if patience == Patience::Once { clock.now() + MOVING } else { Moment::NEVER };
        let request = |connection: Arc<Connection>| {
            let way = &way;
            async move {
                let (sent, count) = (clock.now(), connection.notified_count());
                match self.replies(&connection, steps, way).await {
                    Ok(replies) => {
                        let tells = connection.can_notify.get() == Some(&true);
                        let heard = tells.then(|| Heard { connection: Arc::clone(&connection), count });
                        Ok(Answer { replies, connection, sent, heard })
                    }
                    Err(fault) if fault.retry == Retry::Again && sent >= known_at => {
                        Err(fault.helped_by(Retry::Nothing))
                    }
                    Err(fault) => Err(fault),
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

    /// Returns the replies to `steps`. Scripts are sent by their hashes, and again as text if the server does not know
    /// them.
    async fn replies(
        &self,
        connection: &Connection,
        steps: &[Call],
        way: &Mutex<Way>,
    ) -> FaultResult<Vec<Value>> {
        let asking = locked(way).asking;
        let verb = steps.first().map_or("", Call::verb);
        for whole in [false, true] {
            let mut bytes = Vec::with_capacity(1024);
            for step in steps {
                if asking {
                    // ASKING applies to one command.
                    Call::command(["ASKING"]).pack(whole, &mut bytes);
                }
                step.pack(whole, &mut bytes);
            }
            let each = 1 + usize::from(asking);
            let replies = connection.exchange(bytes, steps.len() * each).await;
            let replies = replies.map_err(|fault| fault::unanswered(fault, verb))?;
            let replies: Vec<Value> = replies.into_iter().skip(each - 1).step_by(each).collect();
            let is_unknown =
                |reply: &Value| matches!(reply, Value::ServerError(error) if fault::is_unknown_script(error));
            if !whole && replies.iter().any(is_unknown) {
                continue;
            }
            for (step, reply) in steps.iter().zip(&replies) {
                if let Value::ServerError(error) = reply {
                    self.check(step, error, connection, way)?;
                }
            }
            return Ok(replies);
        }
        Err(fault::nonsense("NOSCRIPT to a whole script"))
    }

    /// Returns the fault for an error reply to `step`, if that is one. In a cluster another node may help.
    fn check(
        &self,
        step: &Call,
        error: &ServerError,
        connection: &Connection,
        way: &Mutex<Way>,
    ) -> FaultResult<()> {
        let (is_cluster, details) = (self.config.is_cluster(), error.details().unwrap_or_default());
        let fault = match error.code() {
            "MOVED" if is_cluster => {
                let (slot, node) = redirection(details, connection)?;
                let fault = locked(way).redirected(format!("{node} has the keys"));
                self.link.dial.learn(slot, node);
                fault
            }
            _ if step.may_fail() => return Ok(()),
            "ASK" if is_cluster => {
                let (_, node) = redirection(details, connection)?;
                let mut way = locked(way);
                let fault =
                    way.redirected(format!("the keys of the lock are moving to another node, {node}"));
                way.detour = Some(node);
                fault
            }
            code => {
                let fault = fault::of(error);
                let is_of_a_node = fault.kind == ErrorKind::Denied
                    || matches!(code, "LOADING" | "CLUSTERDOWN" | "MASTERDOWN");
                if is_cluster && is_of_a_node {
                    self.link.dial.forget_routes();
                    fault.helped_by(Retry::OtherServer)
                } else {
                    fault
                }
            }
        };
        Err(fault)
    }
}

/// Parses the rest of `MOVED 3999 127.0.0.1:6381`, or of `ASK`, received over `from`: a slot and its node.
fn redirection(details: &str, from: &Connection) -> FaultResult<(u16, HostPort)> {
    let nonsense = || fault::nonsense(format!("redirected to {details}"));
    let (slot, node) = details.split_once(' ').ok_or_else(nonsense)?;
    let (host, port) = node.rsplit_once(':').ok_or_else(nonsense)?;
    let (slot, port) = (slot.parse().map_err(|_| nonsense())?, port.parse().map_err(|_| nonsense())?);
    Ok((slot, node_at(host, port, from)?))
}

/// Returns the place of a node; an empty host is that of the reporting node, at the end of `from`.
pub(super) fn node_at(host: &str, port: u16, from: &Connection) -> FaultResult<HostPort> {
    if host == "?" {
        let reason = Reason::from("the nodes of the cluster give no address of each other (?)");
        let advice = "set cluster-announce-hostname on each node, or cluster-preferred-endpoint-type ip";
        return Err(Fault::new(ErrorKind::Corrupt, reason.advising(advice)));
    }
    let own = from.peer().rsplit_once(':').map_or("", |(host, _)| host.trim_matches(['[', ']']));
    Ok(HostPort { host: if host.is_empty() { own } else { host }.to_owned(), port })
}
