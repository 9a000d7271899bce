//! The requests that take no claim of one's own.

use std::time::Duration;

use redis::Value;

use super::astray::KEEP_OUT;
use super::connection::Connection;
use super::dial::text;
use super::fault;
use super::keys::{LockKeys, Naming};
use super::row::integer;
use super::script::{EVICT, EVICT_FOREIGN, PUBLISH, RENEW, Script, Step, millis, word_for};
use super::service::{Patience, Service};
use crate::backend::Evict;
use crate::backend::fault::{Fault, FaultResult};
use crate::backend::record::Record;
use crate::backend::success;
use crate::lock::{ClaimId, ErrorKind, Holder, LockName, Moment};

/// `script` on the queues of `names`, about the claim `id`.
pub(super) fn on_queues(script: &'static Script, names: &[LockKeys], id: ClaimId, more: &[String]) -> Step {
    let mut arguments = vec![id.to_string()];
    let mut keys = Vec::with_capacity(names.len() * 4);
    for name in names {
        keys.extend([name.lock.clone(), name.queue(), name.counters(), name.claim(id)]);
        arguments.extend([name.claim_prefix(), name.claim_suffix().to_owned()]);
    }
    arguments.extend_from_slice(more);
    Step::Script { script, keys, arguments }
}

/// The keys of all `names`.
pub(super) fn keys_of(naming: &Naming, names: &[LockName]) -> FaultResult<Vec<LockKeys>> {
    names.iter().map(|name| naming.of(name)).collect()
}

/// The one reply to one step.
pub(super) async fn one(
    service: &Service,
    slot: impl Into<Option<u16>>,
    deadline: Moment,
    patience: Patience,
    step: Step,
) -> FaultResult<Value> {
    let steps = move |_: &Connection| vec![step.clone()];
    match service.call(slot.into(), deadline, patience, steps).await?.replies.into_iter().next() {
        Some(Value::ServerError(error)) => Err(fault::of(&error)),
        Some(reply) => Ok(reply),
        None => Err(fault::nonsense("no reply")),
    }
}

/// Does what `how` says to the claim `id`, of which `known` are names, at least one: on all of its names.
pub(super) async fn evict(
    service: &Service,
    naming: &Naming,
    known: &[LockName],
    id: ClaimId,
    how: Evict,
    by: &Holder,
    deadline: Moment,
) -> FaultResult<bool> {
    let word = word_for(how);
    let by = serde_json::to_string(by).unwrap_or_default();
    let mut names = known.to_vec();
    loop {
        let keys = keys_of(naming, &names)?;
        let more = [word.to_owned(), by.clone(), millis(KEEP_OUT), names.len().to_string()];
        let step = on_queues(&EVICT, &keys, id, &more);
        match one(service, keys[0].slot, deadline, Patience::Deadline, step).await? {
            Value::Int(found) => return Ok(found == 1),
            // The claim has more names than are known: it goes from all of them.
            Value::BulkString(record) => {
                let all = Record::parse(&record).map(|record| record.names(&known[0])).unwrap_or_default();
                if all.len() <= names.len() {
                    return Err(Fault::new(ErrorKind::Corrupt, "the record of the claim makes no sense"));
                }
                names = all;
            }
            _ => return Err(fault::nonsense("neither a number nor a record")),
        }
    }
}

/// Has `script` change what is kept of the claim `id` in the queue of `name`; says whether it has found it.
async fn change(
    service: &Service,
    naming: &Naming,
    name: &LockName,
    id: ClaimId,
    script: &'static Script,
    more: &[String],
    deadline: Moment,
) -> FaultResult<bool> {
    let keys = naming.of(name)?;
    let step = on_queues(script, std::slice::from_ref(&keys), id, more);
    match one(service, keys.slot, deadline, Patience::Deadline, step).await? {
        Value::Int(found) => Ok(found == 1),
        _ => Err(fault::nonsense("not a number")),
    }
}

/// As [`crate::backend::Backend::evict_foreign`].
pub(super) async fn evict_foreign(
    service: &Service,
    naming: &Naming,
    name: &LockName,
    id: ClaimId,
    deadline: Moment,
) -> FaultResult<bool> {
    change(service, naming, name, id, &EVICT_FOREIGN, &[], deadline).await
}

/// As [`crate::backend::Backend::publish`].
pub(super) async fn publish(
    service: &Service,
    naming: &Naming,
    name: &LockName,
    id: ClaimId,
    value: &str,
    deadline: Moment,
) -> FaultResult<bool> {
    change(service, naming, name, id, &PUBLISH, &[value.to_owned()], deadline).await
}

/// As [`crate::backend::Backend::renew`].
pub(super) async fn renew(
    service: &Service,
    naming: &Naming,
    name: &LockName,
    id: ClaimId,
    deadline: Moment,
) -> FaultResult<bool> {
    let first = naming.of(name)?;
    let question = Step::command(["HMGET", &first.claim(id), "token", "about"]);
    let Value::Array(fields) = one(service, first.slot, deadline, Patience::Once, question).await? else {
        return Err(fault::nonsense("no fields of a claim"));
    };
    let [Some(_), Some(about)] = [0, 1].map(|n| fields.get(n).and_then(text)) else {
        // It does not hold, or is not there.
        return Ok(false);
    };
    let senseless = || Fault::new(ErrorKind::Corrupt, "the record of the claim makes no sense");
    let record = Record::parse(about.as_bytes()).ok_or_else(senseless)?;
    let ttl = millis(Duration::from_millis(record.ttl_ms));
    let keys = keys_of(naming, &record.names(name))?;
    let step = on_queues(&RENEW, &keys, id, std::slice::from_ref(&ttl));
    match one(service, first.slot, deadline, Patience::Once, step).await? {
        Value::Array(parts) if parts.len() == 2 => Ok(integer(&parts[0]) == Some(1)),
        _ => Err(fault::nonsense("no answer to a renewal")),
    }
}

/// How long ago the last successful run acquired, by the server's clock.
pub(super) async fn last_success(
    service: &Service,
    naming: &Naming,
    name: &LockName,
    deadline: Moment,
) -> FaultResult<Option<Duration>> {
    let keys = naming.of(name)?;
    let steps =
        |_: &Connection| vec![Step::command(["HGET", &keys.counters(), "success"]), Step::command(["TIME"])];
    let answer = service.call(Some(keys.slot), deadline, Patience::Once, steps).await?;
    let [success, time] = answer.replies.as_slice() else { return Err(fault::nonsense("not two replies")) };
    for reply in [success, time] {
        if let Value::ServerError(error) = reply {
            return Err(fault::of(error));
        }
    }
    let Value::Array(time) = time else { return Err(fault::nonsense("no time")) };
    let part = |n: usize| time.get(n).and_then(integer).and_then(|n| u64::try_from(n).ok());
    let (Some(seconds), Some(micros)) = (part(0), part(1)) else { return Err(fault::nonsense("no time")) };
    let acquired = text(success).and_then(|text| text.parse().ok()).map(Duration::from_micros);
    let now = Duration::from_secs(seconds) + Duration::from_micros(micros);
    Ok(acquired.and_then(|acquired| success::age(now, acquired)))
}
