//! One claim: waiting, holding, leaving.

use std::future::Future;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use async_trait::async_trait;

use super::core::{FileClaim, Inner};
use super::fifo::Listener;
use super::grant::{self, QueuedClaim};
use super::guard::Guard;
use super::hold::Hold;
use super::presence::Presence;
use super::promote::{Review, removed};
use super::queue::Fixed;
use super::reservation::reserve;
use super::storage::guards;
use crate::backend::Claim;
use crate::clock;
use crate::lock::{ClaimState, LossReason, Moment, Result};
use crate::net::fault::FaultResult;

/// Returns the path of a file of `place` that is missing or replaced, if there is one.
fn gone(inner: &Inner, place: &QueuedClaim) -> FaultResult<Option<PathBuf>> {
    if place.queue.is_replaced()? {
        return Ok(Some(place.queue.path()));
    }
    if inner.grant.is_some() {
        let directory = &place.queue.directory;
        for hold in place.holds() {
            if hold.is_replaced(directory)? {
                return Ok(Some(directory.path_of(&hold.name)));
            }
        }
    }
    Ok(None)
}

impl FileClaim {
    /// Brings the state up to date.
    async fn look(&self, deadline: Moment) -> FaultResult<()> {
        let began = clock::now();
        if self.stands_unchanged()? {
            return Ok(());
        }
        let mut guards = guards(&self.queues(), deadline).await?;
        loop {
            match self.review(began)? {
                Review::Settled => return Ok(()),
                Review::Reserve(queue) => guards = reserve(queue, guards, deadline).await?,
            }
        }
    }

    /// Brings the state up to date, then looks at the files by `check`. The files of a hold are looked at also if its
    /// queue cannot be read. A loss that is found counts even if something else fails.
    async fn look_with(
        &self,
        check: impl FnOnce(&Self) -> FaultResult<()>,
        deadline: Moment,
    ) -> FaultResult<()> {
        let looked = match self.look(deadline).await {
            Ok(()) => check(self),
            Err(fault) if self.holds() => self.check_files().and(Err(fault)),
            Err(fault) => Err(fault),
        };
        if self.is_over() { Ok(()) } else { looked }
    }

