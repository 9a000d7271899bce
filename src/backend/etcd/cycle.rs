//! The search for a wait that would never end.
//!
//! A cycle of waits passes through claims that run under others, and those are kept in one place. So the lines
//! that matter are the own ones, those of claims that run under others, and those of whoever stands in them with
//! several names.

use etcd_client::GetOptions;

use super::core::Core;
use super::fault::Outcome;
use super::keys::Line;
use super::line::{self, Snapshot};
use super::stored::Stored;
use crate::lock::deadlock::{Graph, Member};
use crate::lock::{LockName, Moment, Request};

/// The sentence about the cycle that the new claim closes, if it does. Entries that came after it do not count:
/// of two claims that close a cycle together the later one finds it.
pub(super) async fn find(core: &Core, request: &Request, deadline: Moment) -> Outcome<Option<String>> {
    let (first, end) = core.layout.all_nested();
    let nested = core.wire.call(deadline, |mut c| {
        let (first, options) = (first.clone(), GetOptions::new().with_range(end.clone()));
        async move { c.client.get(first, Some(options)).await }
    });
    let nested: Vec<Stored> = nested.await?.kvs().iter().filter_map(|kv| Stored::parse(kv.value())).collect();
    let mut wanted: Vec<LockName> = request.names.clone();
    wanted.extend(nested.iter().flat_map(names));
    let mut read: Vec<(LockName, Snapshot)> = Vec::new();
    loop {
        wanted.sort();
        wanted.dedup();
        wanted.retain(|name| read.iter().all(|(known, _)| known != name));
        if wanted.is_empty() {
            break;
        }
        let lines: Vec<Line> = wanted.iter().map(|name| core.layout.line(name)).collect();
        let snapshots = line::read_all(&core.wire, &lines, deadline).await?;
        read.extend(std::mem::take(&mut wanted).into_iter().zip(snapshots));
        let stored = read.iter().flat_map(|(_, s)| &s.members).filter_map(|m| m.stored.as_ref());
        wanted.extend(stored.flat_map(names));
    }
    let mut graph = Graph::default();
    for (name, snapshot) in &read {
        let members = snapshot.members.iter().filter(|m| m.created <= core.created).map(|member| {
            let record = member.stored.as_ref().map(|s| &s.record);
            Member {
                id: record
                    .and_then(crate::backend::record::Record::id)
                    .unwrap_or_else(|| stranger(member.lease)),
                mode: member.mode,
                owner: record.map_or_else(|| "another client".to_owned(), |r| r.holder.to_string()),
                ancestors: record.map(crate::backend::record::Record::ancestors).unwrap_or_default(),
            }
        });
        graph.add(name, members.collect());
    }
    Ok(graph.cycle(request.id))
}

/// The names of a claim that has several.
fn names(stored: &Stored) -> Vec<LockName> {
    stored.record.names.iter().filter_map(|name| name.parse().ok()).collect()
}

/// Another client's entry, which nothing runs under.
fn stranger(lease: i64) -> crate::lock::ClaimId {
    let mut bytes = [0xff; 16];
    bytes[8..].copy_from_slice(&lease.to_be_bytes());
    crate::lock::ClaimId::from_bytes(bytes)
}
