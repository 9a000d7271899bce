//! Reading queues: what the nodes say together.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use redis::Value;

use super::client::RedlockBackend;
use super::core::Nodes;
use super::fan_out::{self, STRAGGLE};
use super::majority;
use super::reply::number;
use super::script::INSPECT;
use crate::backend::fault::FaultResult;
use crate::backend::record::{Record, granted, instant};
use crate::backend::redis::dial::{text, value_of};
use crate::backend::redis::fault;
use crate::backend::redis::keys::Naming;
use crate::backend::redis::queues::{QUEUES_AT_ONCE, scan};
use crate::backend::redis::row::{foreign_entry, life};
use crate::backend::redis::script::Step;
use crate::backend::redis::service::Service;
use crate::lock::{ClaimId, Entry, FencingToken, LockName, LockStatus, Mode, Moment};

/// One claim as the nodes know it.
#[derive(Debug)]
pub(super) struct QueueEntry {
    pub(super) id: ClaimId,
    pub(super) record: Record,
    /// Its place in the queue, comparable between claims.
    pub(super) score: u64,
    /// How many nodes have which label of it: one that was away when it was published has an older one.
    labels: BTreeMap<Option<String>, usize>,
    /// How many nodes know it.
    known: usize,
    /// How many nodes gave it which slot, or no slot in particular.
    given: BTreeMap<Option<u32>, usize>,
    /// The greatest that a node gave it.
    token: Option<FencingToken>,
    /// That of its hold, which the nodes are told once it has a majority. One to which it came back later has given it another.
    told: Option<FencingToken>,
    held: Option<SystemTime>,
    since: Option<SystemTime>,
    lives: Vec<Option<Duration>>,
}

/// A lock's key at one node.
#[derive(Debug)]
struct KeyValue {
    says: String,
    left: Option<Duration>,
    /// What it is shown as if no dlock set it.
    foreign: Option<ClaimId>,
}

/// A queue as the nodes know it together.
#[derive(Debug)]
pub(super) struct Queue {
    /// The lock's key.
    key: String,
    nodes: usize,
    answered: usize,
    /// What the lock's key says at each node where it is set.
    values: Vec<KeyValue>,
    pub(super) entries: Vec<QueueEntry>,
}

pub(super) fn step(naming: &Naming, name: &LockName) -> FaultResult<Step> {
    let keys = naming.of(name)?;
    let arguments = vec![keys.claim_prefix(), keys.claim_suffix().to_owned()];
    let all = vec![keys.lock.clone(), keys.queue(), keys.holders()];
    Ok(Step::Script { script: &INSPECT, keys: all, arguments })
}

/// The queues of `names`.
pub(super) async fn entries(
    nodes: &Arc<Nodes>,
    naming: &Naming,
    names: &[LockName],
    deadline: Moment,
) -> FaultResult<Vec<Queue>> {
    let steps: Vec<Step> = names.iter().map(|name| step(naming, name)).collect::<FaultResult<_>>()?;
    let answers = fan_out::answers(nodes, STRAGGLE, deadline, steps).await?;
    let queue = |(n, name)| {
        let of_this = answers.iter().flatten().filter_map(|replies| replies.get(n));
        Queue::merge(naming.of(name)?.lock, nodes.services.len(), of_this)
    };
    names.iter().enumerate().map(queue).collect()
}

/// The queue of `name`.
pub(super) async fn queue(
    nodes: &Arc<Nodes>,
    naming: &Naming,
    name: &LockName,
    deadline: Moment,
) -> FaultResult<Queue> {
    Ok(entries(nodes, naming, std::slice::from_ref(name), deadline).await?.remove(0))
}

