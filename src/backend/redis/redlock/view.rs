//! The holders, as the nodes report them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use redis::Value;

use super::nodes::{Answer, Nodes, Question, answered};
use crate::backend::claim_state::POLL;
use crate::backend::observe::{LOOK, Watched, first_expiry};
use crate::backend::record::{Record, instant};
use crate::backend::redis::client::Client;
use crate::backend::redis::connection::{Heard, any_news};
use crate::backend::redis::dial::{text, value_of};
use crate::backend::redis::fault;
use crate::backend::redis::keys::{COUNTERS, LockKeys, Naming};
use crate::backend::redis::names::{QUEUES_AT_ONCE, scan};
use crate::backend::redis::rows::{foreign_entry, integer, life};
use crate::lock::{ClaimId, Entry, FencingToken, Holder, LockName, LockStatus, Moment};
use crate::net::fault::FaultResult;

/// A hold as one node knows it.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) entry: Entry,
    /// The client that asks the claim to leave.
    pub(super) asked: Option<Holder>,
}

impl Held {
    fn parse(reply: &Value, lock: &str) -> FaultResult<Self> {
        let nonsense = || fault::nonsense("no holder");
        let Value::Array(parts) = reply else { return Err(nonsense()) };
        let [slot, Value::Array(lines), left, foreign] = parts.as_slice() else { return Err(nonsense()) };
        let line = |n: usize| lines.get(n).and_then(text).filter(|line| !line.is_empty());
        let value = lines.first().and_then(value_of).ok_or_else(nonsense)?;
        let slot = integer(slot).and_then(|slot| slot.try_into().ok()).filter(|slot| *slot > 0);
        let Some(record) = Record::parse(value.as_bytes()) else {
            let id = text(foreign).and_then(|id| id.parse().ok());
            let entry = Entry { slot, ..foreign_entry(lock, id, life(left)) };
            return Ok(Self { entry, asked: None });
        };
        let entry = record.entry();
        let label = line(3).and_then(|label| serde_json::from_str(&label).ok()).or(entry.label);
        let token = line(1).and_then(|token| FencingToken::new(token.parse().ok()?));
        let since = line(2).and_then(|since| instant(&since));
        let asked = line(4).and_then(|by| serde_json::from_str(&by).ok());
        Ok(Self { entry: Entry { label, token, slot, since, ttl: life(left), ..entry }, asked })
    }

    /// Parses the holds in the `n`th reply, to [`LockKeys::inspect`].
    pub(super) fn all(answer: &Answer, n: usize, lock: &str) -> FaultResult<Vec<Self>> {
        let Some(Value::Array(found)) = answer.replies.get(n) else {
            return Err(fault::nonsense("no holders"));
        };
        found.iter().map(|reply| Self::parse(reply, lock)).collect()
    }
}

/// Reads the status of each of the locks with these keys. A hold is left out if it would not have a majority even with
/// all the nodes that have not answered.
async fn read(
    nodes: &Nodes,
    keys: &[LockKeys],
    question: Question,
) -> FaultResult<(Vec<LockStatus>, Vec<Heard>)> {
    let answers = nodes.majority_of(question, keys.iter().map(|keys| keys.inspect(&[])).collect()).await?;
    let silent = nodes.all.len() - answered(&answers).count();
    let status = |(n, keys): (usize, &LockKeys)| {
        let said = answered(&answers).map(|answer| Held::all(answer, n, &keys.lock));
        let holders =
            merge(said.collect::<FaultResult<Vec<_>>>()?.iter().flatten(), nodes.majority() - silent);
        Ok(LockStatus::of(&keys.name, holders, Vec::new()))
    };
    let found = keys.iter().enumerate().map(status).collect::<FaultResult<_>>()?;
    Ok((found, answers.into_iter().flatten().flatten().filter_map(|answer| answer.heard).collect()))
}

pub(super) async fn status(nodes: &Nodes, keys: LockKeys, deadline: Moment) -> FaultResult<LockStatus> {
    Ok(read(nodes, &[keys], Question::by(deadline)).await?.0.remove(0))
}

/// Returns the held locks with names that start with `prefix`.
pub(super) async fn list(
    nodes: &Nodes,
    naming: &Naming,
    prefix: &str,
    deadline: Moment,
) -> FaultResult<Vec<LockStatus>> {
    let names = |node: Arc<Client>| {
        let naming = naming.clone();
        async move { scan(&node, &naming, None, COUNTERS, deadline).await }
    };
    let scans = nodes.each(deadline, names).await;
    nodes.refuse_too_few(answered(&scans).count(), &scans)?;
    let names: BTreeSet<&LockName> = answered(&scans).flatten().collect();
    let names = names.into_iter().filter(|name| name.as_str().starts_with(prefix));
    let keys = names.map(|name| naming.of(name)).collect::<FaultResult<Vec<_>>>()?;
    let mut found = Vec::new();
    for some in keys.chunks(QUEUES_AT_ONCE) {
        found.extend(read(nodes, some, Question::by(deadline)).await?.0);
    }
    found.retain(|status| !status.is_empty());
    Ok(found)
}

/// Merges the holds that the nodes report, and leaves out those of fewer nodes than `least`. A node that missed a
/// publication, or issued a token that is too high, differs from the others.
pub(super) fn merge<'a>(said: impl Iterator<Item = &'a Held>, least: usize) -> Vec<Entry> {
    let mut all: BTreeMap<(Option<u32>, Option<ClaimId>), Vec<&Entry>> = BTreeMap::new();
    for Held { entry, .. } in said {
        all.entry((entry.slot, entry.claim)).or_default().push(entry);
    }
    let together = |said: Vec<&Entry>| {
        let alike = |one: &Entry| {
            said.iter().filter(|other| (other.token, &other.label) == (one.token, &one.label)).count()
        };
        let since = said.iter().filter_map(|one| one.since).min();
        let ttl = said.iter().filter_map(|one| one.ttl).max();
        let usual = said.iter().max_by_key(|one| alike(one))?;
        Some(Entry { since, ttl, ..(**usual).clone() })
    };
    all.into_values().filter(|said| said.len() >= least).filter_map(together).collect()
}

/// One lock that is observed.
#[derive(Debug)]
pub(super) struct WatchedLock {
    pub(super) nodes: Arc<Nodes>,
    pub(super) naming: Naming,
    /// Where nodes report changes after the last read.
    pub(super) heard: Vec<Heard>,
}

impl Watched for WatchedLock {
    async fn look(&mut self, name: &LockName) -> FaultResult<LockStatus> {
        let question = Question::listening(self.nodes.clock.now() + LOOK);
        let (mut found, heard) = read(&self.nodes, &[self.naming.of(name)?], question).await?;
        self.heard = heard;
        Ok(found.remove(0))
    }

    async fn notified(&mut self) -> FaultResult<()> {
        any_news(&self.heard).await;
        Ok(())
    }

    fn next_look(&mut self, status: &LockStatus, now: Moment) -> Moment {
        let all_notify = self.heard.len() == self.nodes.all.len();
        first_expiry(status, now).min(if all_notify { Moment::NEVER } else { now + POLL })
    }
}
