//! The search for a wait that would never end.
//!
//! Whoever has entered reads all lines in one statement, so as they were at one moment, and whoever enters last sees
//! all the others; one who sees a cycle that a later claim closes leaves it to that one.

use super::fault::Outcome;
use super::inspect::{self, Found, Lines};
use super::service::Service;
use crate::lock::deadlock::{Graph, Member};
use crate::lock::{ClaimId, Moment, Request};

/// The sentence about the cycle of waits that `request`, which stands in line, closes.
pub(super) async fn search(
    service: &Service,
    request: &Request,
    deadline: Moment,
) -> Outcome<Option<String>> {
    let lines = inspect::all(service, deadline).await?;
    Ok(graph_until(&lines, request.id).cycle(request.id))
}

/// The waits of everybody who came no later than `id`.
fn graph_until(lines: &Lines, id: ClaimId) -> Graph {
    let key = |found: &Found| (found.since, found.id);
    let own = lines.values().flatten().find(|found| found.id == id).map(key);
    let mut graph = Graph::default();
    for (name, line) in lines {
        let earlier = line.iter().filter(|found| own.is_none_or(|own| key(found) <= own));
        let members = earlier.filter_map(|found| {
            let (mode, owner) = (found.record.mode()?, found.record.holder.to_string());
            Some(Member { id: found.id, mode, owner, ancestors: found.record.ancestors() })
        });
        graph.add(name, members.collect());
    }
    graph
}
