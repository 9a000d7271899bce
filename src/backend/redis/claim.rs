//! One client's end of a claim.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use redis::Value;

use super::connection::Connection;
use super::deadlock;
use super::dial::{text, value_of};
use super::fault::{self, NAME};
use super::keys::LockKeys;
use super::row::{Row, integer};
use super::script::{FREE, HOLD, LEAVE, LOOK, RENEW, Script, Step, millis};
use super::service::{Patience, Service};
use super::view::{Armed, View};
use super::wire::{on_queues, one};
use crate::backend::Claim;
use crate::backend::claim_state::{Cause, POLL, Publisher, Source, patience};
use crate::backend::fault::{During, Fault, FaultResult, Retry};
use crate::lock::{ClaimId, ClaimState, LockName, Mode, Moment, Request, Result};

/// How often one looks in a row when the state changes while it is read.
const MOST_LOOKS: u32 = 10;

#[derive(Debug)]
pub(super) struct RedisClaim {
    pub(super) service: Arc<Service>,
    pub(super) id: ClaimId,
    pub(super) names: Vec<LockKeys>,
    ttl: Duration,
    /// Where nested claims are listed, if it is one.
    nested: Option<String>,
    publisher: Publisher,
    view: Mutex<View>,
}

impl RedisClaim {
    /// The claim of `request`, of which the service has said `rows`; its ttl counts from `entered`.
    pub(super) fn new(
        service: &Arc<Service>,
        names: Vec<LockKeys>,
        nested: Option<String>,
        request: &Request,
        rows: Vec<Row>,
        entered: Moment,
    ) -> Self {
        let mut view = View::new(request.mode, request.ttl);
        let publisher = Publisher::new(NAME, request.names.first().cloned(), service.clock, entered);
        view.take(rows, service.clock.now(), &publisher);
        Self {
            service: Arc::clone(service),
            id: request.id,
            names,
            ttl: request.ttl,
            nested,
            publisher,
            view: Mutex::new(view),
        }
    }

    /// Whether it stood in the queue when the service last answered.
    pub(super) fn waits(&self) -> bool {
        self.publisher.waits()
    }

