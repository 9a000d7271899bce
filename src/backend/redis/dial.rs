//! Opening connections.

use std::sync::{Arc, Mutex};

use redis::{FromRedisValue, Role, Value, from_redis_value_ref};
use tokio::net::UnixStream;

use super::config::{RedisConfig, Topology};
use super::connection::Connection;
use super::fault;
use super::script::Call;
use crate::lock::{ErrorKind, Reason};
use crate::net::address::HostPort;
use crate::net::cause::{self, Manner};
use crate::net::fault::{Fault, FaultResult};
use crate::net::link::{Dial, Stage};
use crate::net::socket::unmade;
use crate::net::tls;
use crate::sync::locked;

/// How to recognise Redis.
const MANNER: Manner = Manner {
    service: "Redis",
    encryption: "does it want rediss://?",
    // In the array form, because proxies do not accept inline commands.
    hello: b"*1\r\n$4\r\nPING\r\n",
    is_own: |answer| matches!(answer, [b'+' | b'-', ..]),
};

/// Connects to the servers, and knows which node of a cluster had the keys last.
#[derive(Debug)]
pub(super) struct Dialer {
    config: RedisConfig,
    route: Mutex<Option<HostPort>>,
}

impl Dialer {
    pub(super) fn new(config: RedisConfig) -> Self {
        Self { config, route: Mutex::default() }
    }

    /// Returns the node that had the keys last, if known.
    pub(super) fn route(&self) -> Option<HostPort> {
        locked(&self.route).clone()
    }

    /// Records that `node` has the keys, or that no node is known to.
    pub(super) fn learn(&self, node: Option<HostPort>) {
        *locked(&self.route) = node;
    }

    async fn connect(
        &self,
        node: Option<&HostPort>,
        server: usize,
        stage: &Stage,
    ) -> FaultResult<Connection> {
        let config = &self.config;
        let connection = match (node, &config.topology) {
            (None, Topology::Socket(path)) => {
                let peer = format!("unix:{}", path.display());
                let stream = UnixStream::connect(path).await;
                let stream = stream.map_err(|error| unmade(cause::unreached(&peer, &error), &error))?;
                Connection::over(Box::new(stream), peer)
            }
            (None, Topology::Sentinel(master)) => {
                to_host(config, &master_by(config, &config.hosts[server], master, stage).await?, stage)
                    .await?
            }
            (node, _) => to_host(config, node.unwrap_or(&config.hosts[server]), stage).await?,
        };
        greet(config, connection, stage).await
    }
}

impl Dial for Dialer {
    type Connection = Connection;
    /// `None` is the server of the address.
    type Node = Option<HostPort>;

    fn servers(&self, node: &Self::Node) -> usize {
        if node.is_some() { 1 } else { self.config.hosts.len().max(1) }
    }

    fn place(&self, node: &Self::Node, server: usize) -> String {
        let host = node.as_ref().or_else(|| self.config.hosts.get(server));
        host.map_or_else(|| self.config.identity(), ToString::to_string)
    }

    async fn dial(&self, node: &Self::Node, server: usize, stage: &Stage) -> FaultResult<Arc<Connection>> {
        let connected = self.connect(node.as_ref(), server, stage).await;
        if connected.is_err() {
            // The slots of a node that is gone may have moved to other nodes.
            self.learn(None);
        }
        connected.map(Arc::new)
    }

    async fn is_usable(&self, connection: &Connection) -> bool {
        connection.pipeline.is_open()
    }

    fn peer(&self, connection: &Connection) -> String {
        connection.pipeline.peer.clone()
    }

    async fn look(&self) -> Option<Fault> {
        let servers: Vec<String> = self.config.hosts.iter().map(ToString::to_string).collect();
        cause::of_all(&servers, &MANNER, self.config.tls.is_some()).await
    }
}

