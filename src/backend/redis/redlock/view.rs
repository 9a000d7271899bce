//! The holders, as the nodes report them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use redis::Value;

use super::nodes::{Answer, Nodes, Question, answered};
use crate::backend::claim_state::POLL;
use crate::backend::observe::{LOOK, Watched, first_expiry};
use crate::backend::record::{Record, instant};
use crate::backend::redis::client::Client;
use crate::backend::redis::connection::{Connection, any_notified};
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
    /// From 1, if the lock has slots.
    pub(super) slot: Option<u32>,
    /// The claim's record with the number of the attempt, or another program's value.
    pub(super) value: String,
    /// `None` for another program's client.
    pub(super) record: Option<Record>,
    /// The rest of its life.
    pub(super) left: Option<Duration>,
    /// The client that asks the claim to leave.
    pub(super) asked: Option<Holder>,
    pub(super) entry: Entry,
}

impl Held {
    fn parse(reply: &Value, lock: &str) -> FaultResult<Self> {
        let nonsense = || fault::nonsense("no holder");
        let Value::Array(parts) = reply else { return Err(nonsense()) };
        let [slot, Value::Array(lines), left, foreign] = parts.as_slice() else { return Err(nonsense()) };
        let line = |n: usize| lines.get(n).and_then(text).filter(|line| !line.is_empty());
        let value = lines.first().and_then(value_of).ok_or_else(nonsense)?;
        let slot = integer(slot).and_then(|slot| slot.try_into().ok()).filter(|slot| *slot > 0);
        let (left, record) = (life(left), Record::parse(value.as_bytes()));
        let Some(known) = &record else {
            let entry = foreign_entry(lock, text(foreign).and_then(|id| id.parse().ok()), left);
            return Ok(Self { slot, value, record, left, asked: None, entry });
        };
        let entry = known.entry();
        let label = line(3).and_then(|label| serde_json::from_str(&label).ok()).or(entry.label);
        let token = line(1).and_then(|token| FencingToken::new(token.parse().ok()?));
        let since = line(2).and_then(|since| instant(&since));
        let entry = Entry { label, token, slot, since, ttl: left, ..entry };
        let asked = line(4).and_then(|by| serde_json::from_str(&by).ok());
        Ok(Self { slot, value, record, left, asked, entry })
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
) -> FaultResult<(Vec<LockStatus>, Vec<Option<(Arc<Connection>, u64)>>)> {
    let answers = nodes.majority_of(question, keys.iter().map(|keys| keys.inspect(&[])).collect()).await?;
    let status = |(n, keys): (usize, &LockKeys)| {
        let said = answered(&answers).map(|answer| Held::all(answer, n, &keys.lock));
        let holders = merge(said.collect::<FaultResult<_>>()?, nodes);
        Ok(LockStatus::of(&keys.name, holders, Vec::new()))
    };
    let found = keys.iter().enumerate().map(status).collect::<FaultResult<_>>()?;
    Ok((found, answers.into_iter().flatten().flatten().map(|answer| answer.told).collect()))
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
    let scans = nodes.each(Question::by(deadline), names, |found| nodes.is_enough(found)).await;
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

/// Merges the answers of the nodes.
fn merge(nodes_said: Vec<Vec<Held>>, nodes: &Nodes) -> Vec<Entry> {
    let silent = nodes.all.len() - nodes_said.len();
    let mut all: BTreeMap<(Option<u32>, Option<ClaimId>), Vec<Entry>> = BTreeMap::new();
    for held in nodes_said.into_iter().flatten() {
        all.entry((held.slot, held.entry.claim)).or_default().push(held.entry);
    }
    let may_hold = |said: &Vec<Entry>| said.len() + silent >= nodes.majority();
    all.into_values().filter(may_hold).map(together).collect()
}

/// Merges one hold by majority: a node that missed a publication, or issued a token that is too high, differs.
fn together(mut said: Vec<Entry>) -> Entry {
    let token = most(said.iter().map(|one| one.token)).flatten();
    let label = most(said.iter().map(|one| one.label.clone())).flatten();
    let since = said.iter().filter_map(|one| one.since).min();
    let mut lives: Vec<Option<Duration>> = said.iter().map(|one| one.ttl).collect();
    lives.sort_by(|a, b| b.cmp(a));
    let ttl = lives.get(lives.len() / 2).copied().flatten();
    Entry { token, label, since, ttl, ..said.swap_remove(0) }
}

/// Returns the most frequent value.
pub(super) fn most<T: Ord>(all: impl Iterator<Item = T>) -> Option<T> {
    counts(all).into_iter().max_by_key(|(_, count)| *count).map(|(one, _)| one)
}

/// Counts each value.
pub(super) fn counts<T: Ord>(all: impl Iterator<Item = T>) -> BTreeMap<T, usize> {
    let mut counts = BTreeMap::new();
    all.for_each(|one| *counts.entry(one).or_default() += 1);
    counts
}

/// One lock that is observed.
#[derive(Debug)]
pub(super) struct WatchedLock {
    pub(super) nodes: Arc<Nodes>,
    pub(super) naming: Naming,
    /// The connection to each node that reports changes, and its number of notifications before the last read.
    pub(super) told: Vec<(Arc<Connection>, u64)>,
}

impl Watched for WatchedLock {
    async fn look(&mut self, name: &LockName) -> FaultResult<LockStatus> {
        let question = Question { listens: true, ..Question::by(self.nodes.clock.now() + LOOK) };
        let keys = self.naming.of(name)?;
        let (mut found, told) = read(&self.nodes, &[keys], question).await?;
        self.told = told.into_iter().flatten().collect();
        Ok(found.remove(0))
    }

    async fn notified(&mut self) -> FaultResult<()> {
        any_notified(&self.told).await;
        Ok(())
    }

    fn next_look(&mut self, status: &LockStatus, now: Moment) -> Moment {
        let all_notify = self.told.len() == self.nodes.all.len();
        first_expiry(status, now).min(if all_notify { Moment::NEVER } else { now + POLL })
    }
}
