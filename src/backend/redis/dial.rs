//! Opening connections.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use redis::Value;
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

/// Connects to the servers, and knows which nodes of a cluster have which slots.
#[derive(Debug)]
pub(super) struct Dialer {
    config: RedisConfig,
    /// The node that has a slot, as far as reported.
    routes: Mutex<HashMap<u16, HostPort>>,
}

impl Dialer {
    pub(super) fn new(config: RedisConfig) -> Self {
        Self { config, routes: Mutex::default() }
    }

    /// Returns the node that has `slot`, if reported.
    pub(super) fn route(&self, slot: Option<u16>) -> Option<HostPort> {
        locked(&self.routes).get(&slot?).cloned()
    }

    /// Records that `node` has `slot`.
    pub(super) fn learn(&self, slot: u16, node: HostPort) {
        locked(&self.routes).insert(slot, node);
    }

    /// Forgets which nodes have which slots.
    pub(super) fn forget_routes(&self) {
        locked(&self.routes).clear();
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
            self.forget_routes();
        }
        connected.map(Arc::new)
    }

    async fn is_usable(&self, connection: &Connection) -> bool {
        connection.is_open()
    }

    fn peer(&self, connection: &Connection) -> String {
        connection.peer().to_owned()
    }

    async fn look(&self) -> Option<Fault> {
        let servers: Vec<String> = self.config.hosts.iter().map(ToString::to_string).collect();
        cause::of_all(&servers, &MANNER, self.config.tls.is_some()).await
    }
}

/// Asks the sentinel at `host` for the master of that name. The login is sent only to a sentinel that refuses a client
/// without one.
async fn master_by(
    config: &RedisConfig,
    host: &HostPort,
    master: &str,
    stage: &Stage,
) -> FaultResult<HostPort> {
    let connection = to_host(config, host, stage).await?;
    let question = Call::command(["SENTINEL", "GET-MASTER-ADDR-BY-NAME", master]);
    let asked = ask(&connection, std::slice::from_ref(&question), stage).await;
    let replies = match (asked, login(config)?) {
        (Err(fault), Some(login)) if fault.kind == ErrorKind::Denied => {
            let refused = |fault: Fault| match fault.kind {
                ErrorKind::Denied => refused_login().at(host),
                _ => fault,
            };
            ask(&connection, &[login, question], stage).await.map_err(refused)?
        }
        (asked, _) => asked?,
    };
    let unknown = || Fault::new(ErrorKind::Invalid, format!("{host} knows no master called {master}"));
    replies.last().and_then(address).ok_or_else(unknown)
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
    let role = match replies.last() {
        Some(Value::Array(role)) => role.first().and_then(text),
        _ => None,
    };
    if role.is_some_and(|role| role != "master") {
        return Err(Fault::spent(Reason::of(&connection.peer(), "is not the master any more")));
    }
    Ok(connection)
}

/// Sends `steps`. An error reply is an error, unless its step may fail.
async fn ask(connection: &Connection, steps: &[Call], stage: &Stage) -> FaultResult<Vec<Value>> {
    let mut bytes = Vec::new();
    for step in steps {
        step.pack(true, &mut bytes);
    }
    let verb = steps.first().map_or("", Call::verb);
    let replies = connection.exchange(bytes, steps.len()).await;
    let replies = replies.map_err(|fault| fault::unanswered(fault, verb).at(&connection.peer()))?;
    stage.answered();
    for (step, reply) in steps.iter().zip(&replies) {
        if let Value::ServerError(error) = reply
            && !step.may_fail()
        {
            return Err(fault::of(error).at(&connection.peer()));
        }
    }
    Ok(replies)
}

fn address(reply: &Value) -> Option<HostPort> {
    let Value::Array(parts) = reply else { return None };
    let [host, port] = parts.as_slice() else { return None };
    Some(HostPort { host: text(host)?, port: text(port)?.parse().ok()? })
}

/// Returns a reply as text.
pub(super) fn text(reply: &Value) -> Option<String> {
    match reply {
        Value::BulkString(bytes) => String::from_utf8(bytes.clone()).ok(),
        Value::SimpleString(text) => Some(text.clone()),
        Value::Okay => Some("OK".to_owned()),
        Value::Int(number) => Some(number.to_string()),
        _ => None,
    }
}

/// Returns the value of a lock's key. Other programs' clients may set it to any bytes.
pub(super) fn value_of(reply: &Value) -> Option<String> {
    match reply {
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        other => text(other),
    }
}
