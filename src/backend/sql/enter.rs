//! Entering the queues.

use std::sync::Arc;

use super::claim::SqlClaim;
use super::dialect::{Session, unstored};
use super::position::Standing;
use super::sessions::Sessions;
use super::steps::{Steps, in_order, kind};
use crate::backend::mixing::mismatch;
use crate::lock::{Entry, ErrorKind, Holder, Moment, Request};
use crate::net::fault::{Fault, FaultResult};
use crate::net::request::Patience;

/// Enters the queues of all names of `request` in one step. A claim that has to wait reads the entries ahead in another
/// step.
pub(super) async fn enter(
    service: &Arc<Sessions>,
    request: &Request,
    deadline: Moment,
) -> FaultResult<SqlClaim> {
    let steps = Steps::new(&*service.dialect, &request.names, request.id);
    let (positions, entered) = loop {
        let batch = |_: &Arc<dyn Session>| steps.enter(request);
        let answer = service.call(deadline, Patience::Once, batch).await?;
        let own = Standing::own(&answer.sets, &in_order(&request.names))?;
        if own.iter().all(|position| position.present) {
            break (own, answer.sent);
        }
        if let Some(positions) = refused(service, &steps, request, deadline).await? {
            break (positions, answer.sent);
        }
    };
    // The last request has renewed the entry even if an earlier one created it.
    let claim = SqlClaim::new(service, request, positions, entered);
    if let Err(fault) = claim.find_its_place(deadline).await {
        if !fault.kind.is_transient() {
            claim.send_leave(false, deadline).await?;
        }
        return Err(fault);
    }
    Ok(claim)
}

/// Returns why a claim was refused: its final state if it is barred from entering; `None` if the obstacle is gone
/// meanwhile.
///
/// Errors: `Mismatch` if a claim of another kind is in the way.
async fn refused(
    service: &Arc<Sessions>,
    steps: &Steps<'_>,
    request: &Request,
    deadline: Moment,
) -> FaultResult<Option<Vec<Standing>>> {
    let batch = |_: &Arc<dyn Session>| steps.read(request.mode);
    let answer = service.call(deadline, Patience::Once, batch).await?;
    let positions = Standing::all(&answer.sets, request.names.len())?;
    if positions.iter().any(|position| position.gone.is_some()) {
        return Ok(Some(positions));
    }
    let mixes = |lead: &Entry| lead.mode.is_some_and(|mode| kind(mode) == kind(request.mode));
    let sorted = in_order(&request.names);
    let mut leads = sorted.iter().zip(&positions).filter_map(|(name, at)| Some((name, at.lead.as_ref()?)));
    let Some((name, lead)) = leads.find(|(_, lead)| !mixes(lead)) else {
        return Ok(None);
    };
    // A request sent earlier, over a connection that broke, may arrive after the obstacle is gone.
    if service.may_be_overtaken() {
        let batch = |_: &Arc<dyn Session>| steps.leave(request.mode, false, true);
        service.call(deadline, Patience::Deadline, batch).await?;
    }
    let (name, owner) = (unstored(name), owner(lead));
    let reason = mismatch(name.as_ref(), owner.as_deref(), lead.mode.into(), request.mode);
    Err(Fault::new(ErrorKind::Mismatch, reason))
}

/// Returns the owner of an entry.
fn owner(entry: &Entry) -> Option<String> {
    let (user, host, pid) = (entry.user.clone()?, entry.host.clone()?, entry.pid?);
    let command = entry.command.clone().unwrap_or_default();
    Some(Holder { user, host, pid, command, label: entry.label.clone(), ..Holder::default() }.to_string())
}
