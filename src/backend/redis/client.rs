//! Requests to the service, at the node that has the keys at the moment.

use std::sync::Arc;
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

/// How long to wait for keys that are moving before that is an error: moving a few takes a millisecond.
const MOVING: Duration = Duration::from_secs(1);

/// The connections of one client.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) config: RedisConfig,
    pub(super) clock: Clock,
    pub(super) link: Link<Dialer>,
}

/// Replies, and the connection that they came from.
pub(super) struct Answer {
    pub(super) replies: Vec<Value>,
    pub(super) connection: Arc<Connection>,
    /// When the request was sent.
    pub(super) sent: Moment,
    /// Where the server reports changes since then, if it does.
    pub(super) heard: Option<Heard>,
}

impl Client {
    pub(super) fn new(config: RedisConfig, clock: Clock) -> Self {
        let link = Link::new(Dialer::new(config.clone()), clock);
        Self { config, clock, link }
    }

    /// Requests notifications with the options `tracking`, unless that was done before over the present connection.
    /// Returns whether there will be any.
    pub(super) async fn listen(&self, deadline: Moment, tracking: &[&str]) -> FaultResult<bool> {
        let route = self.link.dial.route();
        let open = self.link.opened_for(&route);
        if let Some(tells) = open.and_then(|connection| connection.can_notify.get().copied()) {
            return Ok(tells);
        }
        let steps = [Call::attempt(["HELLO", "3"]), Call::attempt(tracking)];
        let (connection, tells) = match self.call(deadline, Patience::Once, &steps).await {
            // Without HELLO a server accepts the latter and reports nothing.
            Ok(Answer { replies, connection, .. }) => {
                (connection, matches!(replies.as_slice(), [Value::Map(_), Value::Okay]))
            }
            // Proxies close the connection at unknown commands. The request was sent over two.
            Err(fault) if fault.code == HUNG_UP => (self.link.connection(&route).await?, false),
            Err(fault) => return Err(fault),
        };
        Ok(*connection.can_notify.get_or_init(|| tells))
    }

    /// Executes `steps` at one node until `deadline`. An error reply is an error, unless its step may fail. Steps may be
    /// executed repeatedly, and also after an error, so they must be idempotent.
    pub(super) async fn call(
        &self,
        deadline: Moment,
        patience: Patience,
        steps: &[Call],
    ) -> FaultResult<Answer> {
        let (dialer, begun) = (&self.link.dial, self.clock.now());
        let request = |connection: Arc<Connection>| async move {
            let (sent, heard) = (self.clock.now(), connection.heard());
            let replies = self.replies(&connection, steps).await.map_err(|fault| match fault.retry {
                Retry::Again if patience == Patience::Once && sent >= begun + MOVING => {
                    fault.helped_by(Retry::Nothing)
                }
                _ => fault,
            })?;
            let heard = Some(heard).filter(|_| connection.can_notify.get() == Some(&true));
            Ok(Answer { replies, connection, sent, heard })
        };
        let answer = self.link.call(deadline, patience, || dialer.route(), request).await;
        if answer.as_ref().is_err_and(Fault::is_spent) {
            // The slots of a silent node may have moved to other nodes.
            dialer.learn(None);
        }
        answer
    }

    /// Returns the replies to `steps`. Scripts are sent by their hashes, and again as text if the server does not know
    /// them.
    async fn replies(&self, connection: &Connection, steps: &[Call]) -> FaultResult<Vec<Value>> {
        let mut replies = connection.exchange(steps, false).await?;
        let is_unknown =
            |reply: &Value| matches!(reply, Value::ServerError(error) if fault::is_unknown_script(error));
        if replies.iter().any(is_unknown) {
            replies = connection.exchange(steps, true).await?;
        }
        for (step, reply) in steps.iter().zip(&replies) {
            if let Value::ServerError(error) = reply {
                self.check(step, error, connection)?;
            }
        }
        Ok(replies)
    }

    /// Returns the fault for an error reply to `step`, if that is one. In a cluster another node may help.
    fn check(&self, step: &Call, error: &ServerError, connection: &Connection) -> FaultResult<()> {
        let is_cluster = self.config.is_cluster();
        if is_cluster && error.code() == "MOVED" {
            let node = redirection(error.details().unwrap_or_default(), connection)?;
            let fault = Fault::unavailable(format!("{node} has the keys")).helped_by(Retry::Again);
            self.link.dial.learn(Some(node));
            return Err(fault);
        }
        if step.may_fail {
            return Ok(());
        }
        let fault = fault::of(error);
        let is_of_a_node = fault.kind == ErrorKind::Denied
            || matches!(error.code(), "LOADING" | "CLUSTERDOWN" | "MASTERDOWN");
        if is_cluster && is_of_a_node {
            self.link.dial.learn(None);
            return Err(fault.helped_by(Retry::OtherServer));
        }
        Err(fault)
    }
}

/// Returns the node in the rest of `MOVED 3999 127.0.0.1:6381`, received over `from`.
fn redirection(details: &str, from: &Connection) -> FaultResult<HostPort> {
    let node = details.split_once(' ').and_then(|(_, node)| node.rsplit_once(':'));
    let node = node.and_then(|(host, port)| Some((host, port.parse().ok()?)));
    let (host, port) = node.ok_or_else(|| fault::nonsense(format!("redirected to {details}")))?;
    node_at(host, port, from)
}

/// Returns the place of a node; an empty host is that of the reporting node, at the end of `from`.
pub(super) fn node_at(host: &str, port: u16, from: &Connection) -> FaultResult<HostPort> {
    if host == "?" {
        let reason = Reason::from("the nodes of the cluster give no address of each other (?)");
        let advice = "set cluster-announce-hostname on each node, or cluster-preferred-endpoint-type ip";
        return Err(Fault::new(ErrorKind::Corrupt, reason.advising(advice)));
    }
    let peer = &from.pipeline.peer;
    let own = peer.rsplit_once(':').map_or("", |(host, _)| host.trim_matches(['[', ']']));
    Ok(HostPort { host: if host.is_empty() { own } else { host }.to_owned(), port })
}
