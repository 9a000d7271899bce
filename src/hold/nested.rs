//! Runs inside a run that already holds the same lock.
//!
//! A nested run needs no claim of its own for such a lock. It sets a mark at the outer keeper, has the service confirm
//! that the outer claim still holds, and shares its token. The outer keeper keeps the hold as long as the mark exists:
//! until the nested run removes it, or until its keeper and its command tree are all dead.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::environment::HeldRecord;
use crate::backend::{Backend, Claim, deadlock};
use crate::clock::{Clock, now};
use crate::lock::{
    Ancestor, ClaimId, ClaimState, Error, ErrorKind, Grant, Granted, LockName, Mode, Moment, Request, Result,
};
use crate::net::cause;
use crate::supervise::mark::Mark;

/// A claim of which outer runs hold some locks.
#[derive(Debug)]
struct NestedClaim {
    /// For each name: the grant from an outer hold, or `None` if the name is part of `rest`.
    outer: Vec<Option<Granted>>,
    since: Moment,
    /// The claim on the other names, if there are any.
    rest: Option<Arc<dyn Claim>>,
    marks: Vec<Mark>,
    /// The name of the service.
    backend: &'static str,
}

/// Returns the claims on the service `identity` that a process with these outer holds runs under.
pub fn ancestors(outer: &[HeldRecord], identity: &str) -> Vec<Ancestor> {
    let ancestor = |record: &HeldRecord| {
        let names = record.names.iter().filter_map(|name| name.parse().ok()).collect();
        Some(Ancestor { claim: record.claim()?, names })
    };
    outer.iter().filter(|r| r.service == identity).filter_map(ancestor).collect()
}

/// The result of entering.
#[derive(Debug)]
pub struct Entered {
    /// The claim on all names.
    pub claim: Arc<dyn Claim>,
    /// The names in whose queues the request's own claim stands: those that no outer run holds.
    pub own: Vec<LockName>,
    /// The outer claim that holds the first name, if one does.
    pub under: Option<ClaimId>,
}

/// Enters the queue for the names that no outer hold covers, and takes the others from the outer holds.
///
/// Errors: those of [`deadlock::enter`], those of [`Backend::inspect`], and `Deadlock` for an exclusive claim under
/// this run's own shared hold.
pub async fn enter(
    backend: &Arc<dyn Backend>,
    request: &Request,
    outer: &[HeldRecord],
    deadline: Moment,
) -> Result<Entered> {
    let since = now();
    let identity = backend.identity();
    let mut marks = Vec::new();
    let mut granted = Vec::new();
    let mut under = None;
    for name in &request.names {
        let records = outer.iter().rev().filter(|r| r.service == identity);
        let holding: Vec<_> = records.filter_map(|r| r.position(name).map(|at| (r, at))).collect();
        let mut from_outer = None;
        for (record, at) in holding {
            let found = register(backend, record, at, name, request.mode, deadline).await?;
            if let Some((mark, grant)) = found {
                marks.push(mark);
                from_outer = Some(grant);
                under = if granted.is_empty() { record.claim() } else { under };
                break;
            }
        }
        granted.push(from_outer);
    }
    let own = request.names.iter().zip(&granted).filter(|(_, g)| g.is_none());
    let own: Vec<LockName> = own.map(|(name, _)| name.clone()).collect();
    let rest = if own.is_empty() {
        None
    } else {
        let rest = Request { names: own.clone(), ..request.clone() };
        Some(deadlock::enter(&**backend, &rest, Clock::Boot, deadline).await?)
    };
    let claim: Arc<dyn Claim> = match rest {
        Some(rest) if marks.is_empty() => rest,
        rest => Arc::new(NestedClaim {
            outer: granted,
            since,
            rest,
            marks,
            backend: backend.capabilities().backend,
        }),
    };
    Ok(Entered { claim, own, under })
}

