//! The client side of a claim.

use std::future::pending;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;

use super::dialect::{Session, Wait};
use super::position::Standing;
use super::sessions::{Answer, Sessions};
use super::steps::{Steps, in_order};
use super::view::{Armed, View};
use crate::backend::Claim;
use crate::backend::claim_state::{Cause, POLL, Publisher, Source, patience};
use crate::lock::{ClaimId, ClaimState, LockName, Mode, Moment, Request, Result};
use crate::net::fault::FaultResult;
use crate::net::rank::NEXT;
use crate::net::request::Patience;

/// The number of renewals in one ttl.
pub(super) const RENEWALS_PER_TTL: u32 = 3;

/// The longest ttl of a waiter that may give up its connection between renewals: it learns of its hold up to a third of
/// the ttl late.
const PARKS: Duration = Duration::from_secs(30);

/// How a claim reads its position.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Look {
    /// By reading only.
    Read,
    /// By a step that also removes expired claims.
    Step,
    /// By a renewal.
    Renew,
}

#[derive(Debug)]
pub(super) struct SqlClaim {
    service: Arc<Sessions>,
    id: ClaimId,
    names: Vec<LockName>,
    /// The index of each name in the order in which queues are locked.
    order: Vec<usize>,
    mode: Mode,
    ttl: Duration,
    publisher: Publisher,
    view: Mutex<View>,
}

impl SqlClaim {
    /// Creates the claim of `request` from the database's answer `positions`; its ttl counts from `entered`.
    pub(super) fn new(
        service: &Arc<Sessions>,
        request: &Request,
        positions: Vec<Standing>,
        entered: Moment,
    ) -> Self {
        let sorted = in_order(&request.names);
        let place = |name: &LockName| {
            let stored = super::dialect::stored(name);
            sorted.iter().position(|other| *other == stored).unwrap_or(0)
        };
        let order: Vec<usize> = request.names.iter().map(place).collect();
        let mut view = View::new(request.mode, request.ttl);
        let publisher = Publisher::new(service.clock, entered);
        view.take(positions, &order, service.clock.now(), &publisher);
        service.claims.fetch_add(1, Ordering::Relaxed);
        Self {
            service: Arc::clone(service),
            id: request.id,
            names: request.names.clone(),
            order,
            mode: request.mode,
            ttl: request.ttl,
            publisher,
            view: Mutex::new(view),
        }
    }

    /// Returns whether it was waiting when the database last answered.
    pub(super) fn waits(&self) -> bool {
        self.publisher.waits()
    }

    fn view(&self) -> MutexGuard<'_, View> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn steps(&self) -> Steps<'_> {
        Steps::new(&*self.service.dialect, &self.names, self.id)
    }

    /// Returns the deadline of a read for which the caller gave none.
    fn soon(&self) -> Moment {
        self.service.clock.now() + patience(self.ttl)
    }

    /// Applies the database's answer.
    fn take(&self, positions: Vec<Standing>) {
        let now = self.service.clock.now();
        let mut view = self.view();
        if !self.publisher.is_over() {
            view.take(positions, &self.order, now, &self.publisher);
        }
    }

    /// Makes the session of `answer` the one that reports later changes.
    fn arm(&self, answer: &Answer, asked: bool) {
        let mut view = self.view();
        let session = &answer.session;
        let (now, renew_at) = (self.service.clock.now(), self.renew_at());
        let tells = asked && session.can_notify();
        // Claims that share a connection would wake each other.
        view.parked = false;
        view.sleeps = now < renew_at
            && self.service.claims.load(Ordering::Relaxed) == 1
            && view.ahead().is_some_and(|(ahead, _)| session.can_sleep(ahead));
        view.poll_at = match (tells, view.sleeps) {
            (true, _) => Moment::NEVER,
            // Later than the renewal, so it does not happen before it.
            (false, true) => renew_at + POLL,
            (false, false) => now + POLL,
        };
        // A session that could report changes and was not asked is asked with the next read.
        view.armed = (tells || !session.can_notify())
            .then(|| Armed { session: Arc::clone(session), notified: answer.notified });
    }

