//! One step of one claim at one node.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use redis::Value;

use super::core::{Aim, Core, proposal};
use super::reply::{Reply, Row};
use super::script::LOOK;
use crate::backend::claim_state::POLL;
use crate::backend::fault::FaultResult;
use crate::backend::redis::connection::Connection;
use crate::backend::redis::dial::{text, value_of};
use crate::backend::redis::fault;
use crate::backend::redis::redlock::former::Armed;
use crate::backend::redis::script::Step;
use crate::backend::redis::service::Patience;
use crate::lock::Moment;

/// How a step went out.
#[derive(Clone, Copy, Default)]
struct Sent {
    /// Its number among those to this node.
    number: u64,
    /// How often the node had told of a change before.
    notified: u64,
    /// How many replies come before its own.
    before: usize,
    /// Whether the node was asked to tell of the next change.
    listens: bool,
    /// When.
    at: Option<Moment>,
}

/// What came back.
struct Back {
    sent: Sent,
    reply: Reply,
    /// The replies behind its own.
    armed: Vec<Value>,
    connection: Arc<Connection>,
}

impl Core {
    /// Reads of the own keys, after each of which the node tells once of their next change.
    fn arming(&self, rows: &[Row]) -> Vec<Step> {
        let mut steps = Vec::new();
        for (n, keys) in self.names.iter().enumerate() {
            let caching = || Step::command(["CLIENT", "CACHING", "YES"]);
            let fields = ["token", "gone", "asked", "top", "behind", "slot"].map(str::to_owned);
            let read = ["HMGET".to_owned(), keys.claim(self.id)].into_iter().chain(fields);
            steps.extend([caching(), Step::Command(read.collect())]);
            if rows.get(n).is_some_and(|row| row.watches_lock(self.mode)) {
                steps.extend([caching(), Step::command(["GET", &keys.lock])]);
            }
        }
        steps
    }

    /// Whether the replies to [`Core::arming`] say what `rows` say.
    fn agrees(&self, rows: &[Row], replies: &[Value]) -> bool {
        let mut replies = replies.iter().skip(1).step_by(2);
        let known = rows.iter().all(|row| {
            let Some(Value::Array(fields)) = replies.next() else { return false };
            let field = |n: usize| fields.get(n).and_then(text);
            let base = &row.base;
            let gone = base.gone.clone().filter(|why| !matches!(why.as_str(), "missing" | "lost"));
            let same =
                base.gone.is_some() || field(0) == base.granted.map(|granted| granted.token.to_string());
            let same =
                same && (gone.is_none() || field(1) == gone) && field(2).is_some() == base.asked.is_some();
            let same = same && field(3).is_some() == base.top;
            let same = same && (base.gone.is_some() || field(4).is_some() == row.behind);
            let slot = base.granted.and_then(|granted| granted.slot).map(|slot| slot.to_string());
            let same = same && (base.granted.is_none() || field(5) == slot);
            let lock = !row.watches_lock(self.mode)
                || replies.next().is_some_and(|value| {
                    value_of(value) == base.value || matches!(value, Value::ServerError(_))
                });
            same && lock
        });
        known && replies.next().is_none()
    }

    /// Has node `at` take `step` and takes over what it says. What went wrong is kept with the node claim, too.
    pub(super) async fn exchange(
        &self,
        at: usize,
        step: &Step,
        aim: Aim,
        deadline: Moment,
    ) -> FaultResult<Reply> {
        let begin = self.clock.now();
        let sent = self.send(at, step, aim, deadline).await;
        if aim == Aim::Change {
            let mut inner = self.inner();
            inner.node_claims[at].telling = inner.node_claims[at].telling.saturating_sub(1);
        }
        let outcome = match sent {
            Ok(back) => {
                self.take_over(at, aim, begin, &back);
                if aim != Aim::Look && self.nodes.claims.load(Ordering::Relaxed) > 1 {
                    back.connection.nudge();
                }
                Ok(back.reply)
            }
            Err(fault) => {
                let now = self.clock.now();
                self.inner().node_claims[at].failed(fault.clone(), self.ttl / 3, now);
                Err(fault)
            }
        };
        self.learnt();
        outcome
    }

