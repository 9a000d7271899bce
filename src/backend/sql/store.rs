//! The operations of the queues.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;

use super::dialect::{Dialect, Session};
use super::local::{Local, RENEWALS_PER_TTL, Waiting, Watcher};
use super::rows::{self, Shown, length};
use super::sessions::{Reply, Sessions};
use super::statements::{self, DONE, Statements};
use crate::backend::{Capabilities, Examination, ServiceClient, success};
use crate::clock::Clock;
use crate::lock::{ClaimId, LockName, Mode, Moment, Request};
use crate::net::fault::{Fault, FaultResult};
use crate::net::rank::Rank;
use crate::net::request::Patience;
use crate::queue::store::{Answer, Extent, Key, Note, Own, Queue, Seen, Step, Store, Watched};
use crate::sync::locked;

/// The queues in one database.
#[derive(Debug)]
pub(super) struct SqlStore {
    service: Sessions,
    claims: Mutex<HashMap<ClaimId, Arc<Local>>>,
    watchers: Mutex<HashMap<LockName, Arc<Watcher>>>,
}

impl SqlStore {
    /// Creates a client that has not connected yet.
    pub(super) fn new(dialect: Arc<dyn Dialect>, clock: Clock) -> Self {
        Self { service: Sessions::new(dialect, clock), claims: Mutex::default(), watchers: Mutex::default() }
    }

    fn dialect(&self) -> &dyn Dialect {
        &*self.service.dialect
    }

    fn statements(&self, names: &[LockName], id: ClaimId, mode: Mode) -> Statements<'_> {
        Statements::new(self.dialect(), names, id, mode)
    }

    fn of(&self, own: &Own) -> Statements<'_> {
        self.statements(&own.names, own.id, own.mode)
    }

    fn local(&self, id: ClaimId) -> Arc<Local> {
        Arc::clone(locked(&self.claims).entry(id).or_default())
    }

    fn watcher(&self, name: &LockName) -> Arc<Watcher> {
        let new = || Arc::new(Watcher::new(&self.service));
        Arc::clone(locked(&self.watchers).entry(name.clone()).or_insert_with(new))
    }

    /// Executes a step, with `patience`.
    async fn step(&self, sql: String, patience: Patience, deadline: Moment) -> FaultResult<Reply> {
        self.service.call(deadline, patience, |_: &Arc<dyn Session>| sql.clone()).await
    }

    /// Returns what `reply` shows to the own claim, and whether an entry in it has expired.
    fn shown(&self, reply: &Reply, own: &Own) -> (Answer, bool) {
        let shown = Shown::of(&reply.sets, &own.names, &own.id.to_string());
        let answer =
            Answer { queues: shown.queues, note: shown.note, sent: reply.sent, seen: reply.notified };
        self.local(own.id).learn(&answer, own, &reply.session);
        (answer, shown.has_dead)
    }

    async fn needed(&self, own: &Own, deadline: Moment) -> FaultResult<Answer> {
        let reply = self.service.read(deadline, &self.of(own).show()).await?;
        let (mut answer, mut has_dead) = self.shown(&reply, own);
        // Only a step may judge that an entry has expired.
        while has_dead {
            let reply = self.step(self.of(own).bury(), Patience::Once, deadline).await?;
            (answer, has_dead) = self.shown(&reply, own);
        }
        Ok(answer)
    }

    async fn hold(&self, own: &Own, slots: &[Option<u32>], deadline: Moment) -> FaultResult<(bool, Answer)> {
        let keys: Vec<_> = own.entries().collect();
        let reply = self.step(self.of(own).hold(&keys, slots), Patience::Once, deadline).await?;
        Ok((is_done(&reply)?, self.shown(&reply, own).0))
    }
}

fn is_done(reply: &Reply) -> FaultResult<bool> {
    rows::number(&reply.sets, DONE).map(|done| done > 0).ok_or_else(|| Fault::nonsense("no result of a step"))
}

impl ServiceClient for SqlStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities { renewals_per_ttl: RENEWALS_PER_TTL, ..Capabilities::of(self.dialect().kind().name) }
    }

    fn identity(&self) -> String {
        self.dialect().identity()
    }

    fn connects_as(&self, rank: Rank) {
        self.service.link.connects_as(rank);
    }

    fn has_connected(&self) -> bool {
        self.service.link.has_connected()
    }
}

#[async_trait]
impl Store for SqlStore {
    fn reports_changes(&self) -> bool {
        !self.dialect().listen(&[]).is_empty()
    }

    async fn append(&self, request: &Request, deadline: Moment) -> FaultResult<(Own, Answer)> {
        let Request { id, names, mode, ttl, .. } = request;
        let sql = self.statements(names, *id, *mode).append(request);
        let reply = self.step(sql, Patience::Once, deadline).await?;
        let mut own = Own { id: *id, names: names.clone(), mode: *mode, ttl: *ttl, keys: Vec::new() };
        self.local(*id).renewed(reply.sent);
        let (answer, _) = self.shown(&reply, &own);
        let text = id.to_string();
        let keys = answer.queues.iter().map(|queue| {
            let own = queue.items.iter().find(|item| item.key.text == text).map(|item| item.key.clone());
            // A barred claim has no entry, and is found gone.
            own.unwrap_or_else(|| Key { order: 0, text: text.clone() })
        });
        own.keys = keys.collect();
        self.local(*id).learn(&answer, &own, &reply.session);
        Ok((own, answer))
    }

