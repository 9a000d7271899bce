//! Requests that take no claim of one's own.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;

use super::client::RedlockBackend;
use super::core::{Nodes, on_queues, proposal};
use super::fan_out::{self, STRAGGLE};
use super::inspect;
use super::script::{EVICT, EVICT_FOREIGN, PUBLISH};
use crate::backend::Evict;
use crate::backend::fault::{Fault, FaultResult};
use crate::backend::record::Record;
use crate::backend::redis::astray::KEEP_OUT;
use crate::backend::redis::dial::text;
use crate::backend::redis::fault;
use crate::backend::redis::keys::LockKeys;
use crate::backend::redis::queues::keys_of;
use crate::backend::redis::redlock::former::word_for;
use crate::backend::redis::row::integer;
use crate::backend::redis::script::{Step, millis};
use crate::backend::success;
use crate::lock::{ClaimId, ErrorKind, Holder, LockName, Moment};

/// What nodes found of a claim.
#[derive(Default)]
struct Finds {
    /// Whether any of them had it.
    found: bool,
    /// Its record, if it has more names than were asked about.
    record: Option<Record>,
}

/// Removes, or asks to leave, the claim `id`, of which `known` are names, at least one.
pub(super) async fn evict(
    backend: &RedlockBackend,
    known: &[LockName],
    id: ClaimId,
    how: Evict,
    by: &Holder,
    deadline: Moment,
) -> FaultResult<bool> {
    let word = word_for(how);
    let nodes = &backend.nodes;
    let by = serde_json::to_string(by).unwrap_or_default();
    let mut names = known.to_vec();
    loop {
        let keys = keys_of(&backend.naming, &names)?;
        let finds = ask(nodes, &keys, id, word, &by, deadline).await?;
        let Some(record) = finds.record else { return Ok(finds.found) };
        // The claim has more names than are known: it goes from all of them.
        let all = record.names(&known[0]);
        if all.len() <= names.len() {
            return Err(Fault::new(ErrorKind::Corrupt, "the record of the claim makes no sense"));
        }
        names = all;
    }
}

async fn ask(
    nodes: &Arc<Nodes>,
    keys: &[LockKeys],
    id: ClaimId,
    how: &str,
    by: &str,
    deadline: Moment,
) -> FaultResult<Finds> {
    let more = [how.to_owned(), by.to_owned(), millis(KEEP_OUT), keys.len().to_string()];
    let step = on_queues(&EVICT, keys, id, proposal(), &more);
    let mut finds = Finds::default();
    for reply in fan_out::from_all(nodes, STRAGGLE, deadline, step, Ok).await?.into_iter().flatten() {
        match reply {
            Value::Int(0) => {}
            Value::Int(_) => finds.found = true,
            Value::BulkString(record) => finds.record = finds.record.or(Record::parse(&record)),
            _ => return Err(fault::nonsense("neither a number nor a record")),
        }
    }
    Ok(finds)
}

/// As [`crate::backend::Backend::evict_foreign`]: at every node where the key says the same. Once a majority has
/// answered, what the others may still have is no lock.
pub(super) async fn evict_foreign(
    backend: &RedlockBackend,
    name: &LockName,
    id: ClaimId,
    deadline: Moment,
) -> FaultResult<bool> {
    let keys = keys_of(&backend.naming, std::slice::from_ref(name))?;
    let step = on_queues(&EVICT_FOREIGN, &keys, id, proposal(), &[]);
    let answers = fan_out::from_all(&backend.nodes, STRAGGLE, deadline, step, |reply| match reply {
        Value::Int(removed) => Ok(removed == 1),
        _ => Err(fault::nonsense("not a number")),
    });
    Ok(answers.await?.into_iter().flatten().any(|removed| removed))
}

/// As [`crate::backend::Backend::publish`]: where it holds, which is to be a majority. A waiter that was given a minority is
/// found out before anything is written.
pub(super) async fn publish(
    backend: &RedlockBackend,
    name: &LockName,
    id: ClaimId,
    value: &str,
    deadline: Moment,
) -> FaultResult<bool> {
    let only = std::slice::from_ref(name);
    let queue = inspect::entries(&backend.nodes, &backend.naming, only, deadline).await?.remove(0);
    if !queue.status(name).holders.iter().any(|holder| holder.claim == Some(id)) {
        return Ok(false);
    }
    let step = on_queues(&PUBLISH, &keys_of(&backend.naming, only)?, id, proposal(), &[value.to_owned()]);
    let answers = fan_out::from_all(&backend.nodes, STRAGGLE, deadline, step, |reply| match reply {
        Value::Int(found) => Ok(found == 1),
        _ => Err(fault::nonsense("not a number")),
    });
    let answers: Vec<bool> = answers.await?.into_iter().flatten().collect();
    let found = answers.iter().filter(|found| **found).count();
    backend.nodes.verdict(found, answers.len() - found, "taken the value")
}

/// How long ago the last successful run acquired, each node by its own clock.
pub(super) async fn last_success(
    backend: &RedlockBackend,
    name: &LockName,
    deadline: Moment,
) -> FaultResult<Option<Duration>> {
    let keys = keys_of(&backend.naming, std::slice::from_ref(name))?.remove(0);
    let steps = vec![Step::command(["HGET", &keys.counters(), "success"]), Step::command(["TIME"])];
    let answers = fan_out::answers(&backend.nodes, STRAGGLE, deadline, steps).await?;
    let age = |replies: Vec<Value>| {
        let [success, Value::Array(time)] = replies.as_slice() else { return None };
        let part = |n: usize| time.get(n).and_then(integer).and_then(|n| u64::try_from(n).ok());
        let now = Duration::from_secs(part(0)?) + Duration::from_micros(part(1)?);
        success::age(now, Duration::from_micros(text(success)?.parse().ok()?))
    };
    Ok(answers.into_iter().flatten().filter_map(age).min())
}
