//! The operations of the queues.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use redis::Value;
use serde_json::json;

use super::client::{self, Client, To};
use super::examine;
use super::fault::{self, NAME};
use super::keys::{LockKeys, Naming};
use super::names::{self, QUEUES_AT_ONCE};
use super::rows::Row;
use super::script::{Call, millis, on_queues, written};
use super::watch::Local;
use crate::backend::claim_state::POLL;
use crate::backend::record::Record;
use crate::backend::{Capabilities, Examination, ServiceClient};
use crate::lock::{ClaimId, ErrorKind, LockName, Mode, Moment, Reason, Request};
use crate::net::fault::{Fault, FaultResult};
use crate::net::rank::Rank;
use crate::net::request::Patience;
use crate::queue::store::{Answer, Extent, Key, Note, Own, Queue, Seen, Step, Store, Watched};
use crate::sync::locked;

/// How to place several names in one slot.
const ONE_SLOT: &str = "use --prefix and give them the same {tag}, as in {deploy}api and {deploy}web";

/// How to place several names on one server behind a proxy.
const ONE_SERVER: &str =
    "take one name at a time, or use --prefix, give them the same {tag} and let the proxy go by it";

/// A placeholder for steps that do not concern an own claim.
const NO_CLAIM: ClaimId = ClaimId::from_bytes([0; 16]);

/// The queues of one service under one prefix.
#[derive(Debug)]
pub(super) struct RedisStore {
    service: Client,
    naming: Naming,
    claims: Mutex<HashMap<ClaimId, Arc<Local>>>,
}

/// Returns whether a claim that has entered is in the queue of its first name but not in all others. A proxy chose the
/// server by the first name, and has another server for the others. `found` is whether it is there, the first name last.
fn is_spread(found: &[bool]) -> bool {
    found.split_last().is_some_and(|(first, others)| *first && others.contains(&false))
}

/// Returns the answer that shows `rows`.
fn answer(rows: Vec<Row>, sent: Moment) -> Answer {
    let note = rows.iter().find_map(|row| row.note.clone());
    Answer { queues: rows.into_iter().map(|row| row.queue).collect(), note, sent, seen: 0 }
}

impl RedisStore {
    /// Creates a client that has not connected yet.
    pub(super) fn new(service: Client) -> Self {
        let naming = Naming { prefix: service.config.prefix.clone(), group: "" };
        Self { service, naming, claims: Mutex::default() }
    }

    fn local(&self, id: ClaimId) -> Arc<Local> {
        Arc::clone(locked(&self.claims).entry(id).or_default())
    }

    fn keys(&self, names: &[LockName]) -> FaultResult<Vec<LockKeys>> {
        names.iter().map(|name| self.naming.of(name)).collect()
    }

    /// Returns what `reply` shows to the own claim.
    fn shown(
        &self,
        own: &Own,
        keys: &[LockKeys],
        reply: &Value,
        sent: Moment,
    ) -> FaultResult<(bool, Answer)> {
        let (done, rows) = Row::all(reply, keys)?;
        self.local(own.id).learn(rows.iter().map(|row| row.known.clone()).collect());
        Ok((done, answer(rows, sent)))
    }

    /// Makes a step of the own claim.
    async fn step(
        &self,
        own: &Own,
        command: &str,
        more: &[String],
        deadline: Moment,
    ) -> FaultResult<(bool, Answer)> {
        let keys = self.keys(&own.names)?;
        let step = on_queues(command, &keys, own.id, own.mode, more);
        let said = self.service.call(slot(&keys), deadline, Patience::Once, &[step]).await?;
        self.shown(own, &keys, parts(&said)?.0, said.sent)
    }

    /// Reads whole queues.
    async fn whole(&self, names: &[LockName], deadline: Moment) -> FaultResult<Vec<Row>> {
        let mut rows = Vec::with_capacity(names.len());
        // In a cluster one request reads one queue, because queues are in different slots.
        for some in names.chunks(if self.service.config.is_cluster() { 1 } else { QUEUES_AT_ONCE }) {
            let keys = self.keys(some)?;
            let read = on_queues("read", &keys, NO_CLAIM, Mode::Exclusive, &["1".to_owned()]);
            let said = self.service.call(slot(&keys), deadline, Patience::Once, &[read]).await?;
            rows.extend(Row::all(parts(&said)?.0, &keys)?.1);
        }
        Ok(rows)
    }
}

