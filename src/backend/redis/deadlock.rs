//! The search for a wait that would never end.
//!
//! Every cycle of waits goes through claims of nested runs, so these are listed under one key before they enter.
//! Whoever enters last sees all the others; one who sees a cycle that a later claim closes leaves it to that one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use redis::Value;

use super::connection::Connection;
use super::dial::text;
use super::fault::{Fault, Outcome};
use super::inspect::{self, Found};
use super::keys::{Naming, slot_of};
use super::script::Step;
use super::service::{Patience, Service};
use crate::lock::deadlock::{Graph, Member};
use crate::lock::{ClaimId, LockName, Moment, Request};

/// Lists the claim of `request` among the nested ones.
pub(super) async fn announce(
    service: &Service,
    index: &str,
    request: &Request,
    deadline: Moment,
) -> Outcome<()> {
    let names: Vec<&str> = request.names.iter().map(LockName::as_str).collect();
    let names = serde_json::to_string(&names).unwrap_or_default();
    command(service, index, Step::command(["HSET", index, &request.id.to_string(), &names]), deadline)
        .await?;
    Ok(())
}

/// Takes a claim off the list.
pub(super) async fn forget(service: &Service, index: &str, id: ClaimId, deadline: Moment) -> Outcome<()> {
    command(service, index, Step::command(["HDEL", index, &id.to_string()]), deadline).await?;
    Ok(())
}

async fn command(service: &Service, key: &str, step: Step, deadline: Moment) -> Outcome<Value> {
    let steps = move |_: &Connection| vec![step.clone()];
    let answer = service.call(Some(slot_of(key.as_bytes())), deadline, Patience::Once, steps).await?;
    match answer.replies.into_iter().next() {
        Some(Value::ServerError(error)) => Err(Fault::of(&error)),
        Some(reply) => Ok(reply),
        None => Err(Fault::nonsense("no reply")),
    }
}

/// The sentence about the cycle of waits that `request`, which stands in line, closes.
pub(super) async fn search(
    service: &Arc<Service>,
    naming: &Naming,
    index: &str,
    request: &Request,
    deadline: Moment,
) -> Outcome<Option<String>> {
    let listed = listed(&command(service, index, Step::command(["HGETALL", index]), deadline).await?);
    let mut lines: BTreeMap<LockName, Vec<Found>> = BTreeMap::new();
    let mut unread: BTreeSet<LockName> = request.names.iter().cloned().collect();
    unread.extend(listed.values().flatten().cloned());
    while let Some(name) = unread.pop_first() {
        let line = inspect::entries(service, naming, &name, deadline).await?.entries;
        let others =
            line.iter().filter_map(|found| found.record.as_ref()).flat_map(|record| record.names(&name));
        unread.extend(others.filter(|other| *other != name && !lines.contains_key(other)));
        lines.insert(name, line);
    }
    for (id, names) in &listed {
        let present =
            |name| lines.get(name).is_some_and(|line: &Vec<Found>| line.iter().any(|f| f.id == Some(*id)));
        if !names.iter().any(present) {
            forget(service, index, *id, deadline).await?;
        }
    }
    Ok(graph_until(&lines, request.id).cycle(request.id))
}

/// The waits of everybody who came no later than `id`.
fn graph_until(lines: &BTreeMap<LockName, Vec<Found>>, id: ClaimId) -> Graph {
    // One that is taken in parts came when its last part did.
    let own = lines.values().flatten().filter(|found| found.id == Some(id));
    let own = own.map(|found| (found.since, found.id)).max();
    let mut graph = Graph::default();
    for (name, line) in lines {
        let earlier = line.iter().filter(|found| own.is_none_or(|own| (found.since, found.id) <= own));
        let members = earlier.filter_map(|found| {
            let record = found.record.as_ref()?;
            let owner = record.holder.to_string();
            Some(Member { id: found.id?, mode: record.mode()?, owner, ancestors: record.ancestors() })
        });
        graph.add(name, members.collect());
    }
    graph
}

pub(super) fn listed(reply: &Value) -> BTreeMap<ClaimId, Vec<LockName>> {
    let pairs: Vec<(&Value, &Value)> = match reply {
        Value::Array(flat) => flat.chunks_exact(2).map(|pair| (&pair[0], &pair[1])).collect(),
        Value::Map(pairs) => pairs.iter().map(|(field, value)| (field, value)).collect(),
        _ => Vec::new(),
    };
    let claim = |(field, value): (&Value, &Value)| {
        let names: Vec<String> = serde_json::from_str(&text(value)?).ok()?;
        let names = names.into_iter().filter_map(|name| LockName::new(name).ok()).collect();
        Some((text(field)?.parse().ok()?, names))
    };
    pairs.into_iter().filter_map(claim).collect()
}
