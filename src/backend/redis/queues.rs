//! The queues of a Redis: requests without a claim of this client.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;

use super::claim::RedisClaim;
use super::client::{Client, To};
use super::connection::Connection;
use super::dial::{text, value_of};
use super::fault;
use super::keys::{LockKeys, Naming, QUEUE};
use super::row::{ClaimHash, Row, foreign_entry, integer, life};
use super::script::{Call, millis, on_queues};
use crate::backend::mixing::mismatch;
use crate::backend::record::Record;
use crate::backend::{Evict, success};
use crate::lock::{ClaimId, ErrorKind, Holder, LockName, LockStatus, Mode, Moment, Reason, Request};
use crate::net::address::HostPort;
use crate::net::fault::{Fault, FaultResult};
use crate::net::request::Patience;
use crate::net::tcp;

/// The number of keys that the server checks in one step of a scan.
const AT_ONCE: &str = "1000";
/// The number of queues read in one exchange.
pub(super) const QUEUES_AT_ONCE: usize = 64;
/// How to place several names in one slot.
const ONE_SLOT: &str = "use --prefix and give them the same {tag}, as in {deploy}api and {deploy}web";

/// How to place several names on one server behind a proxy.
const ONE_SERVER: &str =
    "take one name at a time, or use --prefix, give them the same {tag} and let the proxy go by it";

/// The most numbers tried behind a name to place it in certain slots; one name in 16384 is in each slot.
const MOST_NUMBERS: u32 = 300_000;

/// A placeholder for commands that do not concern a claim.
const NOBODY: ClaimId = ClaimId::from_bytes([0; 16]);

/// The queues of one service under one prefix.
#[derive(Clone, Debug)]
pub(super) struct Queues {
    pub(super) service: Arc<Client>,
    pub(super) naming: Naming,
}

/// Returns the keys of all `names`.
pub(super) fn keys_of(naming: &Naming, names: &[LockName]) -> FaultResult<Vec<LockKeys>> {
    names.iter().map(|name| naming.of(name)).collect()
}

/// Returns the locks that have a key for `part` at one node. One may be listed twice.
pub(super) async fn scan(
    service: &Client,
    naming: &Naming,
    node: Option<HostPort>,
    part: &str,
    deadline: Moment,
) -> FaultResult<Vec<LockName>> {
    let node = To::from(node);
    let mut names = Vec::new();
    let mut cursor = "0".to_owned();
    loop {
        let scan = Call::command(["SCAN", &cursor, "MATCH", &naming.sides(part), "COUNT", AT_ONCE]);
        let reply = service.one(node.clone(), deadline, Patience::Once, scan).await?;
        let Value::Array(parts) = &reply else { return Err(fault::nonsense("no keys")) };
        let [next, Value::Array(keys)] = parts.as_slice() else { return Err(fault::nonsense("no keys")) };
        names.extend(keys.iter().filter_map(text).filter_map(|key| naming.name_of_side(&key, part)));
        cursor = text(next).ok_or_else(|| fault::nonsense("no cursor"))?;
        if cursor == "0" {
            return Ok(names);
        }
    }
}

/// Returns whether a claim that has entered exists under its first name but not under all others. A proxy chose the
/// server by the first name, and has another server for the others. `records` are those of the names, the first name's
/// last.
fn is_spread(records: &[Value]) -> bool {
    let is_there =
        |record: &Value| matches!(record, Value::Array(fields) if fields.first().and_then(text).is_some());
    let Some((first, others)) = records.split_last() else { return false };
    is_there(first) && !others.iter().all(is_there)
}

impl Queues {
    /// Executes `command` for the claim `id` in the queues of `names`, at least one, and returns the answer.
    async fn ask(
        &self,
        command: &str,
        names: &[LockName],
        id: ClaimId,
        more: &[String],
        patience: Patience,
        deadline: Moment,
    ) -> FaultResult<Value> {
        let keys = keys_of(&self.naming, names)?;
        let step = on_queues(command, &keys, id, more);
        self.service.one(To::Slot(Some(keys[0].slot)), deadline, patience, step).await
    }

