//! Promoting a waiter to a holder when its turn comes: reading the queues under the guards, and acting on them.

use std::path::Path;
use std::sync::Arc;

use super::core::{FileClaim, Inner};
use super::fifo::Watch;
use super::grant;
use super::inspect;
use super::queue::{Fixed, Mark, Record, State};
use super::storage::{QueueFile, ReadQueue};
use super::token;
use crate::lock::{ClaimState, Holder, LossReason, Mode, Moment};
use crate::net::fault::FaultResult;

/// The result of a review.
pub(super) enum Review {
    Settled,
    /// Tokens must be reserved in this queue first.
    Reserve(Arc<QueueFile>),
}

impl FileClaim {
    /// Reads the records under the guards, and takes the locks if it is this claim's turn.
    pub(super) fn review(&self, began: Moment) -> FaultResult<Review> {
        let inner = &mut *self.inner();
        if inner.is_over() {
            return Ok(Review::Settled);
        }
        let mut queues = Vec::with_capacity(inner.places.len());
        for place in &inner.places {
            if place.queue.is_unlinked()? {
                inner.state = ClaimState::Lost(removed(&place.queue.path()));
                return Ok(Review::Settled);
            }
            queues.push(place.queue.read(Some(place.end))?);
        }
        if let Some(state) = self.verdict(inner, &queues)? {
            if inner.grant.is_none() {
                grant::withdraw(&mut inner.places)?;
                inner.pending = None;
                inner.watches.clear();
            }
            inner.state = state;
            return Ok(Review::Settled);
        }
        if inner.grant.is_some() {
            return Ok(Review::Settled);
        }
        self.try_take(inner, &mut queues, began)
    }

    /// Returns the state that other processes gave the claim, if any did.
    fn verdict(&self, inner: &Inner, queues: &[ReadQueue]) -> FaultResult<Option<ClaimState>> {
        let mut asked = None;
        for (place, queue) in inner.places.iter().zip(queues) {
            let own = queue.image.records.iter().find(|r| r.at == place.at && r.fixed.id == self.id);
            let Some(own) = own else { return Ok(Some(ClaimState::Lost(LossReason::Evicted(None)))) };
            if own.fixed.state.in_queue() && !own.fixed.asked {
                continue;
            }
            let whole = place.queue.read(None)?;
            let by = |mark| whole.image.marked_by(mark, self.id);
            match own.fixed.state {
                State::Superseded => {
                    let by = by(Mark::Superseded).unwrap_or_default();
                    return Ok(Some(ClaimState::Superseded { by }));
                }
                State::Evicted => {
                    return Ok(Some(ClaimState::Lost(LossReason::Evicted(by(Mark::Evicted)))));
                }
                _ => asked = asked.or_else(|| by(Mark::Asked)).or_else(|| Some(Holder::default())),
            }
        }
        Ok(asked.map(|by| ClaimState::AskedToLeave { by }))
    }

    fn try_take(&self, inner: &mut Inner, queues: &mut [ReadQueue], began: Moment) -> FaultResult<Review> {
        let (mut waits, mut watch) = (false, Vec::new());
        for (place, queue) in inner.places.iter().zip(queues.iter_mut()) {
            let ahead = grant::ahead(&place.queue, queue, place.fixed.mode, place.at)?;
            waits |= ahead.waits;
            watch.extend(ahead.watch);
        }
        if waits {
            grant::withdraw(&mut inner.places)?;
            inner.pending = None;
            inner.state = waiting(inner, queues);
        } else {
            let Some(busy) = grant::take(&mut inner.places, queues)? else {
                return self.publish_hold(inner, queues, began);
            };
            Self::block(inner, queues, busy)?;
        }
        inner.watches = watch.into_iter().map(|f| Watch::new(f).map(Arc::new)).collect::<FaultResult<_>>()?;
        Ok(Review::Settled)
    }