/// The queues with claims whose names start with `prefix`.
pub(super) async fn queues(
    backend: &RedlockBackend,
    prefix: &str,
    deadline: Moment,
) -> FaultResult<Vec<LockStatus>> {
    let ask = |service: Arc<Service>| {
        let naming = backend.naming.clone();
        async move { scan(&service, &naming, None, &naming.sides(), Naming::name_of_either, deadline).await }
    };
    let scans = fan_out::of_each(&backend.nodes, STRAGGLE, deadline, ask).await?;
    let names: BTreeSet<LockName> = scans.into_iter().flatten().flatten().collect();
    let names: Vec<LockName> = names.into_iter().filter(|name| name.as_str().starts_with(prefix)).collect();
    let mut found = Vec::new();
    for some in names.chunks(QUEUES_AT_ONCE) {
        let queues = entries(&backend.nodes, &backend.naming, some, deadline).await?;
        found.extend(some.iter().zip(queues).map(|(name, queue)| queue.status(name)));
    }
    found.retain(|status| !status.is_empty());
    Ok(found)
}

impl Queue {
    fn merge<'a>(key: String, nodes: usize, replies: impl Iterator<Item = &'a Value>) -> FaultResult<Self> {
        let mut queue = Self { key, nodes, answered: 0, values: Vec::new(), entries: Vec::new() };
        let mut found: BTreeMap<ClaimId, QueueEntry> = BTreeMap::new();
        for reply in replies {
            let Value::Array(parts) = reply else { return Err(fault::nonsense("no queue")) };
            let [value, left, Value::Array(entries), foreign] = parts.as_slice() else {
                return Err(fault::nonsense("no queue"));
            };
            queue.answered += 1;
            let value = value_of(value);
            for entry in entries {
                QueueEntry::add(&mut found, entry, value.as_deref());
            }
            let foreign = text(foreign).and_then(|id| id.parse().ok());
            queue.values.extend(value.map(|says| KeyValue { says, left: life(left), foreign }));
        }
        queue.entries = found.into_values().collect();
        queue.entries.sort_by_key(|found| (found.score, found.id));
        Ok(queue)
    }

    /// Whether so many nodes, and those that have not answered, could be a majority.
    fn may_be_most(&self, count: usize) -> bool {
        count > 0 && count + (self.nodes - self.answered) >= majority::of(self.nodes)
    }

    pub(super) fn status(&self, name: &LockName) -> LockStatus {
        let (mut holders, mut waiters) = (Vec::new(), Vec::new());
        let (mut holding, mut seen) = (BTreeSet::new(), BTreeSet::new());
        for found in &self.entries {
            if let Some(slot) =
                found.slot().filter(|(_, count)| self.may_be_most(*count)).map(|(slot, _)| slot)
            {
                holding.insert(found.id.to_string());
                holders.push(found.entry(true, slot));
            } else if self.may_be_most(found.known) {
                waiters.push(found.entry(false, None));
            }
        }
        for value in &self.values {
            let same = self.values.iter().filter(|other| other.foreign == value.foreign).count();
            let own = value.says.starts_with("redlock:") || holding.contains(&value.says);
            if self.may_be_most(same) && !own && seen.insert(value.foreign) {
                let known = self.entries.iter().any(|found| found.id.to_string() == value.says);
                if !known {
                    holders.insert(0, foreign_entry(&self.key, value.foreign, value.left));
                }
            }
        }
        LockStatus::of(name, holders, waiters)
    }
}