    /// Executes `command` and returns whether the claim or hold that it concerns was there.
    async fn change(
        &self,
        command: &str,
        names: &[LockName],
        id: ClaimId,
        more: &[String],
        deadline: Moment,
    ) -> FaultResult<bool> {
        match self.ask(command, names, id, more, Patience::Deadline, deadline).await? {
            Value::Int(found) => Ok(found == 1),
            _ => Err(fault::nonsense("not a number")),
        }
    }

    /// Enters the queues of all names of `request` in one step.
    pub(super) async fn enter(&self, request: &Request, deadline: Moment) -> FaultResult<RedisClaim> {
        let names = keys_of(&self.naming, &request.names)?;
        let first = names.first().ok_or_else(|| Fault::new(ErrorKind::Invalid, "a claim needs a name"))?;
        if self.service.config.is_cluster() && names.iter().any(|keys| keys.slot != first.slot) {
            let reason = Reason::from("these locks lie in different slots of the Redis Cluster");
            return Err(Fault::new(ErrorKind::Invalid, reason.advising(ONE_SLOT)));
        }
        let more = [
            Record::of(request, request.ttl).to_text(),
            request.mode.to_string(),
            millis(request.ttl),
            serde_json::to_string(&request.holder).unwrap_or_default(),
            if request.supersede { "1" } else { "0" }.to_owned(),
        ];
        let mut steps = vec![on_queues("enter", &names, request.id, &more)];
        let record = |keys| on_queues("record", std::slice::from_ref(keys), request.id, &[]);
        if let [first, others @ ..] = names.as_slice()
            && !others.is_empty()
        {
            // The first name is read last: a claim that ended meanwhile is gone from all of them.
            steps.extend(others.iter().chain([first]).map(record));
        }
        let steps = |_: &Connection| steps.clone();
        let answer = self.service.call(Some(first.slot), deadline, Patience::Once, steps).await?;
        let rows = entered_rows(answer.replies.first().unwrap_or(&Value::Nil), &names, request)?;
        if is_spread(answer.replies.get(1..).unwrap_or_default()) {
            self.withdraw(request, deadline).await?;
            let reason = Reason::from("a proxy keeps these locks on different servers");
            return Err(Fault::new(ErrorKind::Invalid, reason.advising(ONE_SERVER)));
        }
        Ok(RedisClaim::new(&self.service, names, request, rows, answer.sent))
    }

    /// Implements [`crate::backend::Backend::withdraw`].
    pub(super) async fn withdraw(&self, request: &Request, deadline: Moment) -> FaultResult<()> {
        let more = eviction(Evict::Force, &request.holder);
        self.change("evict", &request.names, request.id, &more, deadline).await.map(drop)
    }

    /// Implements [`crate::backend::Backend::evict`].
    pub(super) async fn evict(
        &self,
        name: &LockName,
        id: ClaimId,
        how: Evict,
        by: &Holder,
        deadline: Moment,
    ) -> FaultResult<bool> {
        let record = self.record(name, id, Patience::Deadline, deadline).await?;
        // An exclusive hold may have outlived its record.
        let names = record.map_or_else(|| vec![name.clone()], |(record, _)| record.names(name));
        self.change("evict", &names, id, &eviction(how, by), deadline).await
    }

    /// Implements [`crate::backend::Backend::evict_foreign`].
    pub(super) async fn evict_foreign(
        &self,
        name: &LockName,
        id: ClaimId,
        deadline: Moment,
    ) -> FaultResult<bool> {
        self.change("evict_foreign", std::slice::from_ref(name), id, &[], deadline).await
    }

    /// Implements [`crate::backend::Backend::publish`].
    pub(super) async fn publish(
        &self,
        name: &LockName,
        id: ClaimId,
        value: &str,
        deadline: Moment,
    ) -> FaultResult<bool> {
        self.change("publish", std::slice::from_ref(name), id, &[value.to_owned()], deadline).await
    }

