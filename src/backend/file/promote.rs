//! Promoting a waiter to a holder when it is its turn: read under the guards, and acted upon.

use std::path::Path;
use std::sync::Arc;

use super::core::{FileClaim, Inner};
use super::fault::FaultResult;
use super::fifo::Watch;
use super::grant;
use super::inspect;
use super::line::{Fixed, Mark, Record, State};
use super::storage::{Line, LineFile};
use super::token;
use crate::lock::{ClaimState, Holder, LossReason, Mode, Moment};

/// What a review came to.
pub(super) enum Step {
    Settled,
    /// Tokens must be reserved in this line first.
    Reserve(Arc<LineFile>),
}

impl FileClaim {
    /// Under the guards: reads the records, takes the locks if it is this claim's turn.
    pub(super) fn review(&self, began: Moment) -> FaultResult<Step> {
        let inner = &mut *self.inner();
        if inner.is_over() {
            return Ok(Step::Settled);
        }
        let mut lines = Vec::with_capacity(inner.places.len());
        for place in &inner.places {
            if place.line.is_unlinked()? {
                inner.state = ClaimState::Lost(removed(&place.line.path()));
                return Ok(Step::Settled);
            }
            lines.push(place.line.read(Some(place.end))?);
        }
        if let Some(state) = self.verdict(inner, &lines)? {
            if inner.grant.is_none() {
                grant::withdraw(&mut inner.places)?;
                inner.pending = None;
                inner.watches.clear();
            }
            inner.state = state;
            return Ok(Step::Settled);
        }
        if inner.grant.is_some() {
            return Ok(Step::Settled);
        }
        self.try_take(inner, &mut lines, began)
    }

    /// What others did to the claim, if anything.
    fn verdict(&self, inner: &Inner, lines: &[Line]) -> FaultResult<Option<ClaimState>> {
        let mut asked = None;
        for (place, line) in inner.places.iter().zip(lines) {
            let own = line.image.records.iter().find(|r| r.at == place.at && r.fixed.id == self.id);
            let Some(own) = own else { return Ok(Some(ClaimState::Lost(LossReason::Evicted(None)))) };
            if own.fixed.state.in_line() && !own.fixed.asked {
                continue;
            }
            let whole = place.line.read(None)?;
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

    fn try_take(&self, inner: &mut Inner, lines: &mut [Line], began: Moment) -> FaultResult<Step> {
        let (mut waits, mut watch) = (false, Vec::new());
        for (place, line) in inner.places.iter().zip(lines.iter_mut()) {
            let ahead = grant::ahead(&place.line, line, place.fixed.mode, place.at)?;
            waits |= ahead.waits;
            watch.extend(ahead.watch);
        }
        if waits {
            grant::withdraw(&mut inner.places)?;
            inner.pending = None;
            inner.state = waiting(inner, lines);
        } else {
            let Some(busy) = grant::take(&mut inner.places, lines)? else {
                return self.publish_hold(inner, lines, began);
            };
            Self::block(inner, lines, busy)?;
        }
        inner.watches = watch.into_iter().map(|f| Watch::new(f).map(Arc::new)).collect::<FaultResult<_>>()?;
        // Read while there is time, for the token of the hold.
        for place in &inner.places {
            let _ = place.line.directory.boot();
        }
        Ok(Step::Settled)
    }

    /// Waits, in a thread, for somebody outside of the line to let go of the lock file.
    fn block(inner: &mut Inner, lines: &[Line], busy: usize) -> FaultResult<()> {
        let place = &mut inner.places[busy];
        let directory = Arc::clone(&place.line.directory);
        if place.fixed.state != State::Blocked {
            place.line.set_state(place.at, State::Blocked)?;
            place.fixed.state = State::Blocked;
        }
        let exclusive = place.fixed.mode == Mode::Exclusive;
        // A slot is tried only with the lock file in hand, so what is missing is the slot if there is one.
        let pending = match &mut place.slot {
            Some((_, slot)) => slot.wait(&directory, true)?,
            None => place.hold.wait(&directory, exclusive)?,
        };
        inner.pending = Some(pending);
        let foreign = inspect::foreign_holder(&inner.places[busy]);
        let mut state = waiting(inner, lines);
        if let ClaimState::Waiting { holder, .. } = &mut state {
            *holder = Some(Box::new(foreign));
        }
        inner.state = state;
        Ok(())
    }

    fn publish_hold(&self, inner: &mut Inner, lines: &mut [Line], began: Moment) -> FaultResult<Step> {
        for (place, line) in inner.places.iter().zip(lines.iter()) {
            if !token::ready(&line.header, place.line.directory.boot()) {
                return Ok(Step::Reserve(Arc::clone(&place.line)));
            }
        }
        let since = token::wall();
        for (place, line) in inner.places.iter_mut().zip(lines.iter_mut()) {
            let token = token::take(&mut line.header, place.line.directory.boot()).unwrap_or_default();
            let slot = place.slot.as_ref().map_or(0, |(k, _)| *k);
            let start = line.image.records.first().map_or(place.at, |r| r.at);
            place.line.advance(&mut line.header, start);
            place.line.write_header(&line.header)?;
            let fixed = Fixed { state: State::Held, slot, token, since, ..place.fixed };
            place.line.overwrite(place.at, fixed.print().as_bytes())?;
            place.fixed = fixed;
        }
        inner.hold(began);
        if let (Mode::Slots(_), Some(place)) = (inner.places[0].fixed.mode, inner.places.first()) {
            // The next one is at the head of the waiters now and must watch every holder.
            let line = place.line.read(None)?;
            let own = Record { at: place.at, end: place.end, fixed: place.fixed };
            // It looks again when the next one leaves, should there be nothing to wake it with.
            let _ = grant::wake_behind(&place.line, &line, &own);
        }
        self.news.notify_waiters();
        Ok(Step::Settled)
    }
}

/// The state of a claim that waits: where, and behind whom.
pub(super) fn waiting(inner: &Inner, lines: &[Line]) -> ClaimState {
    let mut most: Option<(usize, usize)> = None;
    for (index, (place, line)) in inner.places.iter().zip(lines).enumerate() {
        let ahead = line.image.records.iter().filter(|r| r.at < place.at && r.fixed.state.in_line()).count();
        if most.is_none_or(|(_, m)| ahead > m) {
            most = Some((index, ahead));
        }
    }
    let (index, count) = most.unwrap_or((0, 0));
    let holder = lines.get(index).and_then(|line| {
        let place = inner.places.get(index)?;
        let first = line.image.records.iter().find(|r| r.fixed.state.in_line())?;
        // One that waits for somebody outside of the line is not the one that is waited for.
        let shown = || match first.fixed.state {
            State::Blocked => inspect::foreign_holder(place),
            _ => inspect::entry(line, first, None),
        };
        (first.at < place.at).then(|| Box::new(shown()))
    });
    ClaimState::Waiting { ahead: u32::try_from(count).ok(), holder }
}

/// The loss of a claim whose file `path` is gone.
pub(super) fn removed(path: &Path) -> LossReason {
    LossReason::Replaced(format!("the lock file {} was removed or replaced", path.display()))
}
