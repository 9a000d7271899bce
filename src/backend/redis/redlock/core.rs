//! What the parts of one claim share, and how it talks to the nodes.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use redis::Value;
use tokio::sync::{Mutex as Gate, Notify, watch};
use tokio::task::JoinSet;

use super::leg::{Leg, Phase};
use super::reply::{Reply, Row};
use super::tally;
use crate::backend::redis::connection::Connection;
use crate::backend::redis::dial::text;
use crate::backend::redis::fault::{Fault, Outcome};
use crate::backend::redis::keys::LockKeys;
use crate::backend::redis::script::{Script, Step};
use crate::backend::redis::service::{Patience, Service};
use crate::backend::redis::view::{Armed, is_final};
use crate::lock::{ClaimId, ClaimState, ErrorKind, Grant, LossReason, Mode, Moment};

/// Between two looks where a node does not tell of changes.
pub(super) const UNTOLD: Duration = Duration::from_millis(500);

/// The nodes of one client.
#[derive(Debug)]
pub(super) struct Nodes {
    pub(super) services: Vec<Arc<Service>>,
    /// For how long a restarted node abstains; no ttl is longer.
    pub(super) max_ttl: Duration,
    /// How many claims this client has: a node tells a connection nothing of what it did itself.
    pub(super) claims: AtomicUsize,
}

impl Nodes {
    /// How many are a majority.
    pub(super) fn majority(&self) -> usize {
        tally::majority(self.services.len())
    }

    /// What few answers mean.
    pub(super) fn too_few(&self, answered: usize, faults: &[Fault]) -> Fault {
        let all = self.services.len();
        let mut reasons: Vec<&str> = faults.iter().map(|fault| fault.reason.as_str()).collect();
        reasons.dedup();
        let reason = format!("{answered} of {all} nodes can be used ({})", reasons.join("; "));
        let kind = |kind| faults.iter().any(|fault| fault.kind == kind);
        // What no waiting helps against is said as what it is.
        let kind =
            [ErrorKind::Denied, ErrorKind::Invalid, ErrorKind::Unsupported].into_iter().find(|k| kind(*k));
        Fault::new(kind.unwrap_or(ErrorKind::Unavailable), reason)
    }
}

/// What a step is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Aim {
    /// It gives the entry another ttl.
    Life,
    /// It raises the floor of the tokens to those that are to be confirmed.
    Floor,
    /// It takes the claim out.
    Leave,
    /// It has the node tell of the next change.
    Look,
    Other,
}

/// One claim at all nodes.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) nodes: Arc<Nodes>,
    pub(super) clock: crate::clock::Clock,
    pub(super) id: ClaimId,
    pub(super) names: Vec<LockKeys>,
    pub(super) mode: Mode,
    pub(super) ttl: Duration,
    /// What others are told of it.
    pub(super) record: String,
    pub(super) inner: Mutex<Inner>,
    pub(super) news: watch::Sender<ClaimState>,
    /// Something was learnt.
    pub(super) stir: Notify,
    /// The same, for those who only look on.
    pub(super) heard: Notify,
    /// Held while something is done about what was learnt.
    pub(super) acting: Gate<()>,
}

/// What changes.
#[derive(Debug)]
pub(super) struct Inner {
    pub(super) legs: Vec<Leg>,
    /// The claim's place among those of all nodes, once it is known.
    pub(super) score: Option<u64>,
    pub(super) grant: Option<Grant>,
    pub(super) held_at: Moment,
    /// The tokens that are being written to all nodes.
    pub(super) confirming: Vec<u64>,
    /// From when the last confirmed ttl counts.
    pub(super) last_good: Moment,
    pub(super) leaving: bool,
    pub(super) left: bool,
}

/// The wall clock, in microseconds: a proposal for tokens that are the same at all nodes. Nothing depends on it.
pub(super) fn proposal() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(0)
}

impl Core {
    pub(super) fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long a node may hold up the others.
    pub(super) fn straggle(&self) -> Duration {
        (self.ttl / 20).clamp(Duration::from_millis(50), Duration::from_millis(250))
    }

    /// By when one question to a node must be answered.
    pub(super) fn patience(&self) -> Duration {
        (self.ttl / 6).min(Duration::from_secs(5))
    }

    /// `script` about this claim in all its lines. What it may give to others has `hint` for a token.
    pub(super) fn step(&self, script: &'static Script, hint: u64, more: &[String]) -> Step {
        on_lines(script, &self.names, self.id, hint, more)
    }

