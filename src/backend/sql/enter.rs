//! Entering the lines.

use std::sync::Arc;

use super::claim::SqlClaim;
use super::deadlock;
use super::dialect::Session;
use super::fault::{Fault, Outcome};
use super::service::{Patience, Service};
use super::standing::Standing;
use super::steps::{Steps, kind};
use crate::lock::{Entry, ErrorKind, Moment, Request};

/// Enters the lines of all names of `request` in one step; whoever has to wait asks in another how those ahead stand.
pub(super) async fn enter(service: &Arc<Service>, request: &Request, deadline: Moment) -> Outcome<SqlClaim> {
    let steps = Steps::new(&*service.dialect, &request.names, request.id);
    let (standings, entered) = loop {
        let answer =
            service.call(deadline, Patience::Once, |_: &Arc<dyn Session>| steps.enter(request)).await?;
        let own = Standing::own(&answer.sets, request.names.len())?;
        if own.iter().all(|standing| standing.present) {
            break (own, answer.sent);
        }
        if let Some(standings) = refused(service, &steps, request, deadline).await? {
            break (standings, answer.sent);
        }
    };
    // That request has given the entry another ttl, also if an earlier one had made it.
    let claim = SqlClaim::new(service, request, standings, entered);
    claim.find_its_place(deadline).await?;
    if !request.ancestors.is_empty()
        && claim.waits()
        && let Some(cycle) = deadlock::search(service, request, deadline).await?
    {
        claim.send_leave(false, deadline).await?;
        return Err(Fault::new(ErrorKind::Deadlock, format!("it would never end: {cycle}")));
    }
    Ok(claim)
}

/// Why a claim was not let in: how it stands if it must not come back, an error if another kind is in the way; `None` if
/// that has gone meanwhile.
async fn refused(
    service: &Arc<Service>,
    steps: &Steps<'_>,
    request: &Request,
    deadline: Moment,
) -> Outcome<Option<Vec<Standing>>> {
    let batch = |_: &Arc<dyn Session>| steps.read(request.mode);
    let answer = service.call(deadline, Patience::Once, batch).await?;
    let standings = Standing::all(&answer.sets, request.names.len())?;
    if standings.iter().any(|standing| standing.gone.is_some()) {
        return Ok(Some(standings));
    }
    let mixes = |lead: &Entry| lead.mode.is_some_and(|mode| kind(mode) == kind(request.mode));
    let Some(lead) = standings.iter().filter_map(|standing| standing.lead.as_ref()).find(|lead| !mixes(lead))
    else {
        return Ok(None);
    };
    // A request that was sent before, over a connection that broke, comes when whoever is in the way has gone.
    if service.may_be_overtaken() {
        let batch = |_: &Arc<dyn Session>| steps.leave(request.mode, false, true);
        service.call(deadline, Patience::Deadline, batch).await?;
    }
    Err(mismatch(lead, request))
}

fn mismatch(lead: &Entry, request: &Request) -> Fault {
    let who = match (&lead.user, &lead.host, lead.pid) {
        (Some(user), Some(host), Some(pid)) => format!("{user}@{host} pid {pid}"),
        _ => "another claim".to_owned(),
    };
    let who = match lead.command.as_ref().filter(|command| !command.is_empty()) {
        Some(command) => format!("{who} ({command})"),
        None => who,
    };
    let mode = lead.mode.map_or_else(|| "another kind".to_owned(), |mode| mode.to_string());
    let wanted = request.mode;
    let reason = format!("{who} uses it as {mode}, which does not mix with {wanted}; use the same kind");
    Fault::new(ErrorKind::Mismatch, reason)
}
