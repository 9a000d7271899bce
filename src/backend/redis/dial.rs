//! From an address to an open connection.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;
use tokio::net::UnixStream;

use super::config::{RedisConfig, Topology};
use super::connection::Connection;
use super::fault;
use super::script::Step;
use crate::lock::{ErrorKind, Reason};
use crate::net::address::HostPort;
use crate::net::cause::{self, Manner};
use crate::net::connector;
use crate::net::fault::{Fault, FaultResult};

/// How a server tells that it is one.
const MANNER: Manner = Manner {
    service: "Redis",
    encryption: "does it want rediss://?",
    hello: b"PING\r\n",
    is_own: |answer| matches!(answer, [b'+' | b'-', ..]),
};

/// Why nobody answers at the addresses that `config` has; `None` if that cannot be told.
pub(super) async fn why_silent(config: &RedisConfig) -> Option<Fault> {
    let hosts = match &config.topology {
        Topology::Server(host) => std::slice::from_ref(host),
        Topology::Sentinel { sentinels: hosts, .. } | Topology::Cluster(hosts) => hosts,
        Topology::Socket(_) => return None,
    };
    let servers: Vec<String> = hosts.iter().map(ToString::to_string).collect();
    cause::of_all(&servers, &MANNER, config.tls.is_some()).await
}

/// How long one address of several may take.
const ONE_OF_SEVERAL: Duration = Duration::from_secs(1);

/// Opens a connection to the server that `config` means, or to the node of its cluster that is named.
pub(super) async fn dial(config: &RedisConfig, node: Option<&HostPort>) -> FaultResult<Arc<Connection>> {
    let connection = match (node, &config.topology) {
        (Some(node), _) | (None, Topology::Server(node)) => to_host(config, node).await?,
        (None, Topology::Socket(path)) => {
            let peer = format!("unix:{}", path.display());
            let stream = UnixStream::connect(path).await;
            let stream = stream.map_err(|error| Fault::spent(cause::unreached(&peer, &error)))?;
            Connection::over(Box::new(stream), peer)
        }
        (None, Topology::Sentinel { sentinels, master }) => {
            return first(config, sentinels, Some(master)).await;
        }
        (None, Topology::Cluster(nodes)) => return first(config, nodes, None).await,
    };
    greet(config, connection).await
}

/// A connection to the first node that can be reached, or to the master that the first such sentinel knows. What
/// is not about reaching it is everybody's answer.
async fn first(
    config: &RedisConfig,
    hosts: &[HostPort],
    master: Option<&str>,
) -> FaultResult<Arc<Connection>> {
    let mut last = Fault::spent("there is no address");
    for host in hosts {
        last = match tokio::time::timeout(ONE_OF_SEVERAL, by_way_of(config, host, master)).await {
            Ok(Ok(found)) => return Ok(found),
            Ok(Err(fault)) if !fault.kind.is_transient() && fault.kind != ErrorKind::Corrupt => {
                return Err(fault);
            }
            Ok(Err(fault)) => fault,
            Err(_) => Fault::spent(cause::silent(host)),
        };
    }
    Err(last)
}

async fn by_way_of(
    config: &RedisConfig,
    host: &HostPort,
    master: Option<&str>,
) -> FaultResult<Arc<Connection>> {
    let connection = to_host(config, host).await?;
    let Some(master) = master else { return greet(config, connection).await };
    let question = [Step::command(["SENTINEL", "GET-MASTER-ADDR-BY-NAME", master])];
    let replies = ask(&connection, &question).await?;
    let Some(at) = replies.first().and_then(address) else {
        return Err(Fault::new(ErrorKind::Invalid, format!("{host} knows no master called {master}")));
    };
    greet(config, to_host(config, &at).await?).await
}

async fn to_host(config: &RedisConfig, at: &HostPort) -> FaultResult<Connection> {
    let stream = connector::connect(at, config.tls.as_ref()).await?;
    Ok(Connection::over(stream, at.to_string()))
}

/// Says who this is and chooses the database. Waited for, because what follows a refused login would be done as
/// the default user, and after a refused choice in database 0.
async fn greet(config: &RedisConfig, connection: Connection) -> FaultResult<Arc<Connection>> {
    let mut steps = Vec::new();
    if let Some(password) = &config.password {
        let user = config.user.as_deref().into_iter();
        let words = ["AUTH"].into_iter().chain(user).chain([password.reveal()]);
        steps.push(Step::Command(words.map(str::to_owned).collect()));
    }
    if config.database != 0 {
        steps.push(Step::command(["SELECT", &config.database.to_string()]));
    }
    if matches!(config.topology, Topology::Sentinel { .. }) {
        steps.push(Step::command(["ROLE"]));
    }
    if steps.is_empty() {
        return Ok(Arc::new(connection));
    }
    let replies = ask(&connection, &steps).await?;
    let role = match replies.last() {
        Some(Value::Array(role)) => role.first().and_then(text),
        _ => None,
    };
    if role.is_some_and(|role| role != "master") {
        return Err(Fault::spent(Reason::of(&connection.peer(), "is not the master any more")));
    }
    Ok(Arc::new(connection))
}

/// Sends `steps` and takes any error for the answer.
async fn ask(connection: &Connection, steps: &[Step]) -> FaultResult<Vec<Value>> {
    let mut bytes = Vec::new();
    for step in steps {
        step.pack(true, &mut bytes);
    }
    let replies = connection.exchange(bytes, steps.len()).await?;
    for reply in &replies {
        if let Value::ServerError(error) = reply {
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

/// A reply as text.
pub(super) fn text(reply: &Value) -> Option<String> {
    match reply {
        Value::BulkString(bytes) => String::from_utf8(bytes.clone()).ok(),
        Value::SimpleString(text) => Some(text.clone()),
        Value::Okay => Some("OK".to_owned()),
        Value::Int(number) => Some(number.to_string()),
        _ => None,
    }
}

/// What a lock's key says. Other programs' clients may set it to any bytes.
pub(super) fn value_of(reply: &Value) -> Option<String> {
    match reply {
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        other => text(other),
    }
}
