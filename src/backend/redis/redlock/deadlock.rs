//! What the search for a wait that would never end reads here. As at one server, claims of nested runs are listed before
//! they enter.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use redis::Value;

use super::client::RedlockBackend;
use super::core::Nodes;
use super::fan_out::{self, STRAGGLE};
use super::former::{announcement, listed, removal, removal_of_stale};
use super::inspect::{self, QueueEntry};
use crate::backend::deadlock::{self, Queued, Queues};
use crate::backend::fault::{Fault, FaultResult};
use crate::backend::redis::script::Step;
use crate::lock::{ClaimId, LockName, Moment, Request};

/// Lists the claim of `request` among the nested ones.
pub(super) async fn announce(
    nodes: &Arc<Nodes>,
    index: &str,
    request: &Request,
    deadline: Moment,
) -> FaultResult<()> {
    command(nodes, announcement(index, request), deadline).await.map(drop)
}

/// Takes a claim off the list.
pub(super) async fn forget(
    nodes: &Arc<Nodes>,
    index: &str,
    id: ClaimId,
    deadline: Moment,
) -> FaultResult<()> {
    command(nodes, removal(index, id), deadline).await.map(drop)
}

async fn command(nodes: &Arc<Nodes>, step: Step, deadline: Moment) -> FaultResult<Vec<Option<Value>>> {
    fan_out::from_all(nodes, STRAGGLE, deadline, step, Ok).await
}

/// The sentence about the cycle of waits that `request`, which waits, closes.
pub(super) async fn search(
    backend: &RedlockBackend,
    index: &str,
    request: &Request,
    deadline: Moment,
) -> FaultResult<Option<String>> {
    deadlock::search(&Reading { backend, index, deadline }, request).await
}

struct Reading<'a> {
    backend: &'a RedlockBackend,
    index: &'a str,
    deadline: Moment,
}

#[async_trait]
impl Queues for Reading<'_> {
    type Order = (u64, ClaimId);
    type Fault = Fault;

    async fn nested(&self) -> FaultResult<BTreeMap<ClaimId, Vec<LockName>>> {
        let step = Step::command(["HGETALL", self.index]);
        let replies = command(&self.backend.nodes, step, self.deadline).await?;
        Ok(replies.iter().flatten().flat_map(listed).collect())
    }

    async fn read(&self, names: &[LockName]) -> FaultResult<Vec<Vec<Queued<Self::Order>>>> {
        let (nodes, naming) = (&self.backend.nodes, &self.backend.naming);
        let mut queues = Vec::with_capacity(names.len());
        for name in names {
            let queue = inspect::queue(nodes, naming, name, self.deadline).await?;
            let entry =
                |found: &QueueEntry| Queued::of(&found.record, found.id, (found.score, found.id), name);
            queues.push(queue.entries.iter().map(entry).collect());
        }
        Ok(queues)
    }

    async fn forget(&self, id: ClaimId) -> FaultResult<()> {
        command(&self.backend.nodes, removal_of_stale(self.index, id), self.deadline).await.map(drop)
    }
}
