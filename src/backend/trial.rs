//! Trying out the operations of a run, for `doctor`.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use super::Backend;
use crate::clock::Clock;
use crate::lock::{ClaimId, ClaimState, Error, Holder, LockName, Mode, Moment, Request, Result};

/// The lease of the tried lock.
const TTL: Duration = Duration::from_secs(10);

/// Acquires the lock `name` at `backend` with the claim `id`, renews it, releases it, and forgets it. An entry left
/// behind by a failure ends with its ttl. Returns the places of those of `alternatives` that do not show the claim while
/// it holds; an alternative that cannot be asked is left out.
///
/// Errors: those of [`Backend::enter`] and of the claim; `Unavailable` at the deadline.
pub async fn of(
    backend: &dyn Backend,
    name: &LockName,
    id: ClaimId,
    holder: &Holder,
    alternatives: &[(String, Arc<dyn Backend>)],
    deadline: Moment,
) -> Result<Vec<String>> {
    let request = Request {
        names: vec![name.clone()],
        id,
        mode: Mode::Exclusive,
        ttl: TTL,
        holder: holder.clone(),
        ancestors: Vec::new(),
        supersede: false,
    };
    let claim = match backend.enter(&request, deadline).await {
        Ok(claim) => claim,
        Err(error) => {
            if error.is_unanswered() && backend.has_connected() {
                drop(backend.withdraw(&request, deadline).await);
            }
            return Err(error);
        }
    };
    let held = async {
        let mut state = claim.changed(None).await?;
        while let ClaimState::Waiting { .. } = state {
            state = claim.changed(Some(&state)).await?;
        }
        claim.renew(deadline).await?;
        match claim.changed(None).await? {
            ClaimState::Held(_) => Ok(without(alternatives, name, id, deadline).await),
            _ => Err(Error::unavailable("it was lost at once")),
        }
    };
    let held = tokio::select! {
        biased;
        held = held => held,
        () = Clock::Boot.sleep_until(deadline) => {
            Err(Error::unavailable("it was not given in time"))
        }
    };
    let left = claim.leave(false, deadline).await;
    let without = held?;
    left?;
    backend.forget(name, deadline).await?;
    Ok(without)
}

/// The places of those of `backends` that answer and do not show the claim `id` in the queue of `name`.
async fn without(
    backends: &[(String, Arc<dyn Backend>)],
    name: &LockName,
    id: ClaimId,
    deadline: Moment,
) -> Vec<String> {
    let looks = backends.iter().map(|(place, backend)| async move {
        let status = backend.inspect(name, deadline).await.ok()?;
        let mut entries = status.holders.iter().chain(&status.waiters);
        (!entries.any(|entry| entry.claim == Some(id))).then(|| place.clone())
    });
    join_all(looks).await.into_iter().flatten().collect()
}