    /// Closes the session of `answer` until the next renewal, if the server has few connections left and the claim is
    /// not near the front. Returns whether it did.
    fn parks(&self, answer: &Answer) -> bool {
        let mut view = self.view();
        let set = answer.sets.iter().rev().nth(self.names.len());
        let left = set.and_then(|set| set.first()?.first()?.as_deref()?.parse::<u32>().ok());
        let (Some(left), Some(distance)) = (left, view.distance()) else { return false };
        let is_alone = self.service.claims.load(Ordering::Relaxed) == 1;
        let may = self.waits() && self.ttl <= PARKS && is_alone && answer.session.can_notify();
        if !may || distance <= NEXT.max(left) {
            return false;
        }
        (view.parked, view.armed, view.poll_at) = (true, None, Moment::NEVER);
        drop(view);
        self.service.close(&answer.session);
        true
    }

    /// Returns when its next renewal is due, if each is confirmed.
    fn renew_at(&self) -> Moment {
        self.publisher.proof() + self.ttl / RENEWALS_PER_TTL
    }

    /// Returns whether `session` was asked already to report changes.
    fn is_armed(&self, session: &Arc<dyn Session>) -> bool {
        self.view().armed.as_ref().is_some_and(|armed| Arc::ptr_eq(&armed.session, session))
    }

    /// Returns whether an open session was asked to report changes.
    fn is_told(&self) -> bool {
        self.view().armed.as_ref().is_some_and(|armed| armed.session.is_open())
    }

    /// Reads the position of the claim, and requests reports of later changes if `listen`.
    async fn find_out(&self, how: Look, listen: bool, deadline: Moment) -> FaultResult<()> {
        let asked = AtomicBool::new(false);
        let counts = listen && self.waits() && (how == Look::Renew || !self.is_told());
        let batch = |session: &Arc<dyn Session>| {
            let ask = listen && session.can_notify() && !self.is_armed(session);
            asked.store(ask, Ordering::Relaxed);
            let mut steps = self.steps();
            steps.counts = counts;
            match how {
                Look::Renew => steps.renew(self.mode, self.ttl, self.holds(), ask),
                Look::Read if !ask => steps.read(self.mode),
                Look::Read | Look::Step => steps.look(self.mode, ask),
            }
        };
        let mut answer = self.service.call(deadline, Patience::Once, &batch).await?;
        // A session knows only after its first answer whether it can report changes.
        if listen
            && answer.session.can_notify()
            && !asked.load(Ordering::Relaxed)
            && !self.is_armed(&answer.session)
        {
            answer = self.service.call(deadline, Patience::Once, &batch).await?;
        }
        let notified = asked.load(Ordering::Relaxed) || self.is_armed(&answer.session);
        let mut positions = Standing::all(&answer.sets, self.names.len())?;
        if how == Look::Read && !self.service.dialect.reads_are_durable() && self.is_given(&positions) {
            let look = |_: &Arc<dyn Session>| self.steps().look(self.mode, false);
            answer = self.service.call(deadline, Patience::Once, look).await?;
            positions = Standing::all(&answer.sets, self.names.len())?;
        }
        self.take(positions);
        if listen && !(counts && self.parks(&answer)) {
            self.arm(&answer, notified);
        }
        self.collect(deadline).await?;
        if self.publisher.has_ended() {
            self.withdraw_rest().await;
        }
        Ok(())
    }

    fn holds(&self) -> bool {
        self.publisher.held_at().is_some()
    }

    /// Returns whether `positions` contain a new grant.
    fn is_given(&self, positions: &[Standing]) -> bool {
        let view = self.view();
        let mut pairs = positions.iter().zip(&view.positions);
        pairs.any(|(new, known)| new.granted.is_some() && known.granted.is_none())
    }

    /// Reads the entries ahead if the claim has to wait, and requests reports of changes.
    pub(super) async fn find_its_place(&self, deadline: Moment) -> FaultResult<()> {
        if self.waits() { self.find_out(Look::Read, true, deadline).await } else { Ok(()) }
    }