    fn view(&self) -> MutexGuard<'_, View> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn slot(&self) -> u16 {
        self.names[0].slot
    }

    fn lock(&self) -> Option<&LockName> {
        self.names.first().map(|keys| &keys.name)
    }

    fn step(&self, script: &'static Script, more: &[String]) -> Step {
        on_queues(script, &self.names, self.id, more)
    }

    /// Takes over what the service said.
    fn take(&self, rows: Vec<Row>) {
        let now = self.service.clock.now();
        let mut view = self.view();
        if !self.publisher.is_over() {
            view.take(rows, now, &self.publisher);
        }
    }

    /// Reads of the own keys, after each of which the server tells once of their next change.
    fn arming(&self) -> Vec<Step> {
        let view = self.view();
        let mut steps = Vec::new();
        for (keys, row) in self.names.iter().zip(&view.rows) {
            let caching = || Step::command(["CLIENT", "CACHING", "YES"]);
            steps.extend([
                caching(),
                Step::command(["HMGET", &keys.claim(self.id), "token", "gone", "asked", "top"]),
            ]);
            if row.watches_lock(view.mode) {
                steps.extend([caching(), Step::command(["GET", &keys.lock])]);
            }
        }
        steps
    }

    /// Whether the replies to [`RedisClaim::arming`] say what is known.
    fn agrees(&self, replies: &[Value]) -> bool {
        let view = self.view();
        let mut replies = replies.iter().skip(1).step_by(2);
        view.rows.iter().all(|row| {
            let Some(Value::Array(fields)) = replies.next() else { return false };
            let field = |n: usize| fields.get(n).and_then(text);
            let token = row.granted.map(|granted| granted.token.to_string());
            // A hold whose details ran out is still one, and its own key says so.
            let known =
                field(0) == token || (field(0).is_none() && view.mode == Mode::Exclusive && token.is_some());
            let same = known && field(1) == row.gone && field(2).is_some() == row.asked.is_some();
            let top = field(3).is_some() == row.top;
            let lock = !row.watches_lock(view.mode)
                || replies.next().is_some_and(|value| {
                    value_of(value) == row.value || matches!(value, Value::ServerError(_))
                });
            same && top && lock
        })
    }

    /// Reads how the claim stands and has the server tell of the next change.
    async fn look_at_service(&self) -> FaultResult<()> {
        let deadline = self.service.clock.now() + patience(self.ttl);
        for _ in 0..MOST_LOOKS {
            let arming = self.arming();
            let notified = Mutex::new((0, 0));
            let steps = |connection: &Connection| {
                let asks = connection.can_notify.get().is_none();
                *notified.lock().unwrap_or_else(PoisonError::into_inner) =
                    (connection.notified_count(), if asks { 2 } else { 0 });
                let mut steps = Vec::new();
                if asks {
                    steps.push(Step::command(["HELLO", "3"]));
                    steps.push(Step::command(["CLIENT", "TRACKING", "ON", "OPTIN", "NOLOOP"]));
                }
                steps.push(self.step(&LOOK, &[]));
                if connection.can_notify.get() != Some(&false) {
                    steps.extend(arming.iter().cloned());
                }
                steps
            };
            let answer = self.service.call(Some(self.slot()), deadline, Patience::Once, steps).await?;
            let (notified, asked) = *notified.lock().unwrap_or_else(PoisonError::into_inner);
            if asked > 0 {
                // Another claim of this client may have asked meanwhile; the answer is the same.
                let _ = answer.connection.can_notify.set(answer.replies.get(1) == Some(&Value::Okay));
            }
            let rows = answer.replies.get(asked).ok_or_else(|| fault::nonsense("no reply"))?;
            self.take(Row::all(rows, &self.names)?);
            if self.publisher.has_ended() {
                self.withdraw_rest().await;
                return Ok(());
            }
            if answer.detour || answer.connection.can_notify.get() == Some(&false) {
                let soon = self.service.clock.now() + POLL;
                let mut view = self.view();
                view.look_at = view.look_at.min(soon);
                view.armed = Some(Armed { connection: answer.connection, notified });
                return Ok(());
            }
            // What is to be watched may have become another while it was read.
            if self.arming().len() == arming.len() && self.agrees(&answer.replies[asked + 1..]) {
                self.view().armed = Some(Armed { connection: answer.connection, notified });
                return Ok(());
            }
        }
        Err(Fault::unavailable("the queue changes faster than it can be read"))
    }

    /// A claim that is gone from one of its queues leaves the others; after a hold its command has to end first.
    async fn withdraw_rest(&self) {
        if self.names.len() > 1 && self.publisher.held_at().is_none() {
            let deadline = self.service.clock.now() + patience(self.ttl);
            // If this fails, the entries end with their ttl.
            drop(self.send_leave(false, deadline).await);
        }
    }

    pub(super) async fn send_leave(&self, succeeded: bool, deadline: Moment) -> FaultResult<()> {
        let word = if succeeded { "1" } else { "0" }.to_owned();
        let step = |connection: &Connection| {
            let keep_out = self.service.astray.keep_out(self.id, connection);
            vec![self.step(&LEAVE, &[word.clone(), keep_out])]
        };
        let alone = self.names.len() == 1 && self.view().mode == Mode::Exclusive && self.view().holds();
        let now = self.service.clock.now();
        let half = if alone { now + deadline.since(now) / 2 } else { deadline };
        match self.service.call(Some(self.slot()), half, Patience::Deadline, step).await {
            // The rest of the claim is found stale by the next who looks, or ends with its ttl.
            Err(fault) if alone && fault.retry == Retry::Again => {
                let keys = vec![self.names[0].lock.clone()];
                let free = Step::Script { script: &FREE, keys, arguments: vec![self.id.to_string()] };
                one(&self.service, self.slot(), deadline, Patience::Deadline, free).await.map(drop)
            }
            answer => answer.map(drop),
        }
    }

    /// Renews, and says whether the claim lives.
    async fn extend(&self, deadline: Moment) -> FaultResult<bool> {
        let (exclusive_hold, armed) = {
            let view = self.view();
            (view.holds() && view.mode == Mode::Exclusive, view.armed.clone())
        };
        let renewal =
            if exclusive_hold { self.hold_step(true) } else { self.step(&RENEW, &[millis(self.ttl)]) };
        // A change by this very connection is told to nobody and ends the telling, so it is asked for again.
        let arming = if armed.is_some() { self.arming() } else { Vec::new() };
        let steps = |connection: &Connection| {
            let same =
                armed.as_ref().is_some_and(|armed| std::ptr::eq(&raw const *armed.connection, connection));
            let arming =
                if same && connection.can_notify.get() == Some(&true) { arming.as_slice() } else { &[] };
            std::iter::once(renewal.clone()).chain(arming.iter().cloned()).collect()
        };
        let patience = if exclusive_hold { Patience::Answer } else { Patience::Once };
        let answer = match self.service.call(Some(self.slot()), deadline, patience, steps).await {
            // The keys are moving to another node one by one; that of the lock alone can be reached wherever it is.
            Err(fault) if exclusive_hold && self.names.len() == 1 && fault.retry == Retry::Again => {
                let alone = self.hold_step(false);
                let steps = |_: &Connection| vec![alone.clone()];
                self.service.call(Some(self.slot()), deadline, Patience::Deadline, steps).await?
            }
            answer => answer?,
        };
        let (first, rest) = answer.replies.split_first().ok_or_else(|| fault::nonsense("no reply"))?;
        let alive = match first {
            Value::Int(alive) => *alive == 1,
            Value::Array(parts) if parts.len() == 2 => {
                self.take(Row::all(&parts[1], &self.names)?);
                integer(&parts[0]) == Some(1)
            }
            _ => return Err(fault::nonsense("no answer to a renewal")),
        };
        let agrees = !rest.is_empty() && self.agrees(rest);
        let mut view = self.view();
        // Whoever answers now is whom changes are to be heard from: the other may have been silent for long.
        let elsewhere =
            view.armed.as_ref().is_some_and(|armed| !Arc::ptr_eq(&armed.connection, &answer.connection));
        if elsewhere || (!rest.is_empty() && !agrees) {
            view.armed = None;
            // Whoever listens looks anew.
            self.publisher.stir();
        } else if alive && agrees && exclusive_hold && !answer.detour {
            view.look_at = self.service.clock.now() + self.ttl;
        }
        Ok(alive)
    }

    fn hold_step(&self, with_details: bool) -> Step {
        let keys = self.names.iter().flat_map(|name| {
            let details = if with_details { vec![name.claim(self.id), name.queue()] } else { Vec::new() };
            std::iter::once(name.lock.clone()).chain(details)
        });
        let step = if with_details { "3" } else { "1" };
        let arguments = vec![self.id.to_string(), millis(self.ttl), step.to_owned()];
        Step::Script { script: &HOLD, keys: keys.collect(), arguments }
    }
}

