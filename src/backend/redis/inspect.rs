//! Reading queues.

use std::time::{Duration, SystemTime};

use redis::Value;

use super::connection::Connection;
use super::dial::{text, value_of};
use super::fault;
use super::keys::Naming;
use super::row::{foreign_entry, life};
use super::script::{INSPECT, Step};
use super::service::{Patience, Service};
use super::wire::one;
use crate::backend::fault::FaultResult;
use crate::backend::record::{Record, granted, instant, with_details};
use crate::lock::{ClaimId, Entry, Granted, LockName, LockStatus, Mode, Moment};

/// How many keys the server looks at in one step of listing.
const AT_ONCE: &str = "1000";
/// How many queues are read in one exchange.
pub(super) const QUEUES_AT_ONCE: usize = 64;

/// One claim in a queue.
#[derive(Debug)]
pub(super) struct QueueEntry {
    pub(super) id: Option<ClaimId>,
    pub(super) record: Option<Record>,
    pub(super) since: Option<SystemTime>,
    label: Option<String>,
    granted: Option<Granted>,
    held: Option<SystemTime>,
    ttl: Option<Duration>,
}

/// A queue as it was read.
#[derive(Debug)]
pub(super) struct Queue {
    /// The lock's key.
    key: String,
    /// What the lock's key says, and what is left of its life.
    value: Option<String>,
    left: Option<Duration>,
    /// What it is shown as if no dlock set it.
    foreign: Option<ClaimId>,
    pub(super) entries: Vec<QueueEntry>,
}

fn step(naming: &Naming, name: &LockName) -> FaultResult<(u16, Step)> {
    let keys = naming.of(name)?;
    let arguments = vec![keys.claim_prefix(), keys.claim_suffix().to_owned()];
    let queue = keys.queue();
    Ok((keys.slot, Step::Script { script: &INSPECT, keys: vec![keys.lock, queue], arguments }))
}

pub(super) async fn entries(
    service: &Service,
    naming: &Naming,
    name: &LockName,
    deadline: Moment,
) -> FaultResult<Queue> {
    let (slot, step) = step(naming, name)?;
    Queue::parse(&one(service, slot, deadline, Patience::Once, step).await?, naming.of(name)?.lock)
}

pub(super) async fn queue(
    service: &Service,
    naming: &Naming,
    name: &LockName,
    deadline: Moment,
) -> FaultResult<LockStatus> {
    Ok(entries(service, naming, name, deadline).await?.status(name))
}

/// The queues with claims whose names start with `prefix`.
pub(super) async fn queues(
    service: &Service,
    naming: &Naming,
    prefix: &str,
    deadline: Moment,
) -> FaultResult<Vec<LockStatus>> {
    let mut names = Vec::new();
    for slot in service.slots_of_all_nodes(deadline).await? {
        names.extend(scan(service, naming, slot, &naming.queues(), Naming::name_of_queue, deadline).await?);
    }
    names.retain(|name| name.as_str().starts_with(prefix));
    names.sort();
    names.dedup();
    let mut found = Vec::new();
    if service.config.is_cluster() {
        for name in &names {
            found.push(queue(service, naming, name, deadline).await?);
        }
    } else {
        for some in names.chunks(QUEUES_AT_ONCE) {
            let steps: Vec<Step> = some
                .iter()
                .map(|name| step(naming, name).map(|(_, step)| step))
                .collect::<FaultResult<_>>()?;
            let answer =
                service.call(None, deadline, Patience::Once, move |_: &Connection| steps.clone()).await?;
            for (name, reply) in some.iter().zip(&answer.replies) {
                found.push(Queue::parse(reply, naming.of(name)?.lock)?.status(name));
            }
        }
    }
    found.retain(|status| !status.is_empty());
    Ok(found)
}

/// The locks whose names `name_of` reads in the keys that match `pattern`, at the node that has `slot`. One may come twice.
pub(super) async fn scan(
    service: &Service,
    naming: &Naming,
    slot: Option<u16>,
    pattern: &str,
    name_of: fn(&Naming, &str) -> Option<LockName>,
    deadline: Moment,
) -> FaultResult<Vec<LockName>> {
    let mut names = Vec::new();
    let mut cursor = "0".to_owned();
    loop {
        let scan = Step::command(["SCAN", &cursor, "MATCH", pattern, "COUNT", AT_ONCE]);
        let reply = one(service, slot, deadline, Patience::Once, scan).await?;
        let Value::Array(parts) = &reply else { return Err(fault::nonsense("no keys")) };
        let [next, Value::Array(keys)] = parts.as_slice() else { return Err(fault::nonsense("no keys")) };
        names.extend(keys.iter().filter_map(text).filter_map(|key| name_of(naming, &key)));
        cursor = text(next).ok_or_else(|| fault::nonsense("no cursor"))?;
        if cursor == "0" {
            return Ok(names);
        }
    }
}

impl Queue {
    fn parse(reply: &Value, key: String) -> FaultResult<Self> {
        let Value::Array(parts) = reply else { return Err(fault::nonsense("no queue")) };
        let [value, left, Value::Array(entries), foreign] = parts.as_slice() else {
            return Err(fault::nonsense("no queue"));
        };
        let entries = entries.iter().filter_map(QueueEntry::parse).collect();
        let foreign = text(foreign).and_then(|id| id.parse().ok());
        Ok(Self { key, value: value_of(value), left: life(left), foreign, entries })
    }

    /// Whether the lock's key proves the hold of `found`.
    fn proves(&self, found: &QueueEntry) -> bool {
        let Some(value) = &self.value else { return false };
        match found.record.as_ref().and_then(Record::mode) {
            Some(mode @ (Mode::Shared | Mode::Slots(_))) => {
                found.granted.is_some() && *value == format!("dlock:{mode}")
            }
            _ => found.id.is_some_and(|id| id.to_string() == *value),
        }
    }

    fn status(&self, name: &LockName) -> LockStatus {
        let (mut holders, mut waiters) = (Vec::new(), Vec::new());
        let mut own = false;
        for found in &self.entries {
            if self.proves(found) {
                let mut entry = found.entry();
                if entry.mode.is_none_or(|mode| mode == Mode::Exclusive) {
                    (entry.mode, entry.ttl) = (Some(Mode::Exclusive), self.left);
                }
                own = true;
                holders.push(entry);
            } else if found.record.is_some() && found.granted.is_none() {
                waiters.push(found.entry());
            }
        }
        let marker = self.value.as_deref().is_some_and(|value| value.starts_with("dlock:"));
        if self.value.is_some() && !own && !marker {
            holders.insert(0, foreign_entry(&self.key, self.foreign, self.left));
        }
        LockStatus::of(name, holders, waiters)
    }
}

impl QueueEntry {
    fn parse(reply: &Value) -> Option<Self> {
        let Value::Array(parts) = reply else { return None };
        let at = |n: usize| parts.get(n).and_then(text);
        Some(Self {
            id: at(0).and_then(|id| id.parse().ok()),
            record: at(2).and_then(|about| Record::parse(about.as_bytes())),
            label: at(3),
            granted: granted(at(4).as_deref(), at(5).as_deref()),
            held: at(6).and_then(|text| instant(&text)),
            since: at(7).and_then(|text| instant(&text)),
            ttl: parts.get(8).and_then(life),
        })
    }

    fn entry(&self) -> Entry {
        let entry = self.record.as_ref().map(Record::entry).unwrap_or_default();
        let since = self.held.or(self.since);
        let entry = with_details(entry, self.label.clone(), self.granted, since, self.ttl);
        Entry { claim: self.id, ..entry }
    }
}