impl QueueEntry {
    /// Adds what one node, at which the lock's key says `value`, knows of a claim.
    fn add(found: &mut BTreeMap<ClaimId, Self>, reply: &Value, value: Option<&str>) {
        let Value::Array(parts) = reply else { return };
        let at = |n: usize| parts.get(n).and_then(text);
        let id: Option<ClaimId> = at(0).and_then(|id| id.parse().ok());
        let record = at(2).and_then(|about| Record::parse(about.as_bytes()));
        let (Some(id), Some(record)) = (id, record) else { return };
        let proof = match record.mode() {
            Some(mode @ (Mode::Shared | Mode::Slots(_))) => format!("redlock:{mode}"),
            _ => id.to_string(),
        };
        let granted = granted(at(4).as_deref(), at(5).as_deref()).filter(|_| value == Some(proof.as_str()));
        let one = found.entry(id).or_insert_with(|| Self {
            id,
            record,
            score: 0,
            labels: BTreeMap::new(),
            known: 0,
            given: BTreeMap::new(),
            token: None,
            told: None,
            held: None,
            since: None,
            lives: Vec::new(),
        });
        one.known += 1;
        one.score = one.score.max(at(9).and_then(|score| number(&score)).unwrap_or(0));
        *one.labels.entry(at(3)).or_default() += 1;
        one.lives.push(parts.get(8).and_then(life));
        let instant = |n: usize| at(n).and_then(|text| instant(&text));
        one.since = one.since.or_else(|| instant(7));
        if let Some(granted) = granted {
            *one.given.entry(granted.slot).or_default() += 1;
            one.token = one.token.max(Some(granted.token));
            one.told = one.told.max(at(10).and_then(|token| FencingToken::new(token.parse().ok()?)));
            one.held = [one.held, instant(6)].into_iter().flatten().min();
        }
    }

    /// The slot that most nodes gave, and how many these are.
    fn slot(&self) -> Option<(Option<u32>, usize)> {
        self.given.iter().map(|(slot, count)| (*slot, *count)).max_by_key(|(_, count)| *count)
    }

    fn entry(&self, holds: bool, slot: Option<u32>) -> Entry {
        let mut entry = self.record.entry();
        entry.claim = Some(self.id);
        let most = self.labels.iter().max_by_key(|(_, count)| **count);
        entry.label = most.and_then(|(label, _)| label.clone()).or(entry.label);
        entry.token = self.told.or(self.token).filter(|_| holds);
        entry.slot = slot;
        entry.since = self.held.filter(|_| holds).or(self.since);
        let mut lives = self.lives.clone();
        lives.sort_by(|a, b| b.cmp(a));
        entry.ttl = lives.get(lives.len() / 2).copied().flatten();
        entry
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::Holder;

    const CLAIM: &str = "0123456789abcdef0123456789abcdef";

    /// What a node says where the claim holds since then, with the token that it gave, and perhaps that of the whole hold.
    fn node(given: &str, held: &str, told: Option<&str>) -> Value {
        let text = |text: &str| Value::BulkString(text.into());
        let record = Record {
            claim: CLAIM.to_owned(),
            mode: Mode::Exclusive.to_string(),
            ttl_ms: 1000,
            holder: Holder::default(),
            ancestors: Vec::new(),
            names: Vec::new(),
            supersede: false,
        };
        let record = record.to_text();
        let told = told.map_or(Value::Nil, text);
        let entry =
            [CLAIM, "exclusive", &record].map(text).into_iter().chain([Value::Nil, text(given), Value::Nil]);
        let rest = [text(held), text("1"), Value::Int(900), text("0"), told];
        let entries = Value::Array(vec![Value::Array(entry.chain(rest).collect())]);
        Value::Array(vec![text(CLAIM), Value::Int(900), entries, Value::Nil])
    }

    #[test]
    fn a_node_to_which_the_claim_came_back_changes_neither_its_token_nor_since_when_it_holds() {
        let name: LockName = "x".parse().expect("a name");
        let status = |nodes: &[Value]| {
            let queue = Queue::merge("x".to_owned(), nodes.len(), nodes.iter()).expect("a queue");
            queue.status(&name).holders.remove(0)
        };
        let held = |micros: u64| Some(SystemTime::UNIX_EPOCH + Duration::from_micros(micros));
        let back = node("70", "60", None);
        for nodes in [
            [node("5", "6", Some("7")), back.clone(), node("6", "5", Some("7"))],
            [back.clone(), node("5", "5", None), node("7", "6", Some("7"))],
        ] {
            let holder = status(&nodes);
            assert_eq!((holder.token, holder.since), (FencingToken::new(7), held(5)));
        }
        // As long as no node has been told, the greatest is the one that will be.
        let holder = status(&[node("5", "6", None), node("7", "8", None)]);
        assert_eq!((holder.token, holder.since), (FencingToken::new(7), held(6)));
    }
}
