//! From an address to an open connection.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use redis::Value;
use tokio::net::{TcpStream, UnixStream};

use super::config::{HostPort, Place, RedisConfig};
use super::connection::{Connection, Stream};
use super::fault::{Fault, Outcome};
use super::script::Step;
use crate::backend::approach;
use crate::backend::cause::{self, Cause, Manner};
use crate::lock::ErrorKind;

/// How a server tells that it is one.
const MANNER: Manner = Manner {
    service: "Redis",
    encryption: "does it want rediss://?",
    hello: b"PING\r\n",
    is_own: |answer| matches!(answer, [b'+' | b'-', ..]),
};

/// Why nobody answers at the addresses that `config` has; `None` if that cannot be told.
pub(super) async fn why_silent(config: &RedisConfig) -> Option<Cause> {
    let hosts = match &config.place {
        Place::Server(host) => std::slice::from_ref(host),
        Place::Sentinel { sentinels: hosts, .. } | Place::Cluster(hosts) => hosts,
        Place::Socket(_) => return None,
    };
    let servers: Vec<String> = hosts.iter().map(ToString::to_string).collect();
    cause::of_all(&servers, &MANNER, config.tls.is_some()).await
}

/// How long one address of several may take.
const ONE_OF_SEVERAL: Duration = Duration::from_secs(1);

/// Begins to connect to the one server that `config` means, if its address is a number; does not wait, and needs no
/// runtime.
pub(super) fn begin(config: &RedisConfig) -> Option<std::net::TcpStream> {
    let Place::Server(at) = &config.place else { return None };
    approach::begin(SocketAddr::new(at.host.parse().ok()?, at.port))
}

/// Opens a connection to the server that `config` means, unless one is `begun`, or to the node of its cluster that is
/// named.
pub(super) async fn dial(
    config: &RedisConfig,
    node: Option<&HostPort>,
    begun: Option<std::net::TcpStream>,
) -> Outcome<Arc<Connection>> {
    let connection = match (node, &config.place) {
        (None, Place::Server(node)) => match begun {
            Some(begun) => over_tcp(config, node, approach::end(begun).await).await?,
            None => to_host(config, node).await?,
        },
        (Some(node), _) => to_host(config, node).await?,
        (None, Place::Socket(path)) => {
            let peer = format!("unix:{}", path.display());
            let stream = UnixStream::connect(path).await;
            let stream = stream.map_err(|error| Fault::spent(cause::unreached(&peer, &error)))?;
            Connection::over(Box::new(stream), peer)
        }
        (None, Place::Sentinel { sentinels, master }) => return first(config, sentinels, Some(master)).await,
        (None, Place::Cluster(nodes)) => return first(config, nodes, None).await,
    };
    greet(config, connection).await
}

/// A connection to the first node that can be reached, or to the master that the first such sentinel knows. What
/// is not about reaching it is everybody's answer.
async fn first(config: &RedisConfig, hosts: &[HostPort], master: Option<&str>) -> Outcome<Arc<Connection>> {
    let mut last = Fault::spent("there is no address");
    for host in hosts {
        last = match tokio::time::timeout(ONE_OF_SEVERAL, by_way_of(config, host, master)).await {
            Ok(Ok(found)) => return Ok(found),
            Ok(Err(fault)) if !matches!(fault.kind, ErrorKind::Unavailable | ErrorKind::Corrupt) => {
                return Err(fault);
            }
            Ok(Err(fault)) => fault,
            Err(_) => Fault::spent(cause::silent(host)),
        };
    }
    Err(last)
}

async fn by_way_of(config: &RedisConfig, host: &HostPort, master: Option<&str>) -> Outcome<Arc<Connection>> {
    let connection = to_host(config, host).await?;
    let Some(master) = master else { return greet(config, connection).await };
    let question = [Step::command(["SENTINEL", "GET-MASTER-ADDR-BY-NAME", master])];
    let replies = ask(&connection, &question).await?;
    let Some(at) = replies.first().and_then(address) else {
        return Err(Fault::new(ErrorKind::Invalid, format!("{host} knows no master called {master}")));
    };
    greet(config, to_host(config, &at).await?).await
}

async fn to_host(config: &RedisConfig, at: &HostPort) -> Outcome<Connection> {
    over_tcp(config, at, tcp(at).await).await
}

async fn over_tcp(config: &RedisConfig, at: &HostPort, stream: io::Result<TcpStream>) -> Outcome<Connection> {
    let stream = stream.map_err(|error| Fault::spent(cause::unreached(at, &error)))?;
    // A request is one small write; waiting for more to send would only be late.
    stream.set_nodelay(true).map_err(Fault::spent)?;
    let stream: Box<dyn Stream> = match &config.tls {
        None => Box::new(stream),
        Some(tls) => {
            let encrypted = super::tls::encrypt(tls, &at.host, stream).await;
            Box::new(encrypted.map_err(|fault| Fault { reason: format!("{at}: {}", fault.reason), ..fault })?)
        }
    };
    Ok(Connection::over(stream, at.to_string()))
}

/// Without asking the system for what needs no asking: that takes a thread.
async fn tcp(at: &HostPort) -> io::Result<TcpStream> {
    if let Ok(address) = at.host.parse::<IpAddr>() {
        return TcpStream::connect(SocketAddr::new(address, at.port)).await;
    }
    if at.host.eq_ignore_ascii_case("localhost") {
        let four = TcpStream::connect(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), at.port)).await;
        return match four {
            Ok(stream) => Ok(stream),
            Err(error) => {
                let six = TcpStream::connect(SocketAddr::new(Ipv6Addr::LOCALHOST.into(), at.port)).await;
                six.map_err(|_| error)
            }
        };
    }
    TcpStream::connect((at.host.as_str(), at.port)).await
}

/// Says who this is and chooses the database. Waited for, because what follows a refused login would be done as
/// the default user, and after a refused choice in database 0.
async fn greet(config: &RedisConfig, connection: Connection) -> Outcome<Arc<Connection>> {
    let mut steps = Vec::new();
    if let Some(password) = &config.password {
        let user = config.user.as_deref().into_iter();
        let words = ["AUTH"].into_iter().chain(user).chain([password.reveal()]);
        steps.push(Step::Command(words.map(str::to_owned).collect()));
    } else if config.user.is_some() {
        return Err(Fault::new(
            ErrorKind::Denied,
            "a user was given without a password; see --password-file",
        ));
    }
    if config.database != 0 {
        steps.push(Step::command(["SELECT", &config.database.to_string()]));
    }
    if matches!(config.place, Place::Sentinel { .. }) {
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
        return Err(Fault::spent(format!("{} is no master any more", connection.peer)));
    }
    Ok(Arc::new(connection))
}

/// Sends `steps` and takes any error for the answer.
async fn ask(connection: &Connection, steps: &[Step]) -> Outcome<Vec<Value>> {
    let mut bytes = Vec::new();
    for step in steps {
        step.pack(true, &mut bytes);
    }
    let replies = connection.exchange(bytes, steps.len()).await?;
    for reply in &replies {
        if let Value::ServerError(error) = reply {
            let fault = Fault::of(error);
            return Err(Fault { reason: format!("{}: {}", connection.peer, fault.reason), ..fault });
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
