//! What the search for a wait that would never end reads here: claims of nested runs are listed under one key before
//! they enter.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use async_trait::async_trait;
use redis::Value;
use serde::Deserialize;

use super::astray::KEEP_OUT;
use super::dial::text;
use super::inspect::{self, QueueEntry};
use super::keys::{Naming, slot_of};
use super::script::{LIST, Step, UNLIST, millis};
use super::service::{Patience, Service};
use super::wire::one;
use crate::backend::deadlock::{self, Queued, Queues};
use crate::backend::fault::{Fault, FaultResult};
use crate::lock::{ClaimId, LockName, Moment, Request};

/// What the list says of a claim.
#[derive(Deserialize)]
#[serde(untagged)]
enum Listed {
    /// Its names, and when it was listed.
    At { names: Vec<String> },
    /// Its names, as earlier builds wrote them.
    Plain(Vec<String>),
}

/// Lists the claim of `request` among the nested ones.
pub(super) async fn announce(
    service: &Service,
    index: &str,
    request: &Request,
    deadline: Moment,
) -> FaultResult<()> {
    command(service, index, announcement(index, request), deadline).await.map(drop)
}

/// What lists the claim of `request` under the key `index`.
pub(super) fn announcement(index: &str, request: &Request) -> Step {
    let names: Vec<&str> = request.names.iter().map(LockName::as_str).collect();
    let names = serde_json::to_string(&names).unwrap_or_default();
    Step::Script {
        script: &LIST,
        keys: vec![index.to_owned()],
        arguments: vec![request.id.to_string(), names],
    }
}

/// What takes the claim `id` off that list.
pub(super) fn removal(index: &str, id: ClaimId) -> Step {
    Step::command(["HDEL", index, &id.to_string()])
}

/// What takes the claim `id`, which stands in none of its queues, off that list: only once its request to enter cannot be under
/// way any more, since it is listed before that and not again.
pub(super) fn removal_of_stale(index: &str, id: ClaimId) -> Step {
    let arguments = vec![id.to_string(), millis(KEEP_OUT)];
    Step::Script { script: &UNLIST, keys: vec![index.to_owned()], arguments }
}

/// Takes a claim off the list.
pub(super) async fn forget(service: &Service, index: &str, id: ClaimId, deadline: Moment) -> FaultResult<()> {
    command(service, index, removal(index, id), deadline).await.map(drop)
}

async fn command(service: &Service, key: &str, step: Step, deadline: Moment) -> FaultResult<Value> {
    one(service, slot_of(key.as_bytes()), deadline, Patience::Once, step).await
}

/// The sentence about the cycle of waits that `request`, which waits, closes.
pub(super) async fn search(
    service: &Arc<Service>,
    naming: &Naming,
    index: &str,
    request: &Request,
    deadline: Moment,
) -> FaultResult<Option<String>> {
    deadlock::search(&Reading { service, naming, index, deadline }, request).await
}

struct Reading<'a> {
    service: &'a Service,
    naming: &'a Naming,
    index: &'a str,
    deadline: Moment,
}

#[async_trait]
impl Queues for Reading<'_> {
    type Order = (Option<SystemTime>, ClaimId);
    type Fault = Fault;

    async fn nested(&self) -> FaultResult<BTreeMap<ClaimId, Vec<LockName>>> {
        let step = Step::command(["HGETALL", self.index]);
        Ok(listed(&command(self.service, self.index, step, self.deadline).await?))
    }

    async fn read(&self, names: &[LockName]) -> FaultResult<Vec<Vec<Queued<Self::Order>>>> {
        let mut queues = Vec::with_capacity(names.len());
        for name in names {
            let queue = inspect::entries(self.service, self.naming, name, self.deadline).await?;
            queues.push(queue.entries.iter().filter_map(|found| queued(found, name)).collect());
        }
        Ok(queues)
    }

    async fn forget(&self, id: ClaimId) -> FaultResult<()> {
        let removal = removal_of_stale(self.index, id);
        command(self.service, self.index, removal, self.deadline).await.map(drop)
    }
}

fn queued(found: &QueueEntry, name: &LockName) -> Option<Queued<(Option<SystemTime>, ClaimId)>> {
    let (id, since) = (found.id?, found.since);
    Some(match &found.record {
        Some(record) => Queued::of(record, id, (since, id), name),
        None => Queued { id, place: (since, id), names: Vec::new(), member: None },
    })
}

pub(super) fn listed(reply: &Value) -> BTreeMap<ClaimId, Vec<LockName>> {
    let pairs: Vec<(&Value, &Value)> = match reply {
        Value::Array(flat) => flat.chunks_exact(2).map(|pair| (&pair[0], &pair[1])).collect(),
        Value::Map(pairs) => pairs.iter().map(|(field, value)| (field, value)).collect(),
        _ => Vec::new(),
    };
    let claim = |(field, value): (&Value, &Value)| {
        let (Listed::At { names } | Listed::Plain(names)) = serde_json::from_str(&text(value)?).ok()?;
        let names = names.into_iter().filter_map(|name| LockName::new(name).ok()).collect();
        Some((text(field)?.parse().ok()?, names))
    };
    pairs.into_iter().filter_map(claim).collect()
}