    /// Returns whether nothing can have changed. Needs no guard, since one read within a page is never torn.
    fn stands_unchanged(&self) -> FaultResult<bool> {
        let inner = self.inner();
        if inner.is_over() {
            return Ok(true);
        }
        if inner.grant.is_none() {
            return Ok(false);
        }
        if matches!(inner.state, ClaimState::AskedToLeave { .. }) {
            // A record has one flag for all requests to leave, so a further request does not change it.
            return Ok(false);
        }
        for place in &inner.places {
            let expected = Fixed { asked: false, ..place.fixed };
            if Fixed::read(&place.queue.read_fixed(place.at)?) != Some(expected) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Completes when another look may show something new. `called` was created before the last look.
    async fn wait(&self, called: Pin<&mut (impl Future<Output = ()> + Send)>) -> FaultResult<()> {
        let (listener, watches, pending, presence) = {
            let inner = &mut *self.inner();
            if inner.grant.is_some() {
                // Not at the moment of acquiring: the last process to close a FIFO waits for the kernel to dismantle
                // it, and the command would wait too.
                inner.watches.clear();
            }
            if let (None, Some(fifo)) = (&inner.listener, &inner.fifo.1) {
                inner.listener = Some(Arc::new(Listener::new(Arc::clone(fifo))?));
            }
            (inner.listener.clone(), inner.watches.clone(), inner.pending.clone(), inner.presence.clone())
        };
        let mut all: Vec<Pin<Box<dyn Future<Output = ()> + Send + '_>>> = vec![Box::pin(called)];
        if let Some(listener) = listener {
            all.push(Box::pin(async move { listener.heard().await }));
        }
        if let Some(pending) = pending {
            all.push(Box::pin(async move { pending.done().await }));
        }
        if let Some(presence) = presence {
            all.push(Box::pin(async move {
                presence.disturbed().await;
                self.inner().disturbed = true;
            }));
        }
        for watch in watches {
            all.push(Box::pin(async move { watch.ended().await }));
        }
        std::future::poll_fn(|cx| {
            let ready = all.iter_mut().any(|f| f.as_mut().poll(cx).is_ready());
            if ready { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        Ok(())
    }

    /// Starts to watch the files of a hold, if it can, and has them looked at once more after that.
    fn watch_files(&self) {
        let inner = &mut *self.inner();
        if inner.grant.is_none() || inner.is_over() || inner.presence.is_some() {
            return;
        }
        let mut paths = Vec::new();
        for place in &inner.places {
            paths.push(place.queue.path());
            paths.extend(place.holds().map(|hold| place.queue.directory.path_of(&hold.name)));
        }
        let Some(place) = inner.places.first() else { return };
        inner.presence = Presence::watch(place.queue.directory.path(), &paths).ok().map(Arc::new);
        inner.disturbed = true;
        self.news.notify_waiters();
    }

    /// Updates the times of a hold's old files, so that they look used.
    fn freshen_files(&self) {
        let inner = &*self.inner();
        if inner.grant.is_none() || inner.is_over() {
            return;
        }
        for place in &inner.places {
            place.queue.freshen();
            place.holds().for_each(Hold::freshen);
        }
    }

    /// Looks at the files if something may have happened to them.
    fn check_if_disturbed(&self) -> FaultResult<()> {
        if !self.inner().disturbed {
            return Ok(());
        }
        self.check_files()?;
        // Only after the look: if it fails, the files are looked at again.
        self.inner().disturbed = false;
        Ok(())
    }

    /// Marks the claim as lost if one of its files is no longer the one at its path.
    fn check_files(&self) -> FaultResult<()> {
        let inner = &mut *self.inner();
        if inner.is_over() {
            return Ok(());
        }
        for place in &inner.places {
            if let Some(path) = gone(inner, place)? {
                inner.state = ClaimState::Lost(removed(&path));
                break;
            }
        }
        Ok(())
    }

    /// Leaves the queues, under the guards. Without them the records stay: the released locks and the closed FIFO say
    /// enough.
    pub(super) fn go(&self, guards: Option<Vec<Guard>>, succeeded: bool) -> FaultResult<()> {
        let mut result = Ok(());
        let (fifo, listener, watches, presence) = {
            let inner = &mut *self.inner();
            if std::mem::replace(&mut inner.left, true) {
                return Ok(());
            }
            let success = (succeeded && inner.acquired > 0).then_some(inner.acquired);
            if guards.is_some() {
                for place in &inner.places {
                    result = result.and(place.queue.remove(self.id, place.at, place.end, success));
                }
            }
            grant::release(&mut inner.places);
            inner.places.iter_mut().for_each(QueuedClaim::stop_waiting);
            inner.pending = None;
            if !inner.state.is_final() {
                inner.state = ClaimState::Lost(LossReason::SessionEnded);
            }
            let watches = std::mem::take(&mut inner.watches);
            (inner.fifo.1.take(), inner.listener.take(), watches, inner.presence.take())
        };
        drop(guards);
        // Closing the FIFO wakes the successor, which then finds the guard and the locks free.
        drop((listener, fifo));
        self.news.notify_waiters();
        {
            let inner = self.inner();
            if let (Some(place), Some(fifo)) = (inner.places.first(), &inner.fifo.0) {
                place.queue.directory.unlink(fifo);
            }
        }
        // Comes last, since the kernel takes time to dismantle them.
        drop((watches, presence));
        result
    }
}

#[async_trait]
impl Claim for FileClaim {
    fn ttl(&self) -> Option<Duration> {
        None
    }

    async fn changed(&self, seen: Option<&ClaimState>) -> Result<ClaimState> {
        loop {
            let called = self.news.notified();
            let looked = self.look_with(Self::check_if_disturbed, Moment::NEVER).await;
            self.conclude(looked)?;
            if let Some(state) = self.inner().announce(seen) {
                return Ok(state);
            }
            self.wait(pin!(called)).await?;
        }
    }

    fn settle(&self) {
        self.freshen_files();
        self.watch_files();
    }

    async fn renew(&self, deadline: Moment) -> Result<Moment> {
        let began = clock::now();
        let before = self.inner().state.clone();
        self.freshen_files();
        // Tried again, in case no watch could be had before.
        self.watch_files();
        self.look_with(Self::check_files, deadline).await?;
        let inner = &mut *self.inner();
        if inner.state != before {
            self.news.notify_waiters();
        }
        if !inner.is_over() {
            inner.proven = began;
        }
        Ok(inner.proven)
    }

    async fn leave(&self, succeeded: bool, deadline: Moment) -> Result<()> {
        if self.inner().left {
            return Ok(());
        }
        match guards(&self.queues(), deadline).await {
            Ok(guards) => self.go(Some(guards), succeeded),
            Err(fault) => self.go(None, false).and(if succeeded { Err(fault) } else { Ok(()) }),
        }
    }

    fn anchors(&self) -> Result<Vec<OwnedFd>> {
        let inner = self.inner();
        let mut anchors = Vec::new();
        for place in &inner.places {
            for hold in place.holds() {
                anchors.push(hold.anchor(&place.queue.directory)?);
            }
        }
        Ok(anchors)
    }
}