/// Returns the cluster slot of these keys.
fn slot(keys: &[LockKeys]) -> Option<u16> {
    keys.first().map(|keys| keys.slot)
}

/// Returns the first reply, and the others.
fn parts(said: &client::Answer) -> FaultResult<(&Value, &[Value])> {
    said.replies.split_first().ok_or_else(|| fault::nonsense("no reply"))
}

impl ServiceClient for RedisStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities::of(NAME)
    }

    fn identity(&self) -> String {
        self.service.config.identity()
    }

    fn connects_as(&self, rank: Rank) {
        self.service.link.connects_as(rank);
    }

    fn has_connected(&self) -> bool {
        self.service.link.has_connected()
    }
}

#[async_trait]
impl Store for RedisStore {
    async fn append(&self, request: &Request, deadline: Moment) -> FaultResult<(Own, Answer)> {
        let Request { id, names, mode, ttl, .. } = request;
        let keys = self.keys(names)?;
        let first = keys.first().ok_or_else(|| Fault::new(ErrorKind::Invalid, "a claim needs a name"))?;
        if self.service.config.is_cluster() && keys.iter().any(|keys| keys.slot != first.slot) {
            let reason = Reason::from("these locks lie in different slots of the Redis Cluster");
            return Err(Fault::new(ErrorKind::Invalid, reason.advising(ONE_SLOT)));
        }
        let more = [Record::of(request, *ttl).to_text(), millis(*ttl)];
        let mut steps = vec![on_queues("append", &keys, *id, *mode, &more)];
        if keys.len() > 1 {
            // The first name is read last: a claim that ended meanwhile is gone from all of them.
            let each = keys[1..].iter().chain([first]).map(std::slice::from_ref);
            steps.extend(each.map(|keys| on_queues("read", keys, *id, *mode, &["0".to_owned()])));
        }
        let said = self.service.call(Some(first.slot), deadline, Patience::Once, &steps).await?;
        let (reply, others) = parts(&said)?;
        let found = others.iter().zip(keys[1..].iter().chain([first])).map(|(reply, keys)| {
            let (_, rows) = Row::all(reply, std::slice::from_ref(keys))?;
            Ok(rows.iter().any(|row| row.queue.items.iter().any(|item| item.id == *id)))
        });
        if is_spread(&found.collect::<FaultResult<Vec<_>>>()?) {
            let (id, names) = (*id, names.clone());
            let withdrawal = Step::Remove { id, names, found: Vec::new(), note: None };
            self.commit(None, &[], &[withdrawal], deadline).await?;
            let reason = Reason::from("a proxy keeps these locks on different servers");
            return Err(Fault::new(ErrorKind::Invalid, reason.advising(ONE_SERVER)));
        }
        let mut own = Own { id: *id, names: names.clone(), mode: *mode, ttl: *ttl, keys: Vec::new() };
        let (_, answer) = self.shown(&own, &keys, reply, said.sent)?;
        let key = |queue: &Queue| {
            let own = queue.items.iter().find(|item| item.id == *id && !item.foreign);
            // A barred claim has no entry, and is found gone.
            own.map_or_else(|| Key { order: 0, text: id.to_string() }, |item| item.key.clone())
        };
        own.keys = answer.queues.iter().map(key).collect();
        self.local(*id).renewed(said.sent);
        Ok((own, answer))
    }

    async fn read(&self, names: &[LockName], extent: Extent<'_>, deadline: Moment) -> FaultResult<Answer> {
        if let Extent::Needed(own) = extent {
            return Ok(self.step(own, "read", &["0".to_owned()], deadline).await?.1);
        }
        let sent = self.service.clock.now();
        Ok(answer(self.whole(names, deadline).await?, sent))
    }