    /// Implements [`crate::backend::Backend::renew`].
    pub(super) async fn renew(&self, name: &LockName, id: ClaimId, deadline: Moment) -> FaultResult<bool> {
        let Some((record, true)) = self.record(name, id, Patience::Once, deadline).await? else {
            return Ok(false);
        };
        let ttl = millis(Duration::from_millis(record.ttl_ms));
        match self.ask("renew", &record.names(name), id, &[ttl], Patience::Once, deadline).await? {
            Value::Array(parts) if parts.len() == 2 => Ok(integer(&parts[0]) == Some(1)),
            _ => Err(fault::nonsense("no answer to a renewal")),
        }
    }

    /// Returns the record of the claim `id` in the queue of `name`, if it has one, and whether it holds.
    async fn record(
        &self,
        name: &LockName,
        id: ClaimId,
        patience: Patience,
        deadline: Moment,
    ) -> FaultResult<Option<(Record, bool)>> {
        let only = std::slice::from_ref(name);
        let Value::Array(fields) = self.ask("record", only, id, &[], patience, deadline).await? else {
            return Err(fault::nonsense("no fields of a claim"));
        };
        let [about, token] = [0, 1].map(|n| fields.get(n).and_then(text));
        let Some(about) = about else { return Ok(None) };
        let senseless = || Fault::new(ErrorKind::Corrupt, "the record of the claim makes no sense");
        Ok(Some((Record::parse(about.as_bytes()).ok_or_else(senseless)?, token.is_some())))
    }

    /// Returns how long ago the last successful run acquired, by the server's clock.
    pub(super) async fn last_success(
        &self,
        name: &LockName,
        deadline: Moment,
    ) -> FaultResult<Option<Duration>> {
        let only = std::slice::from_ref(name);
        let said = self.ask("last_success", only, NOBODY, &[], Patience::Once, deadline).await?;
        let Value::Array(times) = said else { return Err(fault::nonsense("no times")) };
        let time = |n: usize| times.get(n).and_then(text)?.parse().ok().map(Duration::from_micros);
        let now = time(0).ok_or_else(|| fault::nonsense("no time"))?;
        Ok(time(1).and_then(|acquired| success::age(now, acquired)))
    }

    /// Implements [`crate::backend::Backend::everywhere`].
    pub(super) async fn everywhere(&self, name: LockName, deadline: Moment) -> FaultResult<Vec<LockName>> {
        let Some(nodes) = self.service.slots(deadline).await? else { return Ok(vec![name]) };
        let mut names = Vec::new();
        for (slots, node) in nodes {
            let is_there =
                |name: &LockName| self.naming.of(name).is_ok_and(|keys| slots.contains(&keys.slot));
            let numbered = |n: u32| format!("{name}-{n}").parse::<LockName>().ok();
            let found = (0..MOST_NUMBERS).filter_map(numbered).find(is_there);
            names.push(found.ok_or_else(|| Fault::nonsense(format!("no name lies in the slots of {node}")))?);
        }
        Ok(names)
    }

    /// Implements [`crate::backend::Backend::forget`].
    pub(super) async fn forget(&self, name: &LockName, deadline: Moment) -> FaultResult<()> {
        let keys = self.naming.of(name)?;
        let step = Call::command(["DEL", &keys.counters()]);
        self.service.one(To::Slot(Some(keys.slot)), deadline, Patience::Once, step).await.map(drop)
    }

    /// Reads the queue of `name`.
    pub(super) async fn inspect(&self, name: &LockName, deadline: Moment) -> FaultResult<LockStatus> {
        let found = self.read(std::slice::from_ref(name), deadline).await?;
        found.first().map(|queue| queue.status(name)).ok_or_else(|| fault::nonsense("no queue"))
    }

