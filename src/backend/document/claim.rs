//! The client side of a claim.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Mutex as Gate;
use tokio::task::JoinHandle;

use super::arrive::{self, Entered, Own};
use super::change::{Edit, Known, LockItem, PAUSE, understand, wall_clock};
use super::client::Queues;
use super::pace::Pace;
use super::queue::Document;
use super::view::{Note, View, foreign_entry};
use super::{Item, evict};
use crate::backend::Claim;
use crate::backend::claim_state::{Cause, Publisher, Source, patience};
use crate::clock::Alarm;
use crate::lock::{ClaimState, Error, ErrorKind, LossReason, Moment, Request, Result};
use crate::net::fault::FaultResult;
use crate::net::request::Patience;

#[derive(Debug)]
struct Shared {
    queues: Queues,
    own: Own,
    view: Mutex<View>,
    publisher: Publisher,
    /// Held during an attempt to enter behind another program's item. Of two concurrent attempts, the slower one could
    /// revive a claim that the other one entered and that has left.
    entering: Gate<()>,
}

/// A claim. It is followed in the background while it exists; dropping it leaves its entry to its ttl.
#[derive(Debug)]
pub(super) struct DocumentClaim {
    shared: Arc<Shared>,
    following: JoinHandle<()>,
}

impl Drop for DocumentClaim {
    fn drop(&mut self) {
        self.following.abort();
    }
}

impl DocumentClaim {
    /// Enters the queue of one lock. Behind another program's item it retries with each read.
    pub(super) async fn enter(
        queues: &Queues,
        request: &Request,
        deadline: Moment,
    ) -> FaultResult<Arc<Self>> {
        let own = Own::new(queues, request)?;
        let begun = queues.clock.now();
        let entered = arrive::attempt(queues, &own, deadline).await?;
        let view = Mutex::new(View::new(own.request.id, own.ttl));
        let publisher = Publisher::new(queues.clock, begun);
        let entering = Gate::default();
        let shared = Arc::new(Shared { queues: queues.clone(), own, view, publisher, entering });
        shared.entered(entered);
        let following = tokio::spawn(follow(Arc::clone(&shared)));
        Ok(Arc::new(Self { shared, following }))
    }
}