    async fn commit(
        &self,
        own: Option<&Own>,
        when: &[(LockName, Key)],
        steps: &[Step],
        deadline: Moment,
    ) -> FaultResult<(bool, Answer)> {
        let mut all: Vec<LockName> = own.map(|own| own.names.clone()).unwrap_or_default();
        let of_steps = steps.iter().flat_map(|step| match step {
            Step::Remove { names, .. } => names.as_slice(),
            Step::RemoveForeign(name, _) | Step::Change(name, ..) => std::slice::from_ref(name),
            Step::Hold { .. } | Step::Success { .. } => &[],
        });
        for name in when.iter().map(|(name, _)| name).chain(of_steps) {
            if !all.contains(name) {
                all.push(name.clone());
            }
        }
        let (keys, now) = (self.keys(&all)?, self.service.clock.now());
        let at = |name: &LockName| all.iter().position(|other| other == name).map_or(0, |at| at + 1);
        let is_leaving = matches!((own, steps), (Some(own), [Step::Remove { id, .. }, ..]) if *id == own.id);
        let owned = own.filter(|_| !is_leaving).map(|own| own.names.iter().zip(&own.keys));
        let when = when.iter().map(|(name, key)| (name, key)).chain(owned.into_iter().flatten());
        let when = when.map(|(name, key)| json!([at(name), key.text, key.order.to_string()]));
        let list = steps.iter().map(|step| written(step, own.is_some(), &at));
        let lists =
            [json!(when.collect::<Vec<_>>()).to_string(), json!(list.collect::<Vec<_>>()).to_string()];
        if let (Some(own), [Step::Hold { .. }]) = (own, steps) {
            return self.step(own, "commit", &lists, deadline).await;
        }
        let (id, mode) = own.map_or((NO_CLAIM, Mode::Exclusive), |own| (own.id, own.mode));
        let step = on_queues("commit", &keys, id, mode, &lists);
        let said = self.service.call(slot(&keys), deadline, Patience::Deadline, &[step]).await?;
        // The server does not report the client's own changes.
        said.connection.nudge();
        Ok((Row::all(parts(&said)?.0, &keys)?.0, answer(Vec::new(), now)))
    }

    async fn renew(&self, own: &Own, _: bool, deadline: Moment) -> FaultResult<Option<(Moment, Answer)>> {
        let (keys, begun) = (self.keys(&own.names)?, self.service.clock.now());
        let known = locked(&self.claims).get(&own.id).map(Arc::clone);
        let renewal = on_queues("renew", &keys, own.id, own.mode, &[millis(own.ttl)]);
        let again = known.iter().flat_map(|local| local.again());
        let steps: Vec<Call> = [renewal].into_iter().chain(again).collect();
        let said = self.service.call(slot(&keys), deadline, Patience::Once, &steps).await?;
        let (first, armed) = parts(&said)?;
        let (alive, rows) = Row::all(first, &keys)?;
        if let Some(local) = known {
            if alive {
                local.renewed(begun);
            }
            local.rearm(said.heard.as_ref(), armed);
        }
        Ok(alive.then(|| (begun, answer(rows, begun))))
    }

    async fn changed(&self, watched: Watched<'_>, _: Seen, until: Moment) -> FaultResult<()> {
        match watched {
            Watched::Claim { own, on } => {
                let keys = self.keys(&own.names)?;
                self.local(own.id).changed(&self.service, &keys, own, on, until).await
            }
            // The server would report each renewal, too.
            Watched::Queue(_) => {
                let clock = self.service.clock;
                clock.sleep_until(until.min(clock.now() + POLL)).await;
                Ok(())
            }
        }
    }

    async fn why_gone(&self, own: &Own, _: bool, deadline: Moment) -> FaultResult<Option<Note>> {
        Ok(self.step(own, "read", &["0".to_owned()], deadline).await?.1.note)
    }

    async fn list(&self, prefix: &str, deadline: Moment) -> FaultResult<Vec<Queue>> {
        let mut names = names::all(&self.service, &self.naming, deadline).await?;
        names.retain(|name| name.as_str().starts_with(prefix));
        Ok(self.whole(&names, deadline).await?.into_iter().map(|row| row.queue).collect())
    }

    async fn last_success(&self, name: &LockName, deadline: Moment) -> FaultResult<Option<Duration>> {
        let rows = self.whole(std::slice::from_ref(name), deadline).await?;
        Ok(rows.first().and_then(|row| row.success))
    }

    fn abandon(&self, id: ClaimId) {
        locked(&self.claims).remove(&id);
    }

    async fn examine(&self, deadline: Moment) -> FaultResult<Examination> {
        // Over a separate connection, because the trials would disturb listeners.
        examine::examine(&self.service.apart(), deadline).await
    }

    async fn everywhere(&self, name: LockName, deadline: Moment) -> FaultResult<Vec<LockName>> {
        names::everywhere(&self.service, &self.naming, name, deadline).await
    }

    async fn forget(&self, name: &LockName, deadline: Moment) -> FaultResult<()> {
        let keys = self.naming.of(name)?;
        let step = Call::command(["DEL", &keys.counters()]);
        self.service.one(&To::Slot(Some(keys.slot)), deadline, Patience::Once, step).await.map(drop)
    }
}
