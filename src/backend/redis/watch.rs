//! Changes that the server reports: once for each key that was read over a connection since its last change.

use std::sync::Mutex;

use redis::Value;
use tokio::sync::watch;

use super::client::{Client, OPTIN};
use super::connection::Heard;
use super::keys::LockKeys;
use super::rows::Known;
use super::script::Call;
use crate::backend::claim_state::{POLL, due, patience};
use crate::lock::{Mode, Moment};
use crate::net::fault::FaultResult;
use crate::net::request::Patience;
use crate::queue::store::{Own, Target};
use crate::sync::locked;

/// The fields of a claim that another client may change.
const WATCHED: [&str; 4] = ["mode", "gone", "asked", "slot"];

/// A key to watch, and what the state that was read last tells of it.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Watch {
    /// The own claim, with its known request to leave.
    Own { key: String, asked: Value },
    /// Another claim, of which also a slot is news if it had none.
    Target { key: String, or_holds: bool },
    /// The lock's key, with its known value.
    Lock { key: String, value: Value },
}

impl Watch {
    /// Returns the steps after which the server reports the next change.
    fn steps(&self) -> [Call; 2] {
        let read = match self {
            Self::Lock { key, .. } => Call::attempt(["GET", key]),
            Self::Own { key, .. } | Self::Target { key, .. } => {
                Call::attempt(["HMGET", key].into_iter().chain(WATCHED))
            }
        };
        [caching(), read]
    }

    /// Returns whether `reply`, to the read, agrees with the known state. A key of another type is taken.
    fn agrees(&self, reply: &Value) -> bool {
        if let Self::Lock { value, .. } = self {
            return reply == value || matches!(reply, Value::ServerError(_));
        }
        let Value::Array(fields) = reply else { return false };
        let [mode, gone, asked, slot] = fields.as_slice() else { return false };
        let is_there = *mode != Value::Nil && *gone == Value::Nil;
        match self {
            Self::Own { asked: known, .. } => is_there && asked == known,
            Self::Target { or_holds, .. } => is_there && !(*or_holds && *slot != Value::Nil),
            Self::Lock { .. } => false,
        }
    }
}

/// Watched keys, and where the server reports their changes.
#[derive(Clone, Debug)]
struct Armed {
    watches: Vec<Watch>,
    heard: Heard,
}

/// The state of one claim of this client.
#[derive(Debug, Default)]
pub(super) struct Local {
    known: Mutex<Vec<Known>>,
    /// From when its ttl counts: the server may report an expired key late.
    renewed: Mutex<Option<Moment>>,
    armed: watch::Sender<Option<Armed>>,
}

impl Local {
    /// Remembers from when the ttl counts.
    pub(super) fn renewed(&self, at: Moment) {
        *locked(&self.renewed) = Some(at);
    }

    /// Remembers the state that was read last. Later changes are news again.
    pub(super) fn learn(&self, known: Vec<Known>) {
        *locked(&self.known) = known;
        self.armed.send_replace(None);
    }

    /// Returns the keys that concern the claim, in the order of `names`, those of its locks.
    fn watches(&self, names: &[LockKeys], own: &Own, on: &[Target]) -> Vec<Watch> {
        let known = locked(&self.known);
        let mut watches = Vec::new();
        for (n, (keys, known)) in names.iter().zip(&*known).enumerate() {
            let key = |who: &str| format!("{}{who}{}", keys.claim_prefix(), keys.claim_suffix());
            watches.push(Watch::Own { key: keys.claim(own.id), asked: known.asked.clone() });
            let on = || on.iter().filter(|target| target.name == n);
            let others = on().filter(|target| target.key.order > 0);
            watches.extend(others.map(|target| {
                let (key, or_holds) = (key(&target.key.text), target.or_holds);
                Watch::Target { key, or_holds }
            }));
            let is_held = on().next().is_none() && own.mode == Mode::Exclusive;
            if is_held || on().any(|target| target.key.order == 0) {
                watches.push(Watch::Lock { key: keys.lock.clone(), value: known.value.clone() });
            }
        }
        watches
    }

    /// Returns the steps that watch again what is watched, to be made with a renewal: the server does not report the
    /// client's own changes, and such a change ends the watch. The connection may also have fallen silent.
    pub(super) fn again(&self) -> Vec<Call> {
        self.armed.borrow().iter().flat_map(|armed| &armed.watches).flat_map(Watch::steps).collect()
    }

    /// Takes the `replies` to [`Local::again`], and where the server reports changes.
    pub(super) fn rearm(&self, heard: Option<&Heard>, replies: &[Value]) {
        self.armed.send_modify(|armed| {
            let watches = armed.take().map(|armed| armed.watches).unwrap_or_default();
            let heard = heard.cloned().filter(|_| agree(&watches, replies));
            *armed = heard.map(|heard| Armed { watches, heard });
        });
    }

    /// Implements [`crate::queue::store::Store::changed`] for this claim.
    pub(super) async fn changed(
        &self,
        service: &Client,
        names: &[LockKeys],
        own: &Own,
        on: &[Target],
        until: Moment,
    ) -> FaultResult<()> {
        let mut news = self.armed.subscribe();
        let watches = self.watches(names, own, on);
        loop {
            let armed = news.borrow_and_update().clone();
            let covers = |armed: &Armed| watches.iter().all(|watch| armed.watches.contains(watch));
            let Some(Armed { heard, .. }) = armed.filter(|armed| covers(armed)) else {
                let slot = names.first().map(|keys| keys.slot);
                let deadline = service.clock.now() + patience(own.ttl);
                let mut answer = None;
                if service.listen(slot, deadline, OPTIN).await? {
                    let steps: Vec<Call> = watches.iter().flat_map(Watch::steps).collect();
                    answer = Some(service.call(slot, deadline, Patience::Once, &steps).await?);
                }
                let answer = answer.filter(|answer| !is_refused(&answer.replies));
                let Some((heard, replies)) = answer.and_then(|answer| Some((answer.heard?, answer.replies)))
                else {
                    service.clock.sleep_until(until.min(service.clock.now() + POLL)).await;
                    return Ok(());
                };
                if !agree(&watches, &replies) {
                    return Ok(());
                }
                self.armed.send_replace(Some(Armed { watches: watches.clone(), heard }));
                continue;
            };
            let now = service.clock.now();
            let renewed = *locked(&self.renewed);
            let ends = renewed.map(|at| due(at, Some(own.ttl))).filter(|ends| *ends > now);
            let until = until.min(ends.unwrap_or(Moment::NEVER));
            tokio::select! {
                () = heard.news() => return Ok(()),
                _ = news.changed() => {}
                () = service.clock.sleep_until(until) => return Ok(()),
            }
        }
    }
}

/// Returns whether the replies to the steps of `watches` agree with the known state.
fn agree(watches: &[Watch], replies: &[Value]) -> bool {
    let reads = replies.iter().skip(1).step_by(2);
    replies.len() == 2 * watches.len() && watches.iter().zip(reads).all(|(watch, reply)| watch.agrees(reply))
}

/// Returns whether the server refused a step of [`Watch::steps`], such as CLIENT CACHING. It then reports no changes.
fn is_refused(replies: &[Value]) -> bool {
    replies.iter().any(|reply| matches!(reply, Value::ServerError(error) if error.code() != "WRONGTYPE"))
}

/// Returns the step before each read of a key to watch.
pub(super) fn caching() -> Call {
    Call::attempt(["CLIENT", "CACHING", "YES"])
}
