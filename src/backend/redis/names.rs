//! The names of the locks that a Redis keeps, at all nodes if it is a cluster.

use std::collections::{BTreeSet, HashMap};

use redis::Value;

use super::client::{Client, node_at};
use super::dial::{parsed, text};
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

/// Returns the locks that have a key for `part` at one server. One may be listed twice.
pub(super) async fn scan(
    service: &Client,
    naming: &Naming,
    part: &str,
    deadline: Moment,
) -> FaultResult<Vec<LockName>> {
    let mut names = Vec::new();
    let mut cursor = "0".to_owned();
    loop {
        let scan = Call::command(["SCAN", &cursor, "MATCH", &naming.sides(part), "COUNT", AT_ONCE]);
        let answer = service.call(deadline, Patience::Once, &[scan]).await?;
        let found: Option<(String, Vec<Value>)> = answer.replies.first().and_then(parsed);
        let (next, keys) = found.ok_or_else(|| fault::nonsense("no keys"))?;
        names.extend(keys.iter().filter_map(text).filter_map(|key| naming.name_of_side(&key, part)));
        if next == "0" {
            return Ok(names);
        }
        cursor = next;
    }
}

/// Returns the names of all locks that have a queue, sorted.
pub(super) async fn all(service: &Client, naming: &Naming, deadline: Moment) -> FaultResult<Vec<LockName>> {
    let mut names = BTreeSet::new();
    if !service.config.is_cluster() {
        names.extend(scan(service, naming, QUEUE, deadline).await?);
        return Ok(names.into_iter().collect());
    }
    for node in nodes(service, deadline).await?.into_keys() {
        let node = Client::new(service.config.at(node), service.clock);
        names.extend(scan(&node, naming, QUEUE, deadline).await?);
    }
    Ok(names.into_iter().collect())
}

/// Implements [`crate::backend::Backend::everywhere`].
pub(super) async fn everywhere(
    service: &Client,
    naming: &Naming,
    name: LockName,
    deadline: Moment,
) -> FaultResult<Vec<LockName>> {
    if !service.config.is_cluster() {
        return Ok(vec![name]);
    }
    let mut names = Vec::new();
    for (node, (first, last)) in nodes(service, deadline).await? {
        let slots = first..=last;
        let is_there = |name: &LockName| naming.of(name).is_ok_and(|keys| slots.contains(&keys.slot));
        let numbered = |n: u32| format!("{name}-{n}").parse::<LockName>().ok();
        let found = (0..MOST_NUMBERS).filter_map(numbered).find(is_there);
        names.push(found.ok_or_else(|| Fault::nonsense(format!("no name lies in the slots of {node}")))?);
    }
    Ok(names)
}

/// Returns the nodes of a cluster that have slots, each with the first and the last of some of them.
///
/// Errors: also if the list would be incomplete: `Unavailable` if slots are served by no node; `Corrupt` if two nodes have
/// one place.
async fn nodes(service: &Client, deadline: Moment) -> FaultResult<HashMap<HostPort, (u16, u16)>> {
    let answer = service.call(deadline, Patience::Once, &[Call::command(["CLUSTER", "SLOTS"])]).await?;
    let nonsense = || fault::nonsense("no slots of a cluster");
    let ranges: Vec<Vec<Value>> = answer.replies.first().and_then(parsed).ok_or_else(nonsense)?;
    let (mut found, mut ids, mut served) = (HashMap::new(), HashMap::new(), 0);
    for range in ranges {
        let [first, last, Value::Array(master), ..] = range.as_slice() else { return Err(nonsense()) };
        let [host, port, id, ..] = master.as_slice() else { return Err(nonsense()) };
        let numbers = (parsed::<u16>(first), parsed::<u16>(last), parsed(port));
        let (Some(first), Some(last), Some(port)) = numbers else { return Err(nonsense()) };
        served += u32::from(last.saturating_sub(first)) + 1;
        // An unknown host is the null value.
        let node = node_at(&text(host).unwrap_or_default(), port, &answer.connection)?;
        let of_node = ids.entry(node.clone()).or_insert_with(|| id.clone());
        if of_node != id {
            let reason = format!("several nodes of the cluster give {node} as their address");
            return Err(Fault::new(ErrorKind::Corrupt, reason));
        }
        found.insert(node, (first, last));
    }
    if served != SLOTS {
        return Err(Fault::unavailable(format!("the cluster serves {served} of its {SLOTS} slots")));
    }
    Ok(found)
}
