//! `dlock release` and `dlock renew`, the counterparts of `acquire`.

use std::time::Duration;

use super::args::ClaimArgs;
use super::connect;
use super::exit_code::{ExitCode, Hinted as _};
use super::holder;
use super::watch;
use crate::backend::{Backend, Evict};
use crate::clock::{self, Clock};
use crate::lock::{ClaimId, Error, Holder, LockName, LockStatus, Verb, duration};
use crate::output::message::names;
use crate::output::sanitise;

/// The least wait for the end of a claim. A longer TTL makes it longer: a claim without renewals is gone after its TTL.
const LEAST_WAIT: Duration = Duration::from_secs(30);

/// No lease is shorter.
const SHORTEST_TTL: Duration = Duration::from_secs(1);

/// Releases a lock that `acquire` has taken. Returns when the claim is gone.
pub async fn release(backend: &dyn Backend, args: &ClaimArgs) -> anyhow::Result<()> {
    let by = Holder { verb: Verb::Release, ..holder::invoker("dlock release".into()) };
    give_back(backend, args, &by).await
}

/// Renews a lease of `acquire --detach`. A lock that is held for a process is renewed anyway.
pub async fn renew(backend: &dyn Backend, args: &ClaimArgs) -> anyhow::Result<()> {
    let found = find(backend, args).await?;
    if found.verb != Verb::Detach {
        return Ok(());
    }
    // The lease may have expired before a late answer. Only an answer within the shortest TTL counts.
    for _ in 0..2 {
        let sent = clock::now();
        if !connect::ask(|deadline| backend.renew(found.name, found.id, deadline)).await? {
            return Err(ended_meanwhile(&found));
        }
        if clock::now() < sent + SHORTEST_TTL {
            return Ok(());
        }
    }
    Err(unheard(&found))
}

async fn give_back(backend: &dyn Backend, args: &ClaimArgs, by: &Holder) -> anyhow::Result<()> {
    let found = find(backend, args).await?;
    let name = found.name;
    // Only a keeper reads the request; a lease without a process has none.
    let detached = found.verb == Verb::Detach;
    let how = if detached { Evict::Force } else { Evict::Ask };
    if !connect::ask(|deadline| backend.evict(name, found.id, how, by, deadline)).await? {
        return Err(ended_meanwhile(&found));
    }
    if detached {
        return Ok(());
    }
    let longest =
        found.ttl.unwrap_or_default().max(LEAST_WAIT) + backend.client().capabilities().abandoned_bound;
    await_end(backend, &found, longest).await
}

/// Waits until the claim is no longer in the queue, at most for `longest`. Nested runs may keep it there, or a stopped dlock
/// where no lease expires. An observer without a connection reports nothing, so the service is asked before dlock reports that
/// the claim is still there.
async fn await_end(backend: &dyn Backend, found: &HeldClaim<'_>, longest: Duration) -> anyhow::Result<()> {
    let until = clock::now() + longest;
    tokio::select! {
        biased;
        () = Clock::Boot.sleep_until(until) => {}
        gone = observe_end(backend, found) => return Ok(gone?),
    }
    let status = connect::ask(|deadline| backend.inspect(found.name, deadline)).await?;
    if has(&status, found.id) { Err(still_there(found, longest)) } else { Ok(()) }
}

/// Returns when an observer no longer sees the claim. After a broken connection it uses another observer.
async fn observe_end(backend: &dyn Backend, found: &HeldClaim<'_>) -> Result<(), Error> {
    let (mut observer, mut status) = watch::begin(backend, found.name).await?;
    while has(&status, found.id) {
        match observer.next().await {
            Ok(next) => status = next,
            Err(error) if error.is_transient() => {
                (observer, status) = watch::begin(backend, found.name).await?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Returns whether the claim `id` is in the queue.
fn has(status: &LockStatus, id: ClaimId) -> bool {
    status.holders.iter().chain(&status.waiters).any(|entry| entry.claim == Some(id))
}

/// A claim of `acquire` that holds.
struct HeldClaim<'a> {
    name: &'a LockName,
    id: ClaimId,
    verb: Verb,
    ttl: Option<Duration>,
}

/// Finds the claim under each of its names.
async fn find<'a>(backend: &dyn Backend, args: &'a ClaimArgs) -> anyhow::Result<HeldClaim<'a>> {
    let mut found: Option<HeldClaim<'a>> = None;
    for name in &args.name {
        let status = connect::ask(|deadline| backend.inspect(name, deadline)).await?;
        let own = status.holders.iter().filter(|entry| !entry.foreign);
        let claims = own.filter_map(|entry| Some((entry.claim?, entry)));
        let meant: Vec<_> = claims.filter(|(id, _)| id.to_string().starts_with(&args.claim)).collect();
        let (id, entry) = match meant[..] {
            [] => return Err(gone(args)),
            [only] => only,
            _ => {
                let (digits, lock) = (&args.claim, sanitise::text(name.as_str()));
                return Err(ExitCode::Usage
                    .error(format!("several claims on {lock} start with {digits}; write more digits")));
            }
        };
        if !matches!(entry.verb, Verb::Acquire | Verb::Detach) {
            let lock = sanitise::text(name.as_str());
            let reason = format!("claim {id} on {lock} was not taken by dlock acquire; nothing was changed");
            return Err(ExitCode::Lost
                .error(reason)
                .hint("dlock run releases its lock when its command ends; dlock break ends both"));
        }
        if found.as_ref().is_some_and(|found| found.id != id) {
            return Err(gone(args));
        }
        found.get_or_insert(HeldClaim { name, id, verb: entry.verb, ttl: entry.ttl });
    }
    found.ok_or_else(|| gone(args))
}

fn gone(args: &ClaimArgs) -> anyhow::Error {
    let (claim, locks) = (&args.claim, names(&args.name));
    ExitCode::Lost.error(format!("claim {claim} does not hold {locks}; nothing was changed"))
}

/// Returns the error of a claim that has just ended. A request with a lost answer may have ended it, so the error does not say
/// that nothing was changed.
fn ended_meanwhile(found: &HeldClaim<'_>) -> anyhow::Error {
    let lock = sanitise::text(found.name.as_str());
    ExitCode::Lost.error(format!("claim {} does not hold {lock} any more", found.id))
}

/// Returns the error of a claim that was renewed so long ago that it may have expired.
fn unheard(found: &HeldClaim<'_>) -> anyhow::Error {
    let lock = sanitise::text(found.name.as_str());
    let reason =
        format!("claim {} on {lock}: the service answers too late to tell whether it holds", found.id);
    ExitCode::Unavailable.error(reason).hint("renew again; dlock status shows whether it holds")
}

/// Returns the error of a claim that was asked to leave and has not.
fn still_there(found: &HeldClaim<'_>, waited: Duration) -> anyhow::Error {
    let (lock, waited) = (sanitise::text(found.name.as_str()), duration::short(waited));
    let reason = format!("claim {} was asked to leave and still holds {lock} after {waited}", found.id);
    ExitCode::Unavailable.error(reason).hint(
        "it leaves when the runs nested in it have ended; if its dlock is stopped, continue or end that",
    )
}

#[cfg(test)]
#[path = "release_tests.rs"]
mod tests;