impl Source for RedisClaim {
    fn is_fresh(&self) -> bool {
        self.view().is_fresh(self.service.clock.now())
    }

    fn wakes(&self) -> (Option<impl Future<Output = ()> + Send>, Moment) {
        let view = self.view();
        let notified = view
            .armed
            .clone()
            .map(|armed| async move { armed.connection.notified_after(armed.notified).await });
        (notified, view.look_at)
    }

    async fn look(&self, _: Cause) -> Result<()> {
        self.look_at_service().await.during(NAME, "follow the queue", self.lock())
    }
}

#[async_trait]
impl Claim for RedisClaim {
    fn ttl(&self) -> Option<Duration> {
        Some(self.ttl)
    }

    async fn changed(&self, seen: Option<&ClaimState>) -> Result<ClaimState> {
        self.publisher.follow(seen, self).await
    }

    async fn renew(&self, deadline: Moment) -> Result<Moment> {
        let begin = self.service.clock.now();
        if !self.publisher.has_ended() {
            let alive = self.extend(deadline).await.during(NAME, "renew the claim", self.lock())?;
            if alive {
                self.publisher.prove(begin);
            } else if !self.publisher.has_ended() {
                // Why, is asked by whoever listens, should it not be learnt here.
                self.view().armed = None;
                drop(self.look_at_service().await);
                self.publisher.stir();
            }
        }
        Ok(self.publisher.proof())
    }

    async fn leave(&self, succeeded: bool, deadline: Moment) -> Result<()> {
        self.send_leave(succeeded, deadline).await.during(NAME, "leave the queue", self.lock())?;
        self.publisher.leave();
        if let Some(index) = &self.nested {
            // What is left of it is found stale by the next search.
            drop(deadlock::forget(&self.service, index, self.id, deadline).await);
        }
        Ok(())
    }

    fn anchors(&self) -> Result<Vec<OwnedFd>> {
        Ok(Vec::new())
    }
}
