//! The names of the locks that a Redis keeps.

use redis::Value;

use super::client::{Client, To};
use super::dial::text;
use super::fault;
use super::keys::{Naming, QUEUE};
use super::script::Call;
use crate::lock::{LockName, Moment};
use crate::net::address::HostPort;
use crate::net::fault::{Fault, FaultResult};
use crate::net::request::Patience;

/// The number of keys that the server checks in one step of a scan.
const AT_ONCE: &str = "1000";
/// The number of queues read in one exchange.
pub(super) const QUEUES_AT_ONCE: usize = 64;
/// The most numbers tried behind a name to place it in certain slots; one name in 16384 is in each slot.
const MOST_NUMBERS: u32 = 300_000;

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
        let reply = service.one(node.clone(), deadline, Patience::Once, scan).await?;
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
    for node in service.all_nodes(deadline).await? {
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
    let Some(nodes) = service.slots(deadline).await? else { return Ok(vec![name]) };
    let mut names = Vec::new();
    for (slots, node) in nodes {
        let is_there = |name: &LockName| naming.of(name).is_ok_and(|keys| slots.contains(&keys.slot));
        let numbered = |n: u32| format!("{name}-{n}").parse::<LockName>().ok();
        let found = (0..MOST_NUMBERS).filter_map(numbered).find(is_there);
        names.push(found.ok_or_else(|| Fault::nonsense(format!("no name lies in the slots of {node}")))?);
    }
    Ok(names)
}
