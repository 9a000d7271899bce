//! The client side of a claim.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use redis::Value;

use super::client::{Client, OPTIN, To};
use super::connection::Connection;
use super::fault;
use super::keys::LockKeys;
use super::row::{Row, WATCHED, integer};
use super::script::{Call, HOLD, millis, on_queues};
use crate::backend::Claim;
use crate::backend::claim_state::{Cause, FLUSHED, POLL, Publisher, Source, due, patience};
use crate::lock::{ClaimId, ClaimState, Mode, Moment, Request, Result};
use crate::net::fault::{FaultResult, Retry};
use crate::net::request::Patience;

#[derive(Debug)]
pub(super) struct RedisClaim {
    pub(super) service: Arc<Client>,
    pub(super) id: ClaimId,
    pub(super) names: Vec<LockKeys>,
    mode: Mode,
    ttl: Duration,
    publisher: Publisher,
    view: Mutex<View>,
}

/// A client's knowledge of its claim.
#[derive(Debug)]
struct View {
    rows: Vec<Row>,
    /// When time alone may have changed the state.
    look_at: Moment,
    /// Whether the server does not report changes.
    is_deaf: bool,
    /// The connection that reports changes, and the number of its notifications when the state was read.
    told: Option<(Arc<Connection>, u64)>,
}

impl View {
    /// Returns whether every name is granted.
    fn holds(&self) -> bool {
        !self.rows.is_empty() && self.rows.iter().all(|row| row.granted.is_some() && row.gone.is_none())
    }
}

impl RedisClaim {
    /// Creates the claim of `request` from the service's answer `rows`; its ttl counts from `entered`.
    pub(super) fn new(
        service: &Arc<Client>,
        names: Vec<LockKeys>,
        request: &Request,
        rows: Vec<Row>,
        entered: Moment,
    ) -> Self {
        let claim = Self {
            service: Arc::clone(service),
            id: request.id,
            names,
            mode: request.mode,
            ttl: request.ttl,
            publisher: Publisher::new(service.clock, entered),
            view: Mutex::new(View { rows: Vec::new(), look_at: Moment::NEVER, is_deaf: false, told: None }),
        };
        claim.take(rows);
        claim
    }

