//! What the search for a wait that would never end reads here: claims that run inside others are kept in one place.

use std::collections::BTreeMap;

use async_trait::async_trait;
use etcd_client::GetOptions;

use super::core::Core;
use super::keys::Queue;
use super::queue::{self, Member as Entry};
use super::stored::Stored;
use crate::backend::deadlock::{self, Queued, Queues};
use crate::backend::record::Record;
use crate::lock::deadlock::Member;
use crate::lock::{ClaimId, LockName, Moment, Request};
use crate::net::fault::{Fault, FaultResult};

/// The sentence about the cycle of waits that `request`, which waits, closes.
pub(super) async fn search(core: &Core, request: &Request, deadline: Moment) -> FaultResult<Option<String>> {
    deadlock::search(&Reading { core, deadline }, request).await
}

struct Reading<'a> {
    core: &'a Core,
    deadline: Moment,
}

#[async_trait]
impl Queues for Reading<'_> {
    /// The revision that created the entry.
    type Order = i64;
    type Fault = Fault;

    async fn nested(&self) -> FaultResult<BTreeMap<ClaimId, Vec<LockName>>> {
        let (first, end) = self.core.layout.all_nested();
        let options = GetOptions::new().with_range(end);
        let listed = self.core.wire.get(first, options, self.deadline).await?;
        let stored = listed.kvs().iter().filter_map(|kv| Stored::parse(kv.value()));
        Ok(stored.filter_map(|stored| Some((stored.record.id()?, names(&stored)))).collect())
    }

    async fn read(&self, names: &[LockName]) -> FaultResult<Vec<Vec<Queued<i64>>>> {
        let queues: Vec<Queue> = names.iter().map(|name| self.core.layout.queue(name)).collect();
        let snapshots = queue::read_all(&self.core.wire, &queues, self.deadline).await?;
        Ok(snapshots.iter().map(|snapshot| snapshot.members.iter().map(queued).collect()).collect())
    }

    /// Nothing: it ends with its lease.
    async fn forget(&self, _: ClaimId) -> FaultResult<()> {
        Ok(())
    }
}

fn queued(entry: &Entry) -> Queued<i64> {
    let record = entry.stored.as_ref().map(|stored| &stored.record);
    let id = record.and_then(Record::id).unwrap_or_else(|| stranger(entry.lease));
    let owner = record.map_or_else(|| "another client".to_owned(), |record| record.holder.to_string());
    let ancestors = record.map(Record::ancestors).unwrap_or_default();
    let names = entry.stored.as_ref().map(names).unwrap_or_default();
    Queued {
        id,
        place: entry.created,
        names,
        member: Some(Member { id, mode: entry.mode, owner, ancestors }),
    }
}

/// The names of a claim that has several, or that runs inside another.
fn names(stored: &Stored) -> Vec<LockName> {
    stored.record.names.iter().filter_map(|name| name.parse().ok()).collect()
}

/// Another client's entry, which nothing runs under.
fn stranger(lease: i64) -> ClaimId {
    let mut bytes = [0xff; 16];
    bytes[8..].copy_from_slice(&lease.to_be_bytes());
    ClaimId::from_bytes(bytes)
}
