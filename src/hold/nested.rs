//! Runs inside runs that already hold the same locks.
//!
//! A nested run needs no claim of its own. It sets a mark at the outer keeper of each lock, has the service confirm that
//! the outer claim still holds, and shares its token. The outer keeper keeps the hold as long as the mark exists: until
//! the nested run removes it, or until its keeper and its command tree are all dead.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::select_all;

use super::environment::HeldRecord;
use crate::backend::{Backend, Claim, deadlock};
use crate::clock::{Clock, now};
use crate::lock::{
    Ancestor, ClaimId, ClaimState, Error, ErrorKind, Grant, Granted, LockName, LossReason, Mode, Moment,
    Request, Result,
};
use crate::net::cause;
use crate::supervise::mark::Mark;

/// A claim whose locks outer runs hold.
#[derive(Debug)]
struct NestedClaim {
    grant: Grant,
    /// One for each lock.
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
    /// The outer claim that holds the first name, if outer runs hold all of them.
    pub under: Option<ClaimId>,
}

/// Shares the outer holds if they cover all names. Otherwise enters the queues with an ordinary claim.
///
/// Errors: those of [`deadlock::enter`], and those of [`Backend::inspect`].
pub async fn enter(
    backend: &Arc<dyn Backend>,
    request: &Request,
    outer: &[HeldRecord],
    deadline: Moment,
) -> Result<Entered> {
    let since = now();
    let (mut marks, mut granted, mut under) = (Vec::new(), Vec::new(), None);
    for name in &request.names {
        let Some((claim, mark, grant)) = register(backend, outer, name, request.mode, deadline).await? else {
            let claim = deadlock::enter(&**backend, request, Clock::Boot, deadline).await?;
            return Ok(Entered { claim, under: None });
        };
        under = under.or(Some(claim));
        marks.push(mark);
        granted.push(grant);
    }
    let grant = Grant { names: granted, counts_from: since };
    let claim = Arc::new(NestedClaim { grant, marks, backend: backend.client().capabilities().backend });
    Ok(Entered { claim, under })
}

/// Sets a mark at the innermost outer hold that covers `name`, still holds and can be reached. Returns the claim of that
/// hold, the mark and its grant; `None` without such a hold.
async fn register(
    backend: &Arc<dyn Backend>,
    outer: &[HeldRecord],
    name: &LockName,
    wanted: Mode,
    deadline: Moment,
) -> Result<Option<(ClaimId, Mark, Granted)>> {
    let identity = backend.client().identity();
    for record in outer.iter().rev().filter(|record| record.service == identity) {
        let Some((claim, grant)) = record.covering(name, wanted) else { continue };
        let Some(mark) = record.mark.as_ref().and_then(|mark| mark.set().ok()) else { continue };
        // The mark comes first: a hold that is confirmed after that stays.
        let status = backend.inspect(name, deadline).await?;
        if status.holders.iter().any(|holder| holder.claim == Some(claim)) {
            return Ok(Some((claim, mark, grant)));
        }
    }
    Ok(None)
}

impl NestedClaim {
    fn failed(&self, operation: &'static str, error: &io::Error) -> Error {
        Error::new(ErrorKind::System, cause::said(error)).during(self.backend, operation, None)
    }
}

#[async_trait]
impl Claim for NestedClaim {
    fn ttl(&self) -> Option<Duration> {
        None
    }

    async fn changed(&self, seen: Option<&ClaimState>) -> Result<ClaimState> {
        if seen.is_none() {
            return Ok(ClaimState::Held(self.grant.clone()));
        }
        // The outer keeper ends its tree then. This run may be outside of that tree.
        let ends = self.marks.iter().map(|mark| Box::pin(mark.is_in_vain()));
        let ended = select_all(ends).await.0;
        ended.map_err(|error| self.failed("watch the enclosing run", &error))?;
        Ok(ClaimState::Lost(LossReason::EnclosingEnded))
    }

    async fn renew(&self, _deadline: Moment) -> Result<Moment> {
        Ok(now())
    }

    async fn leave(&self, _succeeded: bool, _deadline: Moment) -> Result<()> {
        self.marks.iter().for_each(Mark::remove);
        Ok(())
    }

    fn anchors(&self) -> Result<Vec<OwnedFd>> {
        let anchor = |mark: &Mark| mark.anchor().map_err(|error| self.failed("anchor the mark", &error));
        self.marks.iter().map(anchor).collect()
    }
}
