//! Entering the lines.

use std::sync::Arc;

use super::claim::SqlClaim;
use super::deadlock;
use super::dialect::Session;
use super::fault::{Fault, Outcome};
use super::service::{Patience, Service};
use super::standing::Standing;
use super::steps::Steps;
use crate::lock::{ErrorKind, Moment, Request};

/// Enters the lines of all names of `request` in one step.
pub(super) async fn enter(service: &Arc<Service>, request: &Request, deadline: Moment) -> Outcome<SqlClaim> {
    let steps = Steps::new(&*service.dialect, &request.names, request.id);
    let batch = |_: &Arc<dyn Session>| steps.enter(request);
    let answer = service.call(deadline, Patience::Once, batch).await?;
    let standings = Standing::all(&answer.sets, request.names.len())?;
    if let Some(standing) = standings.iter().find(|standing| !standing.present && standing.gone.is_none()) {
        // A request that was sent before, over a connection that broke, comes when whoever is in the way has gone.
        if service.may_be_overtaken() {
            let batch = |_: &Arc<dyn Session>| steps.leave(false, true);
            service.call(deadline, Patience::Deadline, batch).await?;
        }
        return Err(mismatch(standing, request));
    }
    // That request has given the entry another ttl, also if an earlier one had made it.
    let claim = SqlClaim::new(service, request, standings, answer.sent);
    claim.collect(deadline).await?;
    if !request.ancestors.is_empty()
        && claim.waits()
        && let Some(cycle) = deadlock::search(service, request, deadline).await?
    {
        claim.send_leave(false, deadline).await?;
        return Err(Fault::new(ErrorKind::Deadlock, format!("it would never end: {cycle}")));
    }
    Ok(claim)
}

fn mismatch(standing: &Standing, request: &Request) -> Fault {
    let lead = standing.lead.clone().unwrap_or_default();
    let who = match (lead.user, lead.host, lead.pid) {
        (Some(user), Some(host), Some(pid)) => format!("{user}@{host} pid {pid}"),
        _ => "another claim".to_owned(),
    };
    let who = match lead.command.filter(|command| !command.is_empty()) {
        Some(command) => format!("{who} ({command})"),
        None => who,
    };
    let mode = lead.mode.map_or_else(|| "another kind".to_owned(), |mode| mode.to_string());
    let wanted = request.mode;
    let reason = format!("{who} uses it as {mode}, which does not mix with {wanted}; use the same kind");
    Fault::new(ErrorKind::Mismatch, reason)
}