    /// Sends `step`, and after it what has the node tell of the next change if somebody listens to it.
    async fn send(&self, at: usize, step: &Step, aim: Aim, deadline: Moment) -> FaultResult<Back> {
        let (rows, listens) = {
            let inner = self.inner();
            let node_claim = &inner.node_claims[at];
            (node_claim.rows.clone(), aim == Aim::Look || node_claim.armed.is_some())
        };
        let sending = Mutex::new(Sent::default());
        let steps = |connection: &Connection| {
            let mut steps = Vec::new();
            if listens && connection.can_notify.get().is_none() {
                steps.push(Step::command(["HELLO", "3"]));
                steps.push(Step::command(["CLIENT", "TRACKING", "ON", "OPTIN", "NOLOOP"]));
            }
            let before = steps.len();
            let step = step.clone();
            let service = &self.nodes.services[at];
            steps.push(match aim {
                Aim::Leave => step.with_last(service.astray.keep_out(self.id, connection)),
                // Nothing is to make an entry once the claim has begun to leave.
                _ if step.enters().is_some() && self.publisher.is_leaving() => {
                    self.step(&LOOK, proposal(), &[])
                }
                _ => step,
            });
            if listens && connection.can_notify.get() != Some(&false) {
                steps.extend(self.arming(&rows));
            }
            let mut inner = self.inner();
            inner.node_claims[at].sent += 1;
            let sent = Sent {
                number: inner.node_claims[at].sent,
                notified: connection.notified_count(),
                before,
                listens,
                at: Some(self.clock.now()),
            };
            *sending.lock().unwrap_or_else(PoisonError::into_inner) = sent;
            steps
        };
        let mut answer = self.nodes.services[at].call(None, deadline, Patience::Once, steps).await?;
        let sent = *sending.lock().unwrap_or_else(PoisonError::into_inner);
        if sent.before > 0 {
            // Another claim of this client may have asked meanwhile; the answer is the same.
            let _ = answer.connection.can_notify.set(answer.replies.get(1) == Some(&Value::Okay));
        }
        let armed = answer.replies.split_off((sent.before + 1).min(answer.replies.len()));
        let reply = answer.replies.get(sent.before).ok_or_else(|| fault::nonsense("no reply"))?;
        Ok(Back { sent, reply: Reply::parse(reply, &self.names)?, armed, connection: answer.connection })
    }

    /// Takes over what node `at` said to a step that was begun at `begin`.
    fn take_over(&self, at: usize, aim: Aim, begin: Moment, back: &Back) {
        let now = self.clock.now();
        let mut guard = self.inner();
        let inner = &mut *guard;
        let node_claim = &mut inner.node_claims[at];
        node_claim.mismatch = None;
        match &back.reply {
            Reply::Position(position) => {
                if aim == Aim::Life && position.found {
                    // That of the answer, if it was asked more than once.
                    node_claim.from = node_claim.from.max(back.sent.at.unwrap_or(begin));
                }
                node_claim.take(back.sent.number, position.clone(), self.nodes.max_ttl, now);
                let can_notify = back.connection.can_notify.get() != Some(&false);
                let agrees = !can_notify || self.agrees(&node_claim.rows, &back.armed);
                let armed =
                    || Armed { connection: Arc::clone(&back.connection), notified: back.sent.notified };
                node_claim.armed = (back.sent.listens && agrees).then(armed);
                if !can_notify {
                    node_claim.look_at = node_claim.look_at.min(now + POLL);
                }
            }
            Reply::Mismatch(other) => node_claim.mismatch = Some(other.clone()),
            Reply::Number(_) => {}
        }
        node_claim.left |= aim == Aim::Leave;
    }
}
