//! Trying out the operations of a run, for `doctor`.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use super::Backend;
use crate::clock::Clock;
use crate::lock::{ClaimId, ClaimState, Error, Holder, LockName, Mode, Moment, Request, Result};

/// The lease of the tried lock.
const TTL: Duration = Duration::from_secs(10);

/// The address of an alternative that does not show the tried lock, and why it could not be asked, if it could not.
pub type Unshown = (String, Option<Error>);

/// Acquires the lock `name` at `backend` with the claim `id`, renews it, releases it, and forgets it. An entry left
/// behind by a failure ends with its ttl. Returns those of `alternatives` that do not show the claim while it holds.
///
/// Errors: those of [`Backend::enter`] and of the claim; `Unavailable` at the deadline.
pub async fn of(
    backend: &dyn Backend,
    name: &LockName,
    id: ClaimId,
    holder: &Holder,
    alternatives: &[(String, Arc<dyn Backend>)],
    deadline: Moment,
) -> Result<Vec<Unshown>> {
    let request = Request {
        names: vec![name.clone()],
        id,
        mode: Mode::Exclusive,
        ttl: TTL,
        holder: holder.clone(),
        ancestors: Vec::new(),
        supersede: false,
    };
    let claim = backend.enter(&request, deadline).await?;
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
    let late = || Err(Error::unavailable("it was not given in time"));
    let held = Clock::Boot.by(deadline, held).await.unwrap_or_else(late);
    let left = claim.leave(false, deadline).await;
    let without = held?;
    left?;
    backend.forget(name, deadline).await?;
    Ok(without)
}

/// Returns those of `backends` that do not show the claim `id` in the queue of `name`.
async fn without(
    backends: &[(String, Arc<dyn Backend>)],
    name: &LockName,
    id: ClaimId,
    deadline: Moment,
) -> Vec<Unshown> {
    let looks = backends.iter().map(|(place, backend)| async move {
        let why = match backend.inspect(name, deadline).await {
            Ok(status) => {
                let mut entries = status.holders.iter().chain(&status.waiters);
                entries.all(|entry| entry.claim != Some(id)).then_some(None)?
            }
            Err(error) => Some(error),
        };
        Some((place.clone(), why))
    });
    join_all(looks).await.into_iter().flatten().collect()
}