impl Shared {
    fn view(&self) -> MutexGuard<'_, View> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Moment {
        self.queues.clock.now()
    }

    /// Returns the deadline of a read for which the caller gave none.
    fn soon(&self) -> Moment {
        self.now() + patience(self.own.ttl)
    }

    /// Applies the result of an attempt to enter.
    fn entered(&self, entered: Entered) {
        match entered {
            Entered::In(known, sent) => {
                self.publisher.prove(sent);
                if let Some(known) = known {
                    self.take_known(known);
                } else {
                    // It was in the queue when it was sent, and has been removed since: the next read finds out why.
                    self.view().born = Some(String::new());
                    self.publisher.distrust();
                }
            }
            Entered::Behind(item) => self.waits_behind(&item),
        }
    }

    /// Applies a queue. Returns whether the claim is in it.
    fn take_known(&self, known: Known) -> bool {
        let (mut view, now) = (self.view(), self.now());
        view.take(known, now, &self.publisher)
    }

    /// Returns when its lease expires.
    fn expires_at(&self) -> Moment {
        self.view().expires_at(self.publisher.proof())
    }

    fn waits_behind(&self, item: &Item) {
        let claim = evict::identity_of(&self.own.name, item);
        let called = self.queues.store.called(&self.own.name);
        let holder = Some(Box::new(foreign_entry(claim, called)));
        self.view().ahead = Some(1);
        self.publisher.publish(ClaimState::Waiting { ahead: None, holder });
    }

    /// Publishes the loss if the lease has expired, without asking the store: another client may have taken the entry
    /// for dead. Returns whether it has.
    fn expire(&self) -> bool {
        let expired = self.now() >= self.expires_at();
        if expired {
            self.publisher.publish(ClaimState::Lost(LossReason::Expired));
        }
        expired
    }

    /// Reads and publishes the state of the claim. Returns whether the state has changed.
    async fn find_out(&self, deadline: Moment) -> FaultResult<bool> {
        if self.publisher.is_over() || self.expire() {
            return Ok(true);
        }
        let before = self.publisher.state();
        if self.view().born.is_none() {
            let Ok(_entering) = self.entering.try_lock() else { return Ok(false) };
            let entered = arrive::attempt(&self.queues, &self.own, deadline).await?;
            self.entered(entered);
        } else {
            let found = self.queues.look(&self.own.name, deadline).await?;
            self.take(found, deadline).await?;
        }
        Ok(before != self.publisher.state())
    }

    /// Applies the item `found`, after removing dead claims from the queue.
    async fn take(&self, mut found: LockItem, deadline: Moment) -> FaultResult<()> {
        if let LockItem::Queue(known) = &found {
            let mut tidied = known.document.clone();
            if self.tidy(&mut tidied) && tidied.find(self.own.request.id).is_some() {
                let replaced = self.queues.put(&self.own.name, &known.version, &tidied, deadline).await?;
                found = understand(replaced.item);
            }
        }
        self.settle(found, deadline).await;
        Ok(())
    }

    /// Publishes the state of the claim in `found`.
    async fn settle(&self, found: LockItem, deadline: Moment) {
        let document = match found {
            LockItem::Queue(known) => {
                let document = known.document.clone();
                if self.take_known(known) {
                    return;
                }
                Some(document)
            }
            LockItem::Foreign(_) | LockItem::Nothing => None,
        };
        // The claim is certainly gone. The reason is known only if the note can be read.
        let note =
            self.queues.store.read_note(&self.own.name, self.own.request.id, deadline).await.ok().flatten();
        // A newer claim writes this note before it supersedes a waiter. A waiter that held by then was not superseded.
        let note = note.map(|note| Note::state(&note.bytes)).filter(|state| {
            self.publisher.held_at().is_none() || !matches!(state, ClaimState::Superseded { .. })
        });
        let state = if let Some(noted) = note {
            noted
        } else {
            let forgotten = self.queues.store.why_forgotten();
            let has_expired = self.now() >= self.expires_at();
            self.view().gone(document.as_ref(), forgotten, has_expired)
        };
        self.publisher.publish(state);
    }

    /// Removes dead claims from the document read just now, and grants holds to claims at the front. Returns whether
    /// the document has changed.
    fn tidy(&self, document: &mut Document) -> bool {
        let before = document.clone();
        let dead = {
            let (mut view, now) = (self.view(), self.now());
            view.watch.look(Some(document), now);
            view.dead(document, now)
        };
        for id in dead {
            document.remove(id, wall_clock());
        }
        document.settle(wall_clock());
        *document != before
    }

    async fn renew(&self, deadline: Moment) -> FaultResult<()> {
        let begun = self.now();
        if self.view().born.is_none() {
            // Without an entry there is no lease to expire.
            self.find_out(deadline).await?;
            if self.view().born.is_none() {
                self.publisher.prove(begun);
            }
            return Ok(());
        }
        if self.publisher.is_over() || self.expire() {
            return Ok(());
        }
        let id = self.own.request.id;
        let known = self.view().known.take();
        let renew = |document: &mut Document| {
            let renewed = document.renew(id);
            if renewed {
                self.tidy(document);
                Edit::Write(true)
            } else {
                Edit::Keep(false)
            }
        };
        let changed = self.queues.change(&self.own.name, known, Patience::Once, deadline, renew).await?;
        if changed.said == Some(true) && !self.publisher.is_over() {
            self.publisher.prove(begun);
        }
        self.settle(changed.after, deadline).await;
        Ok(())
    }

    /// Records the success of the run that has held since `held_at`, for the next run to find. Half of the time is
    /// reserved for the release, which other claims wait for. If the record fails, the next run is one too many.
    async fn note_success(&self, held_at: Moment, deadline: Moment) {
        let until = self.now() + deadline.since(self.now()) / 2;
        loop {
            let held_for = self.now().since(held_at);
            match self.queues.store.record_success(&self.own.name, held_for, until).await {
                // A full store has no room for waiters, either, so it is not retried.
                Err(fault) if fault.kind == ErrorKind::Unavailable && self.now() + PAUSE < until => {}
                Ok(()) | Err(_) => return,
            }
            self.queues.clock.sleep_until(self.now() + PAUSE).await;
        }
    }

    async fn leave(&self, succeeded: bool, deadline: Moment) -> FaultResult<()> {
        let id = self.own.request.id;
        if self.publisher.is_leaving() {
            return Ok(());
        }
        let known = self.view().known.take();
        if succeeded && let Some(held_at) = self.publisher.held_at() {
            self.note_success(held_at, deadline).await;
        }
        let remove = |document: &mut Document| {
            document.remove(id, wall_clock());
            // Written even if the claim is absent: its late requests are then refused, because the queue has changed.
            Edit::Write(())
        };
        self.queues.change(&self.own.name, known, Patience::Deadline, deadline, remove).await?;
        self.publisher.leave();
        Ok(())
    }
}

