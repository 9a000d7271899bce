//! The operations of the queues.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use redis::Value;
use serde_json::json;

use super::client::Client;
use super::connection::Heard;
use super::examine;
use super::fault::NAME;
use super::keys::{COUNTERS, LockKeys, Naming};
use super::names::{self, QUEUES_AT_ONCE};
use super::rows::Row;
use super::script::{Call, millis, names_of, on_queues, words};
use super::watch::{self, Armed, OPTIN, Watch};
use crate::backend::claim_state::POLL;
use crate::backend::observe::LOOK;
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

/// How long the removal of a claim may take that the server refused halfway.
const REMOVAL: Duration = Duration::from_secs(1);

/// The queues of one service under one prefix.
#[derive(Debug)]
pub(super) struct RedisStore {
    service: Client,
    naming: Naming,
    /// The watch of each claim of this client.
    claims: Mutex<HashMap<ClaimId, Arc<Watch>>>,
    /// The queues that this client observes, and where the server reports changes since they were read, if it does.
    observed: Mutex<HashMap<LockName, Option<Heard>>>,
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
        Self { service, naming, claims: Mutex::default(), observed: Mutex::default() }
    }

    fn watch(&self, id: ClaimId) -> Arc<Watch> {
        Arc::clone(locked(&self.claims).entry(id).or_default())
    }

    fn keys(&self, names: &[LockName]) -> FaultResult<Vec<LockKeys>> {
        names.iter().map(|name| self.naming.of(name)).collect()
    }

    /// Makes a step of the own claim.
    async fn step(
        &self,
        own: &Own,
        command: &str,
        more: &[String],
        deadline: Moment,
    ) -> FaultResult<(bool, Answer)> {
        let (keys, watch) = (self.keys(&own.names)?, self.watch(own.id));
        let armed = watch.armed();
        let mut steps = vec![on_queues(command, &keys, own.id, own.mode, more)];
        steps.extend(armed.iter().flat_map(Armed::steps));
        let said = self.service.call(deadline, Patience::Once, &steps).await?;
        watch.rearm(armed, &said);
        let (done, rows) = Row::all(&said, &keys)?;
        Ok((done, answer(rows, said.sent)))
    }

    /// Reads whole queues.
    async fn whole(&self, names: &[LockName], deadline: Moment) -> FaultResult<Vec<Row>> {
        let mut rows = Vec::with_capacity(names.len());
        // In a cluster one request reads one queue, because queues are in different slots.
        for some in names.chunks(if self.service.config.is_cluster() { 1 } else { QUEUES_AT_ONCE }) {
            let keys = self.keys(some)?;
            let read = on_queues("read", &keys, NO_CLAIM, Mode::Exclusive, &["1".to_owned()]);
            let is_observed = some.iter().any(|name| locked(&self.observed).contains_key(name));
            let steps: Vec<Call> = is_observed.then(watch::caching).into_iter().chain([read]).collect();
            let mut said = self.service.call(deadline, Patience::Once, &steps).await?;
            if is_observed {
                let is_refused = matches!(said.replies.remove(0), Value::ServerError(_));
                let heard = said.heard.clone().filter(|_| !is_refused);
                for name in some {
                    locked(&self.observed).entry(name.clone()).and_modify(|known| known.clone_from(&heard));
                }
            }
            rows.extend(Row::all(&said, &keys)?.1);
        }
        Ok(rows)
    }
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
        let mut own = Own { id: *id, names: names.clone(), mode: *mode, ttl: *ttl, keys: Vec::new() };
        let more = [Record::of(request, *ttl).to_text(), millis(*ttl)];
        let removal = Step::Remove { id: *id, names: names.clone(), found: Vec::new(), note: None };
        let (_, answer) = match self.step(&own, "append", &more, deadline).await {
            Ok(done) => done,
            Err(fault) => {
                // The server may have refused a later command of the script.
                if matches!(fault.kind, ErrorKind::Denied | ErrorKind::Corrupt) && self.has_connected() {
                    let soon = deadline.min(self.service.clock.now() + REMOVAL);
                    let _ = self.commit(Some(&own), &[], &[removal], soon).await;
                }
                return Err(fault);
            }
        };
        // A proxy chooses the server by the first name, and may have another server for the others.
        for name in &names[1..] {
            let alone = Own { names: vec![name.clone()], ..own.clone() };
            let (_, there) = self.step(&alone, "read", &["0".to_owned()], deadline).await?;
            if there.note.is_none() && there.queues[0].items.iter().all(|item| item.id != *id) {
                self.commit(None, &[], &[removal], deadline).await?;
                let reason = Reason::from("a proxy keeps these locks on different servers");
                return Err(Fault::new(ErrorKind::Invalid, reason.advising(ONE_SERVER)));
            }
        }
        let key = |queue: &Queue| {
            let own = queue.items.iter().find(|item| item.id == *id && !item.foreign);
            // A barred claim has no entry, and is found gone.
            own.map_or_else(|| Key { order: 0, text: id.to_string() }, |item| item.key.clone())
        };
        own.keys = answer.queues.iter().map(key).collect();
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
        let mut all = names_of(steps).to_vec();
        let own_names = own.iter().flat_map(|own| &own.names);
        for name in own_names.chain(when.iter().map(|(name, _)| name)) {
            if !all.contains(name) {
                all.push(name.clone());
            }
        }
        let (keys, now) = (self.keys(&all)?, self.service.clock.now());
        let is_leaving = matches!((own, steps), (Some(own), [Step::Remove { id, .. }, ..]) if *id == own.id);
        let entries = own.filter(|_| !is_leaving).into_iter().flat_map(Own::entries);
        let when = when.iter().cloned().chain(entries).map(|(name, key)| {
            let at = all.iter().position(|other| *other == name).map_or(0, |at| at + 1);
            json!([at, key.text, key.order.to_string()])
        });
        let when = json!(when.collect::<Vec<_>>()).to_string();
        let words: Vec<String> = [when].into_iter().chain(words(steps, own.is_some())).collect();
        if let (Some(own), [Step::Hold { .. }]) = (own, steps) {
            return self.step(own, "commit", &words, deadline).await;
        }
        let (id, mode) = own.map_or((NO_CLAIM, Mode::Exclusive), |own| (own.id, own.mode));
        let step = on_queues("commit", &keys, id, mode, &words);
        let said = self.service.call(deadline, Patience::Deadline, &[step]).await?;
        // The server does not report the client's own changes.
        said.connection.nudge();
        Ok((Row::all(&said, &keys)?.0, answer(Vec::new(), now)))
    }

    async fn renew(&self, own: &Own, _: bool, deadline: Moment) -> FaultResult<Option<(Moment, Answer)>> {
        let begun = self.service.clock.now();
        let (alive, answer) = self.step(own, "renew", &[millis(own.ttl)], deadline).await?;
        Ok(alive.then_some((begun, answer)))
    }

    async fn changed(&self, watched: Watched<'_>, _: Seen, until: Moment) -> FaultResult<()> {
        match watched {
            Watched::Claim { own, on } => {
                let reads = watch::reads(own, &self.keys(&own.names)?, on);
                self.watch(own.id).changed(&self.service, reads, own, until).await
            }
            Watched::Queue(name) => {
                let (clock, known) = (self.service.clock, locked(&self.observed).insert(name.clone(), None));
                if let Some(heard) = known.flatten() {
                    clock.by(until, heard.news()).await;
                } else {
                    self.service.listen(clock.now() + LOOK, OPTIN).await?;
                    clock.sleep_until(until.min(clock.now() + POLL)).await;
                }
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
        examine::examine(&self.service, deadline).await
    }

    async fn everywhere(&self, name: LockName, deadline: Moment) -> FaultResult<Vec<LockName>> {
        names::everywhere(&self.service, &self.naming, name, deadline).await
    }

    async fn forget(&self, name: &LockName, deadline: Moment) -> FaultResult<()> {
        let keys = self.naming.of(name)?;
        let step = Call::command(["DEL", &keys.side(COUNTERS)]);
        self.service.call(deadline, Patience::Once, &[step]).await.map(drop)
    }
}