/// Sets a mark at the outer hold `record` for `name`. Returns `None` if that no longer holds or cannot be reached.
async fn register(
    backend: &Arc<dyn Backend>,
    record: &HeldRecord,
    at: usize,
    name: &LockName,
    wanted: Mode,
    deadline: Moment,
) -> Result<Option<(Mark, Granted)>> {
    let (Some(claim), Some(mode), Some(token)) = (record.claim(), record.mode(), record.token(at)) else {
        return Ok(None);
    };
    let covers = mode.covers(wanted);
    let upgrade = mode == Mode::Shared && wanted == Mode::Exclusive;
    if !covers && !upgrade {
        return Ok(None);
    }
    let mark = record.mark.as_ref().and_then(|m| m.set().ok());
    // The mark comes first: a hold that is confirmed after that stays.
    let status = backend.inspect(name, deadline).await?;
    if !status.holders.iter().any(|holder| holder.claim == Some(claim)) {
        return Ok(None);
    }
    if upgrade {
        let reason = format!(
            "this runs under a shared hold of {name} (claim {claim}), which would have to end first; \
             take the lock exclusively in the outer run"
        );
        let backend = backend.capabilities().backend;
        return Err(Error::new(ErrorKind::Deadlock, reason).during(backend, "join the queue", Some(name)));
    }
    let slot = record.slots.get(at).copied();
    Ok(mark.map(|mark| (mark, Granted { token, slot })))
}

impl NestedClaim {
    /// Returns the state of the whole claim, given that of the claim on the rest.
    fn merged(&self, rest: ClaimState) -> ClaimState {
        let ClaimState::Held(grant) = rest else { return rest };
        let mut others = grant.names.iter();
        let names = self.outer.iter().filter_map(|g| g.or_else(|| others.next().copied())).collect();
        ClaimState::Held(Grant { names, counts_from: grant.counts_from })
    }

    /// Returns what was seen of the rest when `seen` was seen of the whole.
    fn seen_of_rest(&self, seen: &ClaimState) -> ClaimState {
        let ClaimState::Held(grant) = seen else { return seen.clone() };
        let pairs = grant.names.iter().zip(&self.outer);
        let names = pairs.filter(|(_, outer)| outer.is_none()).map(|(g, _)| *g).collect();
        ClaimState::Held(Grant { names, counts_from: grant.counts_from })
    }
}

#[async_trait]
impl Claim for NestedClaim {
    fn ttl(&self) -> Option<Duration> {
        self.rest.as_ref().and_then(|rest| rest.ttl())
    }

    async fn changed(&self, seen: Option<&ClaimState>) -> Result<ClaimState> {
        match (&self.rest, seen) {
            (Some(rest), _) => {
                let seen = seen.map(|s| self.seen_of_rest(s));
                Ok(self.merged(rest.changed(seen.as_ref()).await?))
            }
            (None, None) => {
                let rest = Grant { names: Vec::new(), counts_from: self.since };
                Ok(self.merged(ClaimState::Held(rest)))
            }
            // If the outer run loses its claim it stops this one. Otherwise nothing changes here.
            (None, Some(_)) => std::future::pending().await,
        }
    }

    async fn renew(&self, deadline: Moment) -> Result<Moment> {
        match &self.rest {
            Some(rest) => rest.renew(deadline).await,
            None => Ok(now()),
        }
    }

    async fn leave(&self, succeeded: bool, deadline: Moment) -> Result<()> {
        let left = match &self.rest {
            Some(rest) => rest.leave(succeeded, deadline).await,
            None => Ok(()),
        };
        self.marks.iter().for_each(Mark::remove);
        left
    }

    fn anchors(&self) -> Result<Vec<OwnedFd>> {
        let mut anchors = self.rest.as_ref().map_or_else(|| Ok(Vec::new()), |rest| rest.anchors())?;
        for mark in &self.marks {
            let failed = |error| {
                let why = cause::said(&error);
                Error::new(ErrorKind::System, why).during(self.backend, "anchor the mark", None)
            };
            anchors.push(mark.anchor().map_err(failed)?);
        }
        Ok(anchors)
    }
}