    /// Fetches the tokens if the claim was found to hold.
    async fn collect(&self, deadline: Moment) -> FaultResult<()> {
        if !self.view().is_due() {
            return Ok(());
        }
        let batch = |_: &Arc<dyn Session>| self.steps().grant(self.mode);
        let answer = self.service.call(deadline, Patience::Once, batch).await?;
        self.take(Standing::all(&answer.sets, self.names.len())?);
        Ok(())
    }

    /// Withdraws the claim from the other queues after it is gone from one of them. After a hold its command has to end
    /// first. Claims that sleep on it are woken.
    async fn withdraw_rest(&self) {
        let depart = self.service.dialect.depart(self.id);
        if self.names.len() > 1 && self.publisher.held_at().is_none() {
            // If this fails, the entries end with their ttl.
            drop(self.send_leave(false, self.soon()).await);
        } else if !depart.is_empty() {
            // If this fails, those claims read when they renew.
            let batch = |_: &Arc<dyn Session>| depart.clone();
            drop(self.service.call(self.soon(), Patience::Once, batch).await);
        }
    }

    pub(super) async fn send_leave(&self, succeeded: bool, deadline: Moment) -> FaultResult<()> {
        let batch =
            |_: &Arc<dyn Session>| self.steps().leave(self.mode, succeeded, self.service.may_be_overtaken());
        self.service.call(deadline, Patience::Deadline, batch).await.map(drop)
    }

    /// Applies the grant in a notification. Returns whether there was one.
    fn take_given(&self) -> bool {
        let mut view = self.view();
        !self.publisher.is_over() && view.take_given(self.id, &self.order, &self.publisher)
    }
}

impl Drop for SqlClaim {
    fn drop(&mut self) {
        self.service.claims.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Source for SqlClaim {
    fn is_fresh(&self) -> bool {
        self.view().is_fresh(self.service.clock.now())
    }

    fn wakes(&self) -> (Option<impl Future<Output = ()> + Send>, Moment) {
        let view = self.view();
        let length = self.renew_at().min(view.look_at).since(self.service.clock.now());
        let ahead = view.ahead().filter(|_| view.sleeps);
        // With several queues, the claim further ahead may be in another queue.
        let alone = self.names.len() == 1;
        let wait = ahead.map(|(ahead, crowd)| Wait {
            own: self.id,
            ahead,
            crowd: if alone { crowd } else { 0 },
            length,
        });
        let armed = view.armed.clone();
        let notified = view.follows().then_some(async move {
            match armed {
                Some(armed) => armed.session.notified_after(armed.notified, wait.as_ref()).await,
                None => pending().await,
            }
        });
        (notified, view.look_at.min(view.poll_at))
    }

    async fn look(&self, cause: Cause) -> Result<()> {
        if self.take_given() {
            return Ok(());
        }
        let is_due = self.service.clock.now() >= self.view().look_at;
        // The end of a lease changes no row, so only a step removes it.
        let how = match cause {
            Cause::Notified => Look::Read,
            Cause::Due if !is_due => Look::Read,
            Cause::Due | Cause::Asked => Look::Step,
        };
        let found = self.find_out(how, true, self.soon()).await;
        if found.is_err() {
            self.view().armed = None;
        }
        found
    }
}

#[async_trait]
impl Claim for SqlClaim {
    fn ttl(&self) -> Option<Duration> {
        Some(self.ttl)
    }

    async fn changed(&self, seen: Option<&ClaimState>) -> Result<ClaimState> {
        self.publisher.follow(seen, self).await
    }

    async fn renew(&self, deadline: Moment) -> Result<Moment> {
        let begin = self.service.clock.now();
        if !self.publisher.has_ended() {
            let listens = self.view().follows();
            let renewed = self.find_out(Look::Renew, listens, deadline).await;
            renewed?;
            if !self.publisher.has_ended() {
                self.publisher.prove(begin);
                // The possible length of a sleep has changed.
                self.publisher.stir();
            }
        }
        Ok(self.publisher.proof())
    }

    async fn leave(&self, succeeded: bool, deadline: Moment) -> Result<()> {
        self.send_leave(succeeded, deadline).await?;
        self.publisher.leave();
        Ok(())
    }
}