    /// Waits, in a thread, until the process outside of the queue releases the lock file.
    fn block(inner: &mut Inner, queues: &[ReadQueue], busy: usize) -> FaultResult<()> {
        let place = &mut inner.places[busy];
        let directory = Arc::clone(&place.queue.directory);
        if place.fixed.state != State::Blocked {
            place.queue.set_state(place.at, State::Blocked)?;
            place.fixed.state = State::Blocked;
        }
        let exclusive = place.fixed.mode == Mode::Exclusive;
        // A slot is tried only after the lock file is locked. So if there is a slot, the slot is the one to wait for.
        let pending = match &mut place.slot {
            Some((_, slot)) => slot.wait(&directory, true)?,
            None => place.hold.wait(&directory, exclusive)?,
        };
        inner.pending = Some(pending);
        let foreign = inspect::foreign_holder(&inner.places[busy]);
        let mut state = waiting(inner, queues);
        if let ClaimState::Waiting { holder, .. } = &mut state {
            *holder = Some(Box::new(foreign));
        }
        inner.state = state;
        Ok(())
    }

    fn publish_hold(
        &self,
        inner: &mut Inner,
        queues: &mut [ReadQueue],
        began: Moment,
    ) -> FaultResult<Review> {
        for (place, queue) in inner.places.iter().zip(queues.iter()) {
            if !token::ready(&queue.header, place.queue.directory.boot()) {
                return Ok(Review::Reserve(Arc::clone(&place.queue)));
            }
        }
        let since = token::wall();
        for (place, queue) in inner.places.iter_mut().zip(queues.iter_mut()) {
            let token = token::take(&mut queue.header, place.queue.directory.boot()).unwrap_or_default();
            let slot = place.slot.as_ref().map_or(0, |(k, _)| *k);
            let start = queue.image.records.first().map_or(place.at, |r| r.at);
            place.queue.advance(&mut queue.header, start)?;
            let fixed = Fixed { state: State::Held, slot, token, since, ..place.fixed };
            place.queue.overwrite(place.at, fixed.print().as_bytes())?;
            place.fixed = fixed;
        }
        inner.hold(began);
        if let (Mode::Slots(_), Some(place)) = (inner.places[0].fixed.mode, inner.places.first()) {
            // The next claim is the first of the waiters now and must watch every holder.
            let queue = place.queue.read(None)?;
            let own = Record { at: place.at, end: place.end, fixed: place.fixed };
            // After a failure the next claim looks again only when a claim that it watches ends.
            let _ = grant::wake_behind(&place.queue, &queue, &own);
        }
        self.news.notify_waiters();
        Ok(Review::Settled)
    }
}

/// The state of a waiter: how many claims are ahead, and the first of them.
pub(super) fn waiting(inner: &Inner, queues: &[ReadQueue]) -> ClaimState {
    let mut most: Option<(usize, usize)> = None;
    for (index, (place, queue)) in inner.places.iter().zip(queues).enumerate() {
        let ahead =
            queue.image.records.iter().filter(|r| r.at < place.at && r.fixed.state.in_queue()).count();
        if most.is_none_or(|(_, m)| ahead > m) {
            most = Some((index, ahead));
        }
    }
    let (index, count) = most.unwrap_or((0, 0));
    let holder = queues.get(index).and_then(|queue| {
        let place = inner.places.get(index)?;
        let first = queue.image.records.iter().find(|r| r.fixed.state.in_queue())?;
        // A blocked claim is not the holder: the process outside of the queue is.
        let shown = || match first.fixed.state {
            State::Blocked => inspect::foreign_holder(place),
            _ => inspect::entry(queue, first, None),
        };
        (first.at < place.at).then(|| Box::new(shown()))
    });
    ClaimState::Waiting { ahead: u32::try_from(count).ok(), holder }
}

/// The loss of a claim whose file `path` is gone.
pub(super) fn removed(path: &Path) -> LossReason {
    LossReason::Replaced(format!("the lock file {} was removed or replaced", path.display()))
}
