//! The search for a wait that would never end, as at one server: claims of nested runs are listed before they enter,
//! and whoever enters last sees all the others.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use redis::Value;

use super::core::Nodes;
use super::inspect::{self, Line};
use super::{RedlockBackend, STRAGGLE, gather};
use crate::backend::redis::deadlock::listed;
use crate::backend::redis::fault::Outcome;
use crate::backend::redis::script::Step;
use crate::lock::deadlock::{Graph, Member};
use crate::lock::{ClaimId, LockName, Moment, Request};

/// Lists the claim of `request` among the nested ones.
pub(super) async fn announce(
    nodes: &Arc<Nodes>,
    index: &str,
    request: &Request,
    deadline: Moment,
) -> Outcome<()> {
    let names: Vec<&str> = request.names.iter().map(LockName::as_str).collect();
    let names = serde_json::to_string(&names).unwrap_or_default();
    let step = Step::command(["HSET", index, &request.id.to_string(), &names]);
    command(nodes, step, deadline).await.map(drop)
}

/// Takes a claim off the list.
pub(super) async fn forget(nodes: &Arc<Nodes>, index: &str, id: ClaimId, deadline: Moment) -> Outcome<()> {
    command(nodes, Step::command(["HDEL", index, &id.to_string()]), deadline).await.map(drop)
}

async fn command(nodes: &Arc<Nodes>, step: Step, deadline: Moment) -> Outcome<Vec<Option<Value>>> {
    gather::from_all(nodes, STRAGGLE, deadline, step, Ok).await
}

/// The sentence about the cycle of waits that `request`, which stands in line, closes.
pub(super) async fn search(
    backend: &RedlockBackend,
    index: &str,
    request: &Request,
    deadline: Moment,
) -> Outcome<Option<String>> {
    let nodes = &backend.nodes;
    let replies = command(nodes, Step::command(["HGETALL", index]), deadline).await?;
    let all: BTreeMap<ClaimId, Vec<LockName>> = replies.iter().flatten().flat_map(listed).collect();
    let mut lines: BTreeMap<LockName, Line> = BTreeMap::new();
    let mut unread: BTreeSet<LockName> = request.names.iter().cloned().collect();
    unread.extend(all.values().flatten().cloned());
    while let Some(name) = unread.pop_first() {
        let one = std::slice::from_ref(&name);
        let line = inspect::entries(nodes, &backend.naming, one, deadline).await?.remove(0);
        let others = line.entries.iter().flat_map(|found| found.record.names(&name));
        unread.extend(others.filter(|other| *other != name && !lines.contains_key(other)));
        lines.insert(name, line);
    }
    for (id, names) in &all {
        let present =
            |name| lines.get(name).is_some_and(|line: &Line| line.entries.iter().any(|f| f.id == *id));
        if !names.iter().any(present) {
            forget(nodes, index, *id, deadline).await?;
        }
    }
    Ok(graph_until(&lines, request.id).cycle(request.id))
}

/// The waits of everybody who comes no later than `id`.
fn graph_until(lines: &BTreeMap<LockName, Line>, id: ClaimId) -> Graph {
    let all = || lines.values().flat_map(|line| &line.entries);
    let own = all().filter(|found| found.id == id).map(|found| (found.score, found.id)).max();
    let mut graph = Graph::default();
    for (name, line) in lines {
        let earlier =
            line.entries.iter().filter(|found| own.is_none_or(|own| (found.score, found.id) <= own));
        let members = earlier.filter_map(|found| {
            let owner = found.record.holder.to_string();
            Some(Member {
                id: found.id,
                mode: found.record.mode()?,
                owner,
                ancestors: found.record.ancestors(),
            })
        });
        graph.add(name, members.collect());
    }
    graph
}
