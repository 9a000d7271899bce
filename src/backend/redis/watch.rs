//! Changes that the server reports: once for each key that was read over a connection since its last change.

use redis::Value;
use tokio::sync::watch;

use super::client::{Answer, Client};
use super::connection::Heard;
use super::keys::{CLAIM, LockKeys};
use super::script::Call;
use crate::backend::claim_state::{POLL, due, patience};
use crate::lock::{Mode, Moment};
use crate::net::fault::FaultResult;
use crate::net::request::Patience;
use crate::queue::store::{Own, Target};

/// Requests notifications of explicitly chosen keys, except of this client's own changes.
pub(super) const OPTIN: &[&str] = &["CLIENT", "TRACKING", "ON", "OPTIN", "NOLOOP"];

/// Reads of keys, and where the server reports changes of these.
#[derive(Clone, Debug)]
pub(super) struct Armed {
    reads: Vec<Read>,
    values: Vec<Value>,
    heard: Heard,
    /// When they were made last.
    made: Moment,
}

/// The words of a command.
type Read = Vec<String>;

impl Armed {
    pub(super) fn steps(&self) -> Vec<Call> {
        steps(&self.reads)
    }
}

/// Returns the steps after which the server reports the next change.
fn steps(reads: &[Read]) -> Vec<Call> {
    reads.iter().flat_map(|read| [caching(), Call::attempt(read)]).collect()
}

/// Returns the step before a step whose reads the server is to report when they change.
pub(super) fn caching() -> Call {
    Call::attempt(["CLIENT", "CACHING", "YES"])
}

/// Returns the reads of what concerns `own`, which waits for the targets `on` or holds the locks with these keys: of
/// claims the fields that another client may change.
pub(super) fn reads(own: &Own, names: &[LockKeys], on: &[Target]) -> Vec<Read> {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Read>();
    let of_claim = |key: &str| words(&["HMGET", key, "mode", "gone", "asked", "slot"]);
    let of_lock = |keys: &LockKeys| words(&["GET", &keys.lock]);
    let mut all: Vec<Read> = names.iter().map(|keys| of_claim(&keys.claim(own.id))).collect();
    for Target { name, key, .. } in on {
        let keys = &names[*name];
        all.push(match key.order {
            0 => of_lock(keys),
            _ => of_claim(&keys.side(&format!("{CLAIM}{}", key.text))),
        });
    }
    if on.is_empty() && own.mode == Mode::Exclusive {
        all.extend(names.iter().map(of_lock));
    }
    all
}

/// The watch of one claim of this client.
#[derive(Debug, Default)]
pub(super) struct Watch(watch::Sender<Option<Armed>>);

impl Watch {
    pub(super) fn armed(&self) -> Option<Armed> {
        self.0.borrow().clone()
    }

    /// Takes the answer to a step of the claim and then to the steps of `armed`. These follow each step: the server does
    /// not report this client's own changes, and such a change ends the watch. The connection may also have fallen silent.
    pub(super) fn rearm(&self, armed: Option<Armed>, answer: &Answer) {
        let same = armed.filter(|armed| answer.replies.get(1..) == Some(armed.values.as_slice()));
        let heard = answer.heard.clone();
        let armed = same.zip(heard).map(|(armed, heard)| Armed { heard, made: answer.sent, ..armed });
        self.0.send_replace(armed);
    }

    /// Implements [`crate::queue::store::Store::changed`] for a claim that `reads` concern. It also completes once the server
    /// begins to report changes, because earlier ones are unknown.
    pub(super) async fn changed(
        &self,
        service: &Client,
        reads: Vec<Read>,
        own: &Own,
        until: Moment,
    ) -> FaultResult<()> {
        let (mut news, clock) = (self.0.subscribe(), service.clock);
        let covers = |armed: &Armed| reads.iter().all(|read| armed.reads.contains(read));
        loop {
            let armed = news.borrow_and_update().clone();
            let Some(armed) = armed.filter(covers) else { break };
            // The server may report an expired key late.
            let ends = due(armed.made, Some(own.ttl));
            tokio::select! {
                _ = news.changed() => continue,
                () = clock.sleep_until(until) => return Ok(()),
                () = clock.sleep_until(ends) => {}
                () = armed.heard.news() => {}
            }
            self.0.send_replace(None);
            return Ok(());
        }
        let deadline = clock.now() + patience(own.ttl);
        if service.listen(deadline, OPTIN).await? {
            let Answer { replies: values, heard, sent: made, .. } =
                service.call(deadline, Patience::Once, &steps(&reads)).await?;
            let is_refused = values.iter().any(|value| matches!(value, Value::ServerError(_)));
            if let Some(heard) = heard.filter(|_| !is_refused) {
                self.0.send_replace(Some(Armed { reads, values, heard, made }));
                return Ok(());
            }
        }
        clock.sleep_until(until.min(clock.now() + POLL)).await;
        Ok(())
    }
}