    /// A token for whoever comes next.
    pub(super) fn next_token(&self) -> u64 {
        let own = |grant: &Grant| grant.names.iter().map(|granted| granted.token.get() + 1).max();
        proposal().max(self.inner().grant.as_ref().and_then(own).unwrap_or(0))
    }

    /// Reads of the own keys, after each of which the node tells once of their next change.
    fn arming(&self, rows: &[Row]) -> Vec<Step> {
        let mut steps = Vec::new();
        for (n, keys) in self.names.iter().enumerate() {
            let caching = || Step::command(["CLIENT", "CACHING", "YES"]);
            let fields = ["token", "gone", "asked", "top", "behind"].map(str::to_owned);
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
            let lock = !row.watches_lock(self.mode)
                || replies
                    .next()
                    .is_some_and(|value| text(value) == base.value || matches!(value, Value::ServerError(_)));
            same && lock
        });
        known && replies.next().is_none()
    }

    /// Has node `at` take `step` and takes over what it says.
    pub(super) async fn exchange(
        &self,
        at: usize,
        step: &Step,
        aim: Aim,
        deadline: Moment,
    ) -> Outcome<Reply> {
        let begin = self.clock.now();
        let service = &self.nodes.services[at];
        let (rows, listens) = {
            let inner = self.inner();
            let leg = &inner.legs[at];
            (leg.rows.clone(), aim == Aim::Look || leg.armed.is_some())
        };
        let sending = Mutex::new((0, 0, 0));
        let steps = |connection: &Connection| {
            let asks = listens && connection.tells.get().is_none();
            let mut steps = Vec::new();
            if asks {
                steps.push(Step::command(["HELLO", "3"]));
                steps.push(Step::command(["CLIENT", "TRACKING", "ON", "OPTIN", "NOLOOP"]));
            }
            steps.push(step.clone());
            if listens && connection.tells.get() != Some(&false) {
                steps.extend(self.arming(&rows));
            }
            let mut inner = self.inner();
            inner.legs[at].sent += 1;
            *sending.lock().unwrap_or_else(PoisonError::into_inner) =
                (inner.legs[at].sent, connection.told(), if asks { 2 } else { 0 });
            steps
        };
        let answer = service.call(None, deadline, Patience::Once, steps).await;
        let now = self.clock.now();
        let (sent, told, asked) = *sending.lock().unwrap_or_else(PoisonError::into_inner);
        let parsed = answer.and_then(|answer| {
            let reply = answer.replies.get(asked).ok_or_else(|| Fault::nonsense("no reply"))?;
            Ok((Reply::parse(reply, self.names.len())?, answer))
        });
        let (reply, answer) = match parsed {
            Ok(found) => found,
            Err(fault) => {
                let mut inner = self.inner();
                inner.legs[at].failed(fault.clone(), self.ttl / 3, now);
                drop(inner);
                self.learnt();
                return Err(fault);
            }
        };
        if asked > 0 {
            // Another claim of this client may have asked meanwhile; the answer is the same.
            let _ = answer.connection.tells.set(answer.replies.get(1) == Some(&Value::Okay));
        }
        let mut guard = self.inner();
        let inner = &mut *guard;
        let leg = &mut inner.legs[at];
        leg.opened.get_or_insert(service.opened());
        leg.mismatch = None;
        match &reply {
            Reply::Standing(standing) => {
                if aim == Aim::Life && standing.found {
                    leg.from = leg.from.max(begin);
                }
                leg.take(sent, standing.clone(), self.nodes.max_ttl, now);
                let tells = answer.connection.tells.get() != Some(&false);
                let agrees = !tells || self.agrees(&leg.rows, answer.replies.get(asked + 1..).unwrap_or(&[]));
                leg.armed =
                    (listens && agrees).then(|| Armed { connection: Arc::clone(&answer.connection), told });
                if !tells {
                    leg.look_at = leg.look_at.min(now + UNTOLD);
                }
            }
            Reply::Mismatch { mode, who } => leg.mismatch = Some((mode.clone(), who.clone())),
            Reply::Number(_) => {}
        }
        match aim {
            Aim::Floor => {
                for (floor, token) in leg.floor.iter_mut().zip(&inner.confirming) {
                    *floor = (*floor).max(*token);
                }
            }
            Aim::Leave => leg.left = true,
            _ => {}
        }
        drop(guard);
        if aim != Aim::Look && self.nodes.claims.load(Ordering::Relaxed) > 1 {
            answer.connection.nudge();
        }
        self.learnt();
        Ok(reply)
    }

    /// Has the nodes for which `make` gives a step take it, all at once. Returns when all have answered, some time
    /// after `enough` says so, or at the deadline; what is under way then goes on by itself. Dropping the future ends
    /// that too.
    pub(super) async fn round(
        self: &Arc<Self>,
        aim: Aim,
        deadline: Moment,
        make: impl Fn(usize, &Leg) -> Option<Step>,
        enough: impl Fn(&Self) -> bool,
    ) {
        let steps: Vec<Option<Step>> =
            self.inner().legs.iter().enumerate().map(|(at, leg)| make(at, leg)).collect();
        let mut under_way = JoinSet::new();
        for (at, step) in steps.into_iter().enumerate() {
            let Some(step) = step else { continue };
            let core = Arc::clone(self);
            // What went wrong is kept with the leg.
            under_way.spawn(async move { drop(core.exchange(at, &step, aim, deadline).await) });
        }
        let mut until = deadline + Duration::from_millis(5);
        let mut done = false;
        loop {
            tokio::select! {
                biased;
                ended = under_way.join_next() => if ended.is_none() { return },
                () = self.clock.sleep_until(until) => break,
            }
            if !done && enough(self) {
                done = true;
                until = until.min(self.clock.now() + self.straggle());
            }
        }
        under_way.detach_all();
    }

    /// How it stands, as far as is known.
    fn state(&self, inner: &Inner, now: Moment) -> ClaimState {
        let taken_away = |grant: &Grant| tally::taken_away(&inner.legs, &grant.names, now);
        if tally::lost(&inner.legs, now) || inner.grant.as_ref().is_some_and(taken_away) {
            return self.ended(inner, now);
        }
        let mut rows = inner.legs.iter().filter(|leg| leg.phase == Phase::In).flat_map(|leg| &leg.rows);
        if let Some(by) = rows.clone().find_map(|row| row.base.asked.clone()) {
            return ClaimState::AskedToLeave { by };
        }
        if let Some(grant) = &inner.grant {
            return ClaimState::Held(grant.clone());
        }
        let holder = rows.find_map(|row| row.base.lead.clone()).map(Box::new);
        ClaimState::Waiting { ahead: None, holder }
    }

    fn ended(&self, inner: &Inner, now: Moment) -> ClaimState {
        let gone: Vec<_> = inner.legs.iter().flat_map(|leg| &leg.rows).collect();
        let by = |why: &str| gone.iter().find(|row| row.base.gone.as_deref() == Some(why));
        if let Some(by) = by("superseded").and_then(|row| row.base.by.clone()) {
            return ClaimState::Superseded { by };
        }
        ClaimState::Lost(match by("evicted") {
            Some(row) => LossReason::Evicted(row.base.by.clone()),
            None if now >= inner.last_good + self.ttl => LossReason::Expired,
            None => LossReason::SessionEnded,
        })
    }

    /// Tells what was learnt to whoever listens and whoever acts on it.
    pub(super) fn learnt(&self) {
        self.tell();
        self.stir.notify_one();
        self.heard.notify_waiters();
    }

    /// Tells how it stands to whoever listens.
    pub(super) fn tell(&self) {
        let now = self.clock.now();
        let inner = self.inner();
        if !inner.leaving && !is_final(&self.news.borrow()) {
            let state = self.state(&inner, now);
            self.news.send_if_modified(|old| std::mem::replace(old, state.clone()) != state);
        }
    }

    /// Whether nothing can follow.
    pub(super) fn is_over(&self) -> bool {
        self.inner().leaving || is_final(&self.news.borrow())
    }
}

/// `script` on the lines of `names`, about the claim `id`; tokens that it gives are `hint` where that is possible.
pub(super) fn on_lines(
    script: &'static Script,
    names: &[LockKeys],
    id: ClaimId,
    hint: u64,
    more: &[String],
) -> Step {
    let mut arguments = vec![id.to_string()];
    let mut keys = Vec::with_capacity(names.len() * 5);
    for name in names {
        keys.extend([name.lock.clone(), name.line(), name.holders(), name.counters(), name.claim(id)]);
        arguments.extend([name.claim_prefix(), name.claim_suffix().to_owned()]);
    }
    arguments.push(hint.to_string());
    arguments.extend_from_slice(more);
    Step::Script { script, keys, arguments }
}
