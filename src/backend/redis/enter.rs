//! Entering the queues.

use std::sync::{Arc, Mutex, PoisonError};

use redis::Value;

use super::astray::KEEP_OUT;
use super::claim::RedisClaim;
use super::connection::Connection;
use super::deadlock;
use super::dial::text;
use super::fault;
use super::keys::{LockKeys, Naming};
use super::row::{Row, integer};
use super::script::{ENTER, LEAVE, Step, millis, newest};
use super::service::{Patience, Service};
use super::wire::{keys_of, on_queues, one};
use crate::backend::deadlock::refuse_cycle;
use crate::backend::fault::{Fault, FaultResult};
use crate::backend::mixing::mismatch;
use crate::backend::record::Record;
use crate::lock::{ClaimId, ErrorKind, Mode, Moment, Reason, Request};

/// How several names come to lie in one slot.
const ONE_SLOT: &str = "use --prefix and give them the same {tag}, as in {deploy}api and {deploy}web";

/// Enters the queues of all names of `request` in one step.
pub(super) async fn enter(
    service: &Arc<Service>,
    naming: &Naming,
    request: &Request,
    deadline: Moment,
) -> FaultResult<RedisClaim> {
    let names = keys_of(naming, &request.names)?;
    let first = names.first().ok_or_else(|| Fault::new(ErrorKind::Invalid, "a claim needs a name"))?;
    if service.config.is_cluster() && names.iter().any(|keys| keys.slot != first.slot) {
        let reason = Reason::from("these locks lie in different slots of the Redis Cluster");
        return Err(Fault::new(ErrorKind::Invalid, reason.advising(ONE_SLOT)));
    }
    let nested = (!request.ancestors.is_empty()).then(|| naming.nested());
    if let Some(index) = &nested {
        deadlock::announce(service, index, request, deadline).await?;
    }
    let more = [
        Record::of(request, request.ttl).to_text(),
        request.mode.to_string(),
        millis(request.ttl),
        serde_json::to_string(&request.holder).unwrap_or_default(),
        newest(request).to_owned(),
    ];
    let step = on_queues(&ENTER, &names, request.id, &more);
    let (reply, entered) = ask(service, first.slot, deadline, step).await?;
    let rows = match entered_rows(&reply, &names, request) {
        Ok(rows) => rows,
        Err(fault) => {
            if fault.kind != ErrorKind::Mismatch || service.astray.has(request.id) {
                // If this fails as well, what arrives ends with its ttl.
                drop(keep_out(service, &names, request.id, deadline).await);
            }
            return Err(fault);
        }
    };
    let claim = RedisClaim::new(service, names, nested.clone(), request, rows, entered);
    if let Some(index) = nested.filter(|_| claim.waits())
        && let Err(fault) =
            deadlock::search(service, naming, &index, request, deadline).await.and_then(refuse_cycle)
    {
        if !fault.kind.is_transient() {
            claim.send_leave(false, deadline).await?;
            deadlock::forget(service, &index, request.id, deadline).await?;
        }
        return Err(fault);
    }
    Ok(claim)
}

/// The answer to entering, and when that was sent which was answered: whoever is asked again gives another ttl.
async fn ask(service: &Service, slot: u16, deadline: Moment, step: Step) -> FaultResult<(Value, Moment)> {
    let sent = Mutex::new(service.clock.now());
    let steps = |_: &Connection| {
        *sent.lock().unwrap_or_else(PoisonError::into_inner) = service.clock.now();
        vec![step.clone()]
    };
    let answer = service.call(Some(slot), deadline, Patience::Once, steps).await?;
    let reply = answer.replies.into_iter().next().ok_or_else(|| fault::nonsense("no reply"))?;
    let sent = *sent.lock().unwrap_or_else(PoisonError::into_inner);
    Ok((reply, sent))
}

/// A request that was not answered before the claim was refused may still arrive, and would make an entry of nobody.
async fn keep_out(service: &Service, names: &[LockKeys], id: ClaimId, deadline: Moment) -> FaultResult<()> {
    let step = on_queues(&LEAVE, names, id, &["0".to_owned(), millis(KEEP_OUT)]);
    one(service, names[0].slot, deadline, Patience::Deadline, step).await.map(drop)
}

fn entered_rows(reply: &Value, names: &[LockKeys], request: &Request) -> FaultResult<Vec<Row>> {
    let Value::Array(parts) = reply else { return Err(fault::nonsense("no answer to entering")) };
    if let [what, rows] = parts.as_slice()
        && text(what).as_deref() == Some("in")
    {
        return Row::all(rows, names);
    }
    let [_, at, mode, about] = parts.as_slice() else { return Err(fault::nonsense("no answer to entering")) };
    let at = integer(at).and_then(|n| usize::try_from(n - 1).ok());
    let mode: Option<Mode> = text(mode).and_then(|mode| mode.parse().ok());
    let record = text(about).and_then(|about| Record::parse(about.as_bytes()));
    let who = record.map(|record| record.holder.to_string());
    let name = at.and_then(|at| names.get(at)).map(|keys| &keys.name);
    Err(Fault::new(ErrorKind::Mismatch, mismatch(name, who.as_deref(), mode.into(), request.mode)))
}