/// Asks the sentinel at `host` for the master of that name. It may ignore the login: not each sentinel has one.
async fn master_by(
    config: &RedisConfig,
    host: &HostPort,
    master: &str,
    stage: &Stage,
) -> FaultResult<HostPort> {
    let connection = to_host(config, host, stage).await?;
    let mut steps: Vec<Call> = login(config)?.into_iter().collect();
    for login in &mut steps {
        login.may_fail = true;
    }
    steps.push(Call::command(["SENTINEL", "GET-MASTER-ADDR-BY-NAME", master]));
    let replies = ask(&connection, &steps, stage).await.map_err(|fault| match fault.kind {
        ErrorKind::Denied if steps.len() > 1 => refused_login().at(host),
        _ => fault,
    })?;
    let unknown = || Fault::new(ErrorKind::Invalid, format!("{host} knows no master called {master}"));
    let (host, port) = replies.last().and_then(parsed).ok_or_else(unknown)?;
    Ok(HostPort { host, port })
}

fn refused_login() -> Fault {
    let reason = Reason::from("this sentinel does not accept the user and password of the server");
    let advice = "give it the same ones, or none (requirepass and ACL SETUSER in its configuration)";
    Fault::new(ErrorKind::Denied, reason.advising(advice))
}

async fn to_host(config: &RedisConfig, at: &HostPort, stage: &Stage) -> FaultResult<Connection> {
    let stream = tls::connect(at, config.tls.as_ref()).await?;
    if config.tls.is_some() {
        stage.answered();
    }
    Ok(Connection::over(stream, at.to_string()))
}

/// Returns the login command, if a password is given.
fn login(config: &RedisConfig) -> FaultResult<Option<Call>> {
    let Some(password) = &config.password else { return Ok(None) };
    let (user, password) = (config.user.as_deref().into_iter(), password.reveal()?);
    let words = ["AUTH"].into_iter().chain(user).chain([password.as_str()]);
    Ok(Some(Call::command(words)))
}

/// Logs in and selects the database. It waits for the answers: after a refused login further commands would run as the
/// default user, and after a refused selection in database 0.
async fn greet(config: &RedisConfig, connection: Connection, stage: &Stage) -> FaultResult<Connection> {
    let mut steps: Vec<Call> = login(config)?.into_iter().collect();
    if config.database != 0 {
        steps.push(Call::command(["SELECT", &config.database.to_string()]));
    }
    if matches!(config.topology, Topology::Sentinel(_)) {
        // A user that lacks the right to it learns from the first write whether the server is a replica.
        steps.push(Call::attempt(["ROLE"]));
    }
    if steps.is_empty() {
        return Ok(connection);
    }
    let replies = ask(&connection, &steps, stage).await?;
    if let Some(Role::Replica { .. }) = replies.last().and_then(parsed) {
        return Err(Fault::spent(Reason::of(&connection.pipeline.peer, "is not the master any more")));
    }
    Ok(connection)
}

/// Sends `steps`. An error reply is an error, unless its step may fail.
async fn ask(connection: &Connection, steps: &[Call], stage: &Stage) -> FaultResult<Vec<Value>> {
    let peer = &connection.pipeline.peer;
    let replies = connection.exchange(steps, true).await.map_err(|fault| fault.at(peer))?;
    stage.answered();
    for (step, reply) in steps.iter().zip(&replies) {
        if let Value::ServerError(error) = reply
            && !step.may_fail
        {
            return Err(fault::of(error).at(peer));
        }
    }
    Ok(replies)
}

/// Returns `reply` as a value of this type, if it is one.
pub(super) fn parsed<T: FromRedisValue>(reply: &Value) -> Option<T> {
    from_redis_value_ref(reply).ok()
}

/// Returns a reply as text.
pub(super) fn text(reply: &Value) -> Option<String> {
    parsed(reply)
}

/// Returns the value of a lock's key. Other programs' clients may set it to any bytes.
pub(super) fn value_of(reply: &Value) -> Option<String> {
    match reply {
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        other => text(other),
    }
}