    /// Reads the queues with claims and with names that start with `prefix`.
    pub(super) async fn list(&self, prefix: &str, deadline: Moment) -> FaultResult<Vec<LockStatus>> {
        let mut names = self.names(deadline).await?;
        names.retain(|name| name.as_str().starts_with(prefix));
        let found = self.read(&names, deadline).await?;
        let found = names.iter().zip(&found).map(|(name, queue)| queue.status(name));
        Ok(found.filter(|status| !status.is_empty()).collect())
    }

    /// Reads the queues of `names`, in their order.
    async fn read(&self, names: &[LockName], deadline: Moment) -> FaultResult<Vec<QueueState>> {
        let mut found = Vec::with_capacity(names.len());
        // In a cluster one request reads one queue, because queues are in different slots.
        for some in names.chunks(if self.service.config.is_cluster() { 1 } else { QUEUES_AT_ONCE }) {
            let keys = keys_of(&self.naming, some)?;
            let step = |keys| on_queues("inspect", std::slice::from_ref(keys), NOBODY, &[]);
            let steps = |_: &Connection| keys.iter().map(step).collect();
            let answer = self.service.call(Some(keys[0].slot), deadline, Patience::Once, steps).await?;
            for (keys, reply) in keys.into_iter().zip(&answer.replies) {
                found.push(QueueState::parse(reply, keys.lock)?);
            }
        }
        Ok(found)
    }

    /// Returns the names of all locks that have a queue, sorted.
    async fn names(&self, deadline: Moment) -> FaultResult<Vec<LockName>> {
        let mut names = Vec::new();
        for node in self.service.all_nodes(deadline).await? {
            names.extend(scan(&self.service, &self.naming, node, QUEUE, deadline).await?);
        }
        names.sort();
        names.dedup();
        Ok(names)
    }
}

fn eviction(how: Evict, by: &Holder) -> [String; 3] {
    let how = match how {
        Evict::Ask => "ask",
        Evict::Force => "force",
    };
    [how.to_owned(), serde_json::to_string(by).unwrap_or_default(), millis(tcp::LATE)]
}

fn entered_rows(reply: &Value, names: &[LockKeys], request: &Request) -> FaultResult<Vec<Row>> {
    let Value::Array(parts) = reply else { return Err(fault::nonsense("no answer to entering")) };
    if let [what, rows] = parts.as_slice()
        && text(what).as_deref() == Some("in")
    {
        return Row::all(rows, names);
    }
    let [_, at, mode, about] = parts.as_slice() else { return Err(fault::nonsense("no answer to entering")) };
    let at = integer(at).and_then(|n| usize::try_from(n - 1).ok());
    let mode: Option<Mode> = text(mode).and_then(|mode| mode.parse().ok());
    let record = text(about).and_then(|about| Record::parse(about.as_bytes()));
    let who = record.map(|record| record.holder.to_string());
    let name = at.and_then(|at| names.get(at)).map(|keys| &keys.name);
    Err(Fault::new(ErrorKind::Mismatch, mismatch(name, who.as_deref(), mode.into(), request.mode)))
}

/// A queue as it was read.
struct QueueState {
    /// The lock's key.
    key: String,
    /// The value of the lock's key, and the rest of its life.
    value: Option<String>,
    left: Option<Duration>,
    /// The id under which it is shown if another program set it.
    foreign: Option<ClaimId>,
    entries: Vec<ClaimHash>,
}

impl QueueState {
    fn parse(reply: &Value, key: String) -> FaultResult<Self> {
        let Value::Array(parts) = reply else { return Err(fault::nonsense("no queue")) };
        let [value, left, Value::Array(entries), foreign] = parts.as_slice() else {
            return Err(fault::nonsense("no queue"));
        };
        let entries = entries.iter().filter_map(ClaimHash::parse).collect();
        let foreign = text(foreign).and_then(|id| id.parse().ok());
        Ok(Self { key, value: value_of(value), left: life(left), foreign, entries })
    }

    /// Returns whether the lock's key proves the hold of `found`.
    fn proves(&self, found: &ClaimHash) -> bool {
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