/// Reads the queue repeatedly until the claim is over.
async fn follow(shared: Arc<Shared>) {
    let (mut pace, mut alarm) = (Pace::new(shared.own.request.id), Alarm::default());
    let (id, mut refused, mut due) = (shared.own.request.id, false, None);
    while !shared.publisher.is_over() {
        let next = due.take().unwrap_or_else(|| {
            let view = shared.view();
            let now = shared.now();
            let look = now + pace.next(view.ahead);
            // Not at once, in case the removal of a dead claim failed.
            let death = view.watch.next_death(Some(id)).max(now + Duration::from_millis(50));
            look.min(death).min(view.expires_at(shared.publisher.proof()))
        });
        // Waiters read more often, and would take the server's room for the connection of a holder that does not
        // reconnect at once.
        let hastens = shared.publisher.holds() && !refused;
        let is_due = tokio::select! {
            () = alarm.sleep_until(shared.queues.clock, next) => true,
            () = shared.queues.store.cut(), if hastens => false,
        };
        let found = shared.find_out(shared.soon()).await;
        refused = found.as_ref().is_err_and(|fault| !fault.is_transient());
        match found {
            Ok(true) => pace.changed(),
            Ok(false) => {}
            // The store may be back before the next regular read.
            Err(_) if !is_due && !refused => {
                due = Some(next);
                shared.queues.clock.sleep_until(shared.now() + PAUSE).await;
            }
            Err(fault) => shared.publisher.cannot_follow(fault),
        }
    }
}

impl Source for Shared {
    fn is_fresh(&self) -> bool {
        false
    }

    fn wakes(&self) -> (Option<impl Future<Output = ()> + Send>, Moment) {
        (Some(self.publisher.troubled()), Moment::NEVER)
    }

    /// Reads the state only for a caller without `seen`. Otherwise the task in the background reads, and this returns
    /// its failure.
    async fn look(&self, cause: Cause) -> Result<()> {
        let looked = match cause {
            Cause::Asked => self.find_out(self.soon()).await.map(drop),
            Cause::Notified | Cause::Due => self.publisher.trouble(),
        };
        // A claim that has waited behind another program's item and now finds a queue of another kind.
        let refused = |error: Error| Error { is_final: error.kind == ErrorKind::Mismatch, ..error };
        looked.map_err(refused)
    }
}

#[async_trait]
impl Claim for DocumentClaim {
    fn ttl(&self) -> Option<Duration> {
        Some(self.shared.own.ttl)
    }

    async fn changed(&self, seen: Option<&ClaimState>) -> Result<ClaimState> {
        self.shared.publisher.follow(seen, &*self.shared).await
    }

    async fn renew(&self, deadline: Moment) -> Result<Moment> {
        self.shared.renew(deadline).await?;
        Ok(self.shared.publisher.proof())
    }

    async fn leave(&self, succeeded: bool, deadline: Moment) -> Result<()> {
        if self.shared.view().born.is_none() {
            // An attempt to enter in flight is refused once the queue has changed.
            self.following.abort();
        }
        self.shared.leave(succeeded, deadline).await
    }
}