    fn view(&self) -> MutexGuard<'_, View> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn slot(&self) -> u16 {
        self.names[0].slot
    }

    fn step(&self, command: &str, more: &[String]) -> Call {
        on_queues(command, &self.names, self.id, more)
    }

    /// Applies the service's answer, and publishes the state.
    fn take(&self, rows: Vec<Row>) {
        let now = self.service.clock.now();
        let mut view = self.view();
        if !self.publisher.is_over() {
            let at = due(now, rows.iter().filter_map(|row| row.horizon).min());
            view.look_at = if view.is_deaf { at.min(now + POLL) } else { at };
            self.publisher.publish(self.state(&rows));
            view.rows = rows;
        }
    }

    fn state(&self, rows: &[Row]) -> ClaimState {
        if let Some(row) = rows.iter().find(|row| row.gone.is_some()) {
            return self.publisher.ended(row.gone.as_deref(), row.by.as_ref(), self.ttl);
        }
        if let Some(by) = rows.iter().find_map(|row| row.asked.clone()) {
            return ClaimState::AskedToLeave { by };
        }
        if let Some(names) = rows.iter().map(|row| row.granted).collect() {
            return self.publisher.held(names);
        }
        let mut waits = rows.iter().filter(|row| row.granted.is_none());
        let ahead = waits.clone().map(|row| row.ahead).max();
        let holder = waits.next().and_then(|row| row.lead.clone());
        ClaimState::Waiting { ahead, holder: holder.map(Box::new) }
    }

    /// Returns reads of the claim's own keys, after each of which the server reports their next change once.
    fn arming(&self) -> Vec<Call> {
        let mut steps = Vec::new();
        for (keys, row) in self.names.iter().zip(&self.view().rows) {
            let caching = || Call::command(["CLIENT", "CACHING", "YES"]);
            let fields = WATCHED.map(str::to_owned);
            let own = ["HMGET".to_owned(), keys.claim(self.id)].into_iter().chain(fields);
            steps.extend([caching(), Call::Command(own.collect())]);
            if row.watches_lock(self.mode) {
                steps.extend([caching(), Call::command(["GET", &keys.lock])]);
            }
        }
        steps
    }

    /// Returns whether the replies to [`RedisClaim::arming`] agree with the known state. A key of another type is
    /// taken.
    fn agrees(&self, replies: &[Value]) -> bool {
        let mut replies = replies.iter().skip(1).step_by(2);
        self.view().rows.iter().all(|row| {
            let own = replies.next() == Some(&row.watched);
            let same = |value: &Value| *value == row.value || matches!(value, Value::ServerError(_));
            own && (!row.watches_lock(self.mode) || replies.next().is_some_and(same))
        })
    }

    /// Reads the state of the claim, and makes the server report the next change.
    async fn look_at_service(&self) -> FaultResult<()> {
        let deadline = self.service.clock.now() + patience(self.ttl);
        let arming = self.arming();
        let steps = |connection: &Connection| {
            let mut steps = self.service.listening(connection, OPTIN);
            steps.push(self.step("look", &[]));
            if connection.can_notify.get() != Some(&false) {
                steps.extend(arming.iter().cloned());
            }
            steps
        };
        let answer = self.service.call(Some(self.slot()), deadline, Patience::Once, steps).await?;
        let asked = if answer.replies.len() > arming.len() + 1 { 2 } else { 0 };
        if asked > 0 {
            answer.connection.answered(answer.replies.first(), answer.replies.get(1));
        }
        let rows = answer.replies.get(asked).ok_or_else(|| fault::nonsense("no reply"))?;
        let mut rows = Row::all(rows, &self.names)?;
        for (row, known) in rows.iter_mut().zip(&self.view().rows) {
            let token = known.granted.map(|granted| granted.token.get());
            if row.gone.as_deref() == Some("lost") && token.is_some() && row.first_token > token {
                row.gone = Some(FLUSHED.to_owned());
            }
        }
        let armed = &answer.replies[asked + 1..];
        let tells = answer.connection.tells() && !answer.detour && !is_refused(armed);
        self.view().is_deaf = !tells;
        self.take(rows);
        if self.publisher.has_ended() {
            self.withdraw_rest().await;
            return Ok(());
        }
        // The state, or the set of keys to watch, may have changed during the read. It is then read again.
        let agrees = self.arming().len() == arming.len() && self.agrees(armed);
        self.view().told = (!tells || agrees).then_some((answer.connection, answer.told));
        Ok(())
    }

    /// Withdraws the claim from the other queues after it is gone from one of them. After a hold its command has to end
    /// first.
    async fn withdraw_rest(&self) {
        if self.names.len() > 1 && self.publisher.held_at().is_none() {
            let deadline = self.service.clock.now() + patience(self.ttl);
            // If this fails, the entries end with their ttl.
            drop(self.send_leave(false, deadline).await);
        }
    }

    pub(super) async fn send_leave(&self, succeeded: bool, deadline: Moment) -> FaultResult<()> {
        let leave = self.step("leave", &[if succeeded { "1" } else { "0" }.to_owned()]);
        let alone = self.names.len() == 1 && self.mode == Mode::Exclusive && self.view().holds();
        let now = self.service.clock.now();
        let half = if alone { now + deadline.since(now) / 2 } else { deadline };
        match self.service.one(To::Slot(Some(self.slot())), half, Patience::Deadline, leave).await {
            // The keys are moving to another node. The next reader removes the stale rest, or it ends with its ttl.
            Err(fault) if alone && fault.retry == Retry::Again => {
                let let_go = self.hold_step("0".to_owned());
                self.service
                    .one(To::Slot(Some(self.slot())), deadline, Patience::Deadline, let_go)
                    .await
                    .map(drop)
            }
            answer => answer.map(drop),
        }
    }

    /// Renews the claim. Returns whether it lives.
    async fn extend(&self, deadline: Moment) -> FaultResult<bool> {
        let (exclusive_hold, told) = {
            let view = self.view();
            (view.holds() && self.mode == Mode::Exclusive, view.told.clone())
        };
        let ttl = millis(self.ttl);
        let renewal = if exclusive_hold { self.hold_step(ttl) } else { self.step("renew", &[ttl]) };
        // A change by this very connection is not reported and ends the tracking, so tracking is requested again.
        let arming = if told.is_some() { self.arming() } else { Vec::new() };
        let steps = |connection: &Connection| {
            let arming = if connection.tells() { arming.as_slice() } else { &[] };
            std::iter::once(renewal.clone()).chain(arming.iter().cloned()).collect()
        };
        let answer = self.service.call(Some(self.slot()), deadline, Patience::Once, steps).await?;
        let (first, armed) = answer.replies.split_first().ok_or_else(|| fault::nonsense("no reply"))?;
        let alive = match first {
            Value::Int(alive) => *alive == 1,
            Value::Array(parts) if parts.len() == 2 => {
                self.take(Row::all(&parts[1], &self.names)?);
                integer(&parts[0]) == Some(1)
            }
            _ => return Err(fault::nonsense("no answer to a renewal")),
        };
        let agrees = !armed.is_empty() && self.agrees(armed);
        let mut view = self.view();
        // Notifications must come from the connection that answers now: the former one may have been silent for long.
        let elsewhere = told.is_some_and(|(connection, _)| !Arc::ptr_eq(&connection, &answer.connection));
        if elsewhere || (!armed.is_empty() && !agrees) {
            view.told = None;
            // Makes waiting callers read again.
            self.publisher.stir();
        } else if alive && agrees && exclusive_hold && !answer.detour {
            view.look_at = self.service.clock.now() + self.ttl;
        }
        Ok(alive)
    }

    fn hold_step(&self, ttl: String) -> Call {
        let details = self.names.iter().flat_map(|name| [name.claim(self.id), name.queue()]);
        let keys = self.names.iter().map(|name| name.lock.clone()).collect();
        let arguments = [self.id.to_string(), ttl].into_iter().chain(details).collect();
        Call::Script { script: &HOLD, keys, arguments }
    }
}

/// Returns whether the server refused a step of [`RedisClaim::arming`], such as CLIENT CACHING. It then reports no
/// changes.
fn is_refused(armed: &[Value]) -> bool {
    armed.iter().any(|reply| matches!(reply, Value::ServerError(error) if error.code() != "WRONGTYPE"))
}

impl Source for RedisClaim {
    fn is_fresh(&self) -> bool {
        let view = self.view();
        view.told.as_ref().is_some_and(|(connection, told)| {
            connection.is_open()
                && connection.notified_count() == *told
                && self.service.clock.now() < view.look_at
        })
    }

    fn wakes(&self) -> (Option<impl Future<Output = ()> + Send>, Moment) {
        let view = self.view();
        let told = view.told.clone();
        let told = told.map(|(connection, told)| async move { connection.notified_after(told).await });
        (told, view.look_at)
    }

    async fn look(&self, _: Cause) -> Result<()> {
        self.look_at_service().await
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
            let alive = self.extend(deadline).await?;
            if alive {
                self.publisher.prove(begin);
            } else if !self.publisher.has_ended() {
                // If this read fails, a waiting caller reads again and learns the reason.
                self.view().told = None;
                drop(self.look_at_service().await);
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
