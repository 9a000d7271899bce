//! Who of those that say so goes first: the newest (`--supersede`, `--replace`).
//!
//! By entering, a claim takes the place of older waiters. Holders are asked to make way (`--replace`) by the newcomer, once its
//! own entry stands, as `dlock break` does; the holder ends its command and leaves, and the queue does the rest. Whether one
//! makes way is said by its entry.
//!
//! A run that enters again is as old as its first claim, and not the newest for having come last: it takes nobody's place, and
//! leaves where it finds a newer one.

use std::pin::Pin;
use std::time::Duration;

use super::context::Context;
use super::event::Phase;
use crate::backend::{Backend, Evict};
use crate::lock::{ClaimId, Entry, Holder, LockStatus, Mode, Moment, Request, Result};
use crate::supervise::keeper::Keeper;

/// A look at the queues.
type Looking = Pin<Box<dyn Future<Output = Result<Looked>>>>;

/// Between two attempts to look.
const AGAIN: Duration = Duration::from_millis(500);
/// What the next keeper is told of a claim that was in the queue, as long as it is not known who held then.
const ENTERED: u128 = 1;

/// What is known of others that say so.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    /// The holders that the first claim of this run has met, once it has looked: these are older.
    met: Option<Vec<ClaimId>>,
    /// Those that were asked to make way.
    asked: Vec<ClaimId>,
}

impl Known {
    /// The first claim has met these holders, and no others that say so.
    fn meets<'a>(&mut self, holders: impl IntoIterator<Item = &'a Entry>) {
        let met = self.met.get_or_insert_default();
        for id in holders.into_iter().filter_map(|holder| holder.claim) {
            if !met.contains(&id) {
                met.push(id);
            }
        }
    }

    /// What the next keeper is told, which is one number: whom the claim of `request` met, or its own id if it met nobody.
    fn memory(&self, request: &Request) -> u128 {
        match self.met.as_deref() {
            Some([]) => request.id.to_number(),
            Some([holder]) => holder.to_number(),
            _ => ENTERED,
        }
    }
}

/// What a look came to.
#[derive(Debug)]
pub(super) enum Looked {
    /// A newer run is there.
    Newer(Holder),
    /// This one stays.
    Stays(Known),
}

/// See the module.
pub(super) struct Precedence {
    at: Moment,
    pub(super) looking: Option<Looking>,
    known: Known,
    /// Whether this run was in the queue before.
    again: bool,
}

impl Precedence {
    /// That of a run whose keepers before this one, if there were any, have remembered it.
    pub(super) fn remembered(keeper: &Keeper<'_>) -> Self {
        let memory = keeper.remembered();
        let met = memory.filter(|number| *number != ENTERED).map(|number| vec![ClaimId::from_number(number)]);
        let known = Known { met, asked: Vec::new() };
        Self { at: Moment::NEVER, looking: None, known, again: memory.is_some() }
    }

    /// Whether the run was in the queue before.
    pub(super) fn comes_again(&self) -> bool {
        self.again
    }

    /// A claim of the run is in the queue.
    pub(super) fn entered(&mut self, context: &Context<'_>) {
        if !std::mem::replace(&mut self.again, true) {
            context.keeper.remember(ENTERED);
        }
    }

    /// Looks when it is time, and says when that is. As long as a look is under way it is not: a time that has passed
    /// would wake this process again and again, and nothing else would run.
    pub(super) fn look_when_due(&mut self, context: &Context<'_>, request: &Request) -> Moment {
        if self.looking.is_some() {
            return Moment::NEVER;
        }
        if self.at <= context.now() {
            self.look(context, request);
        }
        self.at
    }

    /// Begins to look.
    fn look(&mut self, context: &Context<'_>, request: &Request) {
        self.at = Moment::NEVER;
        let patience = (context.job.plan.ttl / 3).max(Duration::from_secs(1));
        let deadline = context.now() + patience;
        let (backend, request) = (context.job.backend.clone(), request.clone());
        let (replace, known) = (context.job.replace, self.known.clone());
        self.looking =
            Some(Box::pin(async move { look(&*backend, &request, replace, known, deadline).await }));
    }

    /// The claim waits, or waits in another way, for this holder as far as known.
    pub(super) fn waits(&mut self, context: &Context<'_>, request: &Request, holder: Option<&Entry>) {
        // One that holds alone is all that there is to meet.
        let alone = holder.filter(|holder| holder.mode == Some(Mode::Exclusive));
        if let (Some(holder), [_], false) = (alone, request.names.as_slice(), request.again) {
            self.known.meets(Some(holder).filter(|holder| holder.supersede));
            context.keeper.remember(self.known.memory(request));
        }
        self.look_now_if_wanted(context, request);
    }