    async fn read(&self, names: &[LockName], extent: Extent<'_>, deadline: Moment) -> FaultResult<Answer> {
        if let Extent::Needed(own) = extent {
            return self.needed(own, deadline).await;
        }
        let question = statements::whole(self.dialect(), Some(names));
        // An observer reads over its own session, which reports the changes after that.
        let watcher = names.first().and_then(|name| locked(&self.watchers).get(name).map(Arc::clone));
        let watcher = watcher.filter(|_| extent == Extent::Shown);
        let service = watcher.as_ref().map_or(&self.service, |watcher| &watcher.service);
        let reply = service.read(deadline, &question).await?;
        Ok(Answer { queues: Shown::of(&reply.sets, names, "").queues, ..nothing(&reply) })
    }

    async fn commit(
        &self,
        own: Option<&Own>,
        when: &[(LockName, Key)],
        steps: &[Step],
        deadline: Moment,
    ) -> FaultResult<(bool, Answer)> {
        let mode = own.map_or(Mode::Exclusive, |own| own.mode);
        let reply = match (own, steps) {
            (Some(own), [Step::Hold { slots, .. }]) => return self.hold(own, slots, deadline).await,
            (own, [Step::Remove { id, names, note: Some(note), .. }]) => {
                let when: Vec<_> =
                    when.iter().cloned().chain(own.into_iter().flat_map(Own::entries)).collect();
                let sql = self.statements(names, *id, mode).remove(&when, note);
                self.step(sql, Patience::Deadline, deadline).await?
            }
            (own, [Step::Remove { id, names, .. }, further @ ..]) => {
                let statements = self.statements(names, *id, mode);
                let held_for = further.iter().find_map(|step| match step {
                    Step::Success { held_for } => Some(*held_for),
                    _ => None,
                });
                let batch = |_: &Arc<dyn Session>| {
                    // An attempt to enter that was given up may still be in flight.
                    statements.leave(held_for, own.is_none() || self.service.may_be_overtaken())
                };
                let reply = self.service.call(deadline, Patience::Deadline, batch).await?;
                self.abandon(*id);
                return Ok((true, nothing(&reply)));
            }
            (_, [Step::Change(name, item, change)]) => {
                let statements = self.statements(std::slice::from_ref(name), item.id, mode);
                let sql = statements.change(&(name.clone(), item.key.clone()), change);
                self.step(sql, Patience::Deadline, deadline).await?
            }
            // Only dlock creates rows in its tables.
            _ => return Err(Fault::nonsense("steps that do not go together")),
        };
        Ok((is_done(&reply)?, nothing(&reply)))
    }

    async fn renew(&self, own: &Own, waits: bool, deadline: Moment) -> FaultResult<Option<(Moment, Answer)>> {
        let reply = self.step(self.of(own).renew(own.ttl, waits), Patience::Once, deadline).await?;
        let (answer, _) = self.shown(&reply, own);
        let mut each = answer.queues.iter().zip(&own.keys);
        if !each.all(|(queue, key)| queue.items.iter().any(|item| item.key == *key)) {
            return Ok(None);
        }
        self.local(own.id).renewed(reply.sent);
        Ok(Some((reply.sent, answer)))
    }

    async fn changed(&self, watched: Watched<'_>, seen: Seen, until: Moment) -> FaultResult<()> {
        match watched {
            Watched::Claim { own, on } => {
                let local = self.local(own.id);
                let is_alone = locked(&self.claims).len() == 1;
                local.changed(Waiting { service: &self.service, own, on, is_alone }, seen, until).await
            }
            Watched::Queue(name) => self.watcher(name).changed(name, seen, until).await,
        }
    }

    async fn why_gone(&self, own: &Own, _: bool, deadline: Moment) -> FaultResult<Option<Note>> {
        let reply = self.service.read(deadline, &self.of(own).why_gone()).await?;
        let row = reply.sets.first().and_then(|set| set.first()).map(Vec::as_slice);
        let Some([Some(why), by]) = row else { return Ok(None) };
        let by = by.as_deref().and_then(|by| serde_json::from_str(by).ok());
        Ok(Note::removal(why, by))
    }

    async fn list(&self, prefix: &str, deadline: Moment) -> FaultResult<Vec<Queue>> {
        let reply = self.service.read(deadline, &statements::whole(self.dialect(), None)).await?;
        let mut names = rows::names(&reply.sets);
        names.retain(|name| name.as_str().starts_with(prefix));
        Ok(Shown::of(&reply.sets, &names, "").queues)
    }

    async fn last_success(&self, name: &LockName, deadline: Moment) -> FaultResult<Option<Duration>> {
        let question = statements::last_success(self.dialect(), name);
        let reply = self.service.read(deadline, &question).await?;
        let row = reply.sets.first().and_then(|set| set.first()).map(Vec::as_slice);
        let Some([Some(now), Some(acquired)]) = row else { return Ok(None) };
        Ok(length(now).zip(length(acquired)).and_then(|(now, at)| success::age(now, at)))
    }

    fn abandon(&self, id: ClaimId) {
        locked(&self.claims).remove(&id);
    }

    async fn examine(&self, deadline: Moment) -> FaultResult<Examination> {
        // Over a separate session, because a waiter may sleep over the other one.
        self.service.another().examine(deadline).await
    }

    async fn forget(&self, name: &LockName, deadline: Moment) -> FaultResult<()> {
        self.step(statements::forget(self.dialect(), name), Patience::Once, deadline).await.map(drop)
    }
}

/// Returns the answer to a step after which the own claim reads nothing.
fn nothing(reply: &Reply) -> Answer {
    Answer { queues: Vec::new(), note: None, sent: reply.sent, seen: reply.notified }
}
