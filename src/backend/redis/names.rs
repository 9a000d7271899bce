//! The names of the locks that a Redis keeps, at all nodes if it is a cluster.

use std::ops::RangeInclusive;

use redis::Value;

use super::client::{Client, To, node_at};
use super::connection::Connection;
use super::dial::text;
use super::fault;
use super::keys::{Naming, QUEUE};
use super::script::Call;
use crate::lock::{ErrorKind, LockName, Moment};
use crate::net::address::HostPort;
use crate::net::fault::{Fault, FaultResult};
use crate::net::request::Patience;

/// The number of keys that the server checks in one step of a scan.
const AT_ONCE: &str = "1000";
/// The number of queues read in one exchange.
pub(super) const QUEUES_AT_ONCE: usize = 64;
/// The most numbers tried behind a name to place it in certain slots; one name in 16384 is in each slot.
const MOST_NUMBERS: u32 = 300_000;
/// The number of slots in a cluster.
const SLOTS: u32 = 16_384;

/// Nodes of a cluster that have slots, each with some of them.
type Nodes = Vec<(RangeInclusive<u16>, HostPort)>;

/// Returns the locks that have a key for `part` at one node. One may be listed twice.
pub(super) async fn scan(
    service: &Client,
    naming: &Naming,
    node: Option<HostPort>,
    part: &str,
    deadline: Moment,
) -> FaultResult<Vec<LockName>> {
    let node = node.map_or(To::Slot(None), To::Node);
    let mut names = Vec::new();
    let mut cursor = "0".to_owned();
    loop {
        let scan = Call::command(["SCAN", &cursor, "MATCH", &naming.sides(part), "COUNT", AT_ONCE]);
        let reply = service.one(&node, deadline, Patience::Once, scan).await?;
        let Value::Array(parts) = &reply else { return Err(fault::nonsense("no keys")) };
        let [next, Value::Array(keys)] = parts.as_slice() else { return Err(fault::nonsense("no keys")) };
        names.extend(keys.iter().filter_map(text).filter_map(|key| naming.name_of_side(&key, part)));
        cursor = text(next).ok_or_else(|| fault::nonsense("no cursor"))?;
        if cursor == "0" {
            return Ok(names);
        }
    }
}

/// Returns the names of all locks that have a queue, sorted.
pub(super) async fn all(service: &Client, naming: &Naming, deadline: Moment) -> FaultResult<Vec<LockName>> {
    let mut names = Vec::new();
    let nodes = nodes(service, deadline).await?;
    let nodes = nodes.map_or_else(|| vec![None], |all| all.into_iter().map(|(_, node)| Some(node)).collect());
    for node in nodes {
        names.extend(scan(service, naming, node, QUEUE, deadline).await?);
    }
    names.sort();
    names.dedup();
    Ok(names)
}

/// Implements [`crate::backend::Backend::everywhere`].
pub(super) async fn everywhere(
    service: &Client,
    naming: &Naming,
    name: LockName,
    deadline: Moment,
) -> FaultResult<Vec<LockName>> {
    let Some(nodes) = nodes(service, deadline).await? else { return Ok(vec![name]) };
    let mut names = Vec::new();
    for (slots, node) in nodes {
        let is_there = |name: &LockName| naming.of(name).is_ok_and(|keys| slots.contains(&keys.slot));
        let numbered = |n: u32| format!("{name}-{n}").parse::<LockName>().ok();
        let found = (0..MOST_NUMBERS).filter_map(numbered).find(is_there);
        names.push(found.ok_or_else(|| Fault::nonsense(format!("no name lies in the slots of {node}")))?);
    }
    Ok(names)
}

/// Returns the nodes of a cluster; `None` for a single server.
///
/// Errors: also if the list would be incomplete.
async fn nodes(service: &Client, deadline: Moment) -> FaultResult<Option<Nodes>> {
    if !service.config.is_cluster() {
        return Ok(None);
    }
    let step = Call::command(["CLUSTER", "SLOTS"]);
    let answer = service.call(None, deadline, Patience::Once, &[step]).await?;
    parsed(answer.replies.first().unwrap_or(&Value::Nil), &answer.connection).map(Some)
}

/// Parses the reply to CLUSTER SLOTS, received over `from`: the place of each node that has slots, and some of them.
///
/// Errors: `Unavailable` if slots are served by no node; `Corrupt` if two nodes have one place.
fn parsed(reply: &Value, from: &Connection) -> FaultResult<Nodes> {
    let nonsense = || fault::nonsense("no slots of a cluster");
    let Value::Array(ranges) = reply else { return Err(nonsense()) };
    let (mut found, mut served) = (Vec::<(String, RangeInclusive<u16>, HostPort)>::new(), 0);
    for range in ranges {
        let Value::Array(parts) = range else { return Err(nonsense()) };
        let [first, last, Value::Array(master), ..] = parts.as_slice() else { return Err(nonsense()) };
        let [host, port, id, ..] = master.as_slice() else { return Err(nonsense()) };
        let number = |value: &Value| text(value)?.parse::<u16>().ok();
        let (Some(first), Some(last), Some(port), Some(id)) =
            (number(first), number(last), number(port), text(id))
        else {
            return Err(nonsense());
        };
        served += u32::from(last.saturating_sub(first)) + 1;
        if found.iter().all(|(known, ..)| *known != id) {
            // An unknown host is the null value.
            let node = node_at(&text(host).unwrap_or_default(), port, from)?;
            if found.iter().any(|(.., known)| *known == node) {
                let reason = format!("several nodes of the cluster give {node} as their address");
                return Err(Fault::new(ErrorKind::Corrupt, reason));
            }
            found.push((id, first..=last, node));
        }
    }
    if served != SLOTS {
        return Err(Fault::unavailable(format!("the cluster serves {served} of its {SLOTS} slots")));
    }
    Ok(found.into_iter().map(|(_, slots, node)| (slots, node)).collect())
}