    fn look_now_if_wanted(&mut self, context: &Context<'_>, request: &Request) {
        let unknown = request.again || self.known.met.is_none();
        let wanted = context.job.replace || (request.supersede && unknown);
        self.at = if wanted { context.now() } else { Moment::NEVER };
    }

    /// Where the order of arrival settles only in time, somebody may have come to stand ahead and not have been seen.
    pub(super) fn look_again(&mut self, context: &Context<'_>, request: &Request) {
        let settles = !context.job.backend.capabilities().ordered;
        if settles && *context.machine.phase() == Phase::Waiting {
            self.look_now_if_wanted(context, request);
        }
    }

    /// Takes over what was seen; the newer one, if there is one. What could not be seen is looked for again, and the error is given
    /// back, unless it was only to be known should the claim be lost.
    pub(super) fn looked(
        &mut self,
        context: &Context<'_>,
        request: &Request,
        looked: Result<Looked>,
    ) -> Result<Option<Holder>> {
        match looked {
            Ok(Looked::Newer(by)) => Ok(Some(by)),
            Ok(Looked::Stays(known)) => {
                self.known = known;
                if !request.again {
                    context.keeper.remember(self.known.memory(request));
                }
                Ok(None)
            }
            Err(_) if !context.job.replace && !request.again => Ok(None),
            Err(error) => {
                self.at = context.now() + AGAIN;
                Err(error)
            }
        }
    }

    /// Looks no more for this claim.
    pub(super) fn forget(&mut self) {
        (self.looking, self.at) = (None, Moment::NEVER);
    }
}

/// Looks at the queues of `request`, and asks holders to make way if it is to `replace` them.
async fn look(
    backend: &dyn Backend,
    request: &Request,
    replace: bool,
    mut known: Known,
    deadline: Moment,
) -> Result<Looked> {
    for name in &request.names {
        let queue = backend.inspect(name, deadline).await?;
        let others = queue.holders.iter().filter(|holder| !is_of_same_run(holder, request));
        let others: Vec<&Entry> = others.filter(|holder| holder.supersede).collect();
        if request.again {
            if let Some(newer) = newer(&queue, &others, request, known.met.as_deref()) {
                return Ok(Looked::Newer(newer.owner()));
            }
        } else {
            known.meets(others.iter().copied());
        }
        if !replace || own_place(&queue, request).is_none() {
            continue;
        }
        let met = known.met.as_deref().unwrap_or_default();
        for holder in others.iter().filter(|holder| holder.replace).filter_map(|holder| holder.claim) {
            if met.contains(&holder) && !known.asked.contains(&holder) {
                backend.evict(name, holder, Evict::Ask, &request.holder, deadline).await?;
                known.asked.push(holder);
            }
        }
    }
    Ok(Looked::Stays(known))
}

/// Where the claim of `request` waits.
fn own_place(queue: &LockStatus, request: &Request) -> Option<usize> {
    queue.waiters.iter().position(|waiter| waiter.claim == Some(request.id))
}

/// One that is newer than a claim that comes again, and says so. Whoever waits ahead came meanwhile, or it would have been taken
/// out; of the holders, `others`, only those that were not `met` did, if that is known. Whoever comes later takes this one out. When
/// the run of one that comes again as well came first is not known.
fn newer<'a>(
    queue: &'a LockStatus,
    others: &[&'a Entry],
    request: &Request,
    met: Option<&[ClaimId]>,
) -> Option<&'a Entry> {
    let ahead = &queue.waiters[..own_place(queue, request)?];
    let mut waiters = ahead.iter().rev().filter(|waiter| !waiter.again && !is_of_same_run(waiter, request));
    let is_new = |id: &ClaimId| met.is_some_and(|met| !met.contains(id));
    let mut holders = others.iter().copied().filter(|holder| !holder.again);
    waiters
        .find(|waiter| waiter.supersede)
        .or_else(|| holders.find(|holder| holder.claim.as_ref().is_some_and(is_new)))
}

/// Whether it is an earlier claim of the run of `request`, which may still be on its way out. Host and pid do not tell: every
/// container has a process 1, and several may have one host name.
fn is_of_same_run(entry: &Entry, request: &Request) -> bool {
    entry.claim.is_some_and(|id| id.run() == request.id.run())
}

#[cfg(test)]
#[path = "precedence_tests.rs"]
mod tests;
