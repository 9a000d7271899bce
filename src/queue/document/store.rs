//! The document as a [`Store`] of the engine.

use std::time::{Duration, SystemTime};

use async_trait::async_trait;

use super::change::{DocumentStore, Found, contended, is_at, seen};
use super::items::Which;
use super::queue::{Document, EMPTY_LIFE};
use super::watch::MARGIN;
use crate::backend::record::Record;
use crate::backend::{Capabilities, Examination, ServiceClient, success};
use crate::lock::{ClaimId, ErrorKind, LockName, LossReason, Moment, Request};
use crate::net::fault::{Fault, FaultResult};
use crate::net::rank::Rank;
use crate::queue::store::{Answer, Change, Extent, Key, Note, Own, Queue, Seen, Step, Store, Watched};
use crate::sync::locked;

/// How long the note on the end of a claim is kept.
const NOTED: Duration = Duration::from_secs(120);
/// The longest ttl: less than 30 days, which memcached would take for a date, since an item is kept a little longer.
const LONGEST_TTL: Duration = Duration::from_secs(29 * 24 * 3600);
/// How far the store's clock may lag.
const CLOCK: Duration = Duration::from_secs(2);

/// Returns milliseconds since 1970 by the clock of this host, for display only.
fn wall_clock() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Returns the only name of a claim.
///
/// Errors: `Invalid` for several names, since no step changes several documents.
pub(super) fn only(names: &[LockName]) -> FaultResult<&LockName> {
    let [name] = names else {
        let why = "it cannot acquire several locks in one step; use one --name";
        return Err(Fault::new(ErrorKind::Invalid, why));
    };
    Ok(name)
}

/// Makes one step in `document`. Returns whether it can be made.
fn apply(document: &mut Document, own: Option<&Own>, step: &Step) -> bool {
    match step {
        Step::Hold { slots, .. } => {
            let slot = slots.first().copied().flatten();
            let Some(at) = own.and_then(|own| document.position(own.id)) else { return false };
            if document.claims[at].slot.is_none() {
                if slot.is_some() && document.claims.iter().any(|place| place.slot == slot) {
                    return false;
                }
                document.claims[at].slot = slot;
            }
        }
        Step::Remove { id, .. } => document.remove(*id),
        Step::Change(_, item, change) => {
            let found = document.claims.iter_mut().find(|place| is_at(place, &item.key));
            let Some(place) = found else { return false };
            match change {
                Change::Asked(by) => place.asked = Some(by.clone()),
                Change::Label(text) => place.about.holder.label = Some(text.clone()),
                Change::HeldFor(length) => {
                    let length = u64::try_from(length.as_millis()).unwrap_or(u64::MAX);
                    place.held_ms = Some(wall_clock().saturating_sub(length));
                }
            }
        }
        Step::RemoveForeign(..) | Step::Success { .. } => {}
    }
    true
}

impl DocumentStore {
    /// Returns the time by the store's clock, and that at which the last successful run acquired the lock.
    async fn success(&self, name: &LockName, deadline: Moment) -> FaultResult<(Duration, Option<Duration>)> {
        let last = self.items.read(Which::Success(name), deadline);
        let (now, last) = tokio::try_join!(self.items.time(deadline), last)?;
        let last = last.and_then(|last| std::str::from_utf8(&last.bytes).ok()?.parse().ok());
        Ok((Duration::from_millis(now), last.map(Duration::from_millis)))
    }

    /// Records the success of the run that acquired so long ago, for the next run to find. Claims that held together may
    /// overwrite each other's record. Each of them is of a run that succeeded.
    async fn record_success(&self, name: &LockName, ago: Duration, deadline: Moment) -> FaultResult<()> {
        let (now, last) = self.success(name, deadline).await?;
        let acquired = now.saturating_sub(ago);
        // A later time written by another client stays.
        let acquired = last.map_or(acquired, |last| success::latest(now, last, acquired));
        let text = acquired.as_millis().to_string();
        self.items.write(Which::Success(name), text.as_bytes(), None, deadline).await
    }

    /// Removes another program's item, if it is still the one with this key.
    async fn remove_foreign(&self, name: &LockName, key: &Key, deadline: Moment) -> FaultResult<bool> {
        while let Found::Foreign(stored) = self.look(name, deadline).await?
            && stored.version.write == key.text
        {
            if self.items.swap(name, &stored.version, None, deadline).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Errors: `Full` if `document` takes the room that is reserved for later changes of its entries.
    fn check_room(&self, document: &Document) -> FaultResult<()> {
        let (size, room) = (document.to_bytes().len(), self.items.room());
        if size <= room / 16 * 15 {
            return Ok(());
        }
        let claims = document.claims.len().saturating_sub(1);
        let why = format!(
            "there is no room for another claim: {claims} claims take {size} of the {room} bytes that an item may have"
        );
        Err(Fault::new(ErrorKind::Full, why))
    }
}

impl ServiceClient for DocumentStore {
    fn capabilities(&self) -> Capabilities {
        self.items.capabilities()
    }

    fn identity(&self) -> String {
        self.items.identity()
    }

    fn connects_as(&self, rank: Rank) {
        self.items.connects_as(rank);
    }

    fn has_connected(&self) -> bool {
        self.items.has_connected()
    }
}

#[async_trait]
impl Store for DocumentStore {
    fn reports_changes(&self) -> bool {
        false
    }

    async fn append(&self, request: &Request, deadline: Moment) -> FaultResult<(Own, Answer)> {
        let (name, id) = (only(&request.names)?, request.id);
        let ttl = request.ttl.min(LONGEST_TTL);
        let mut own = Own { id, names: request.names.clone(), mode: request.mode, ttl, keys: Vec::new() };
        let empty = Document::empty(name, id).to_bytes();
        loop {
            // Every claim in the item that is read here drew its number before this one does.
            let sent = self.clock.now();
            let (item, number) = self.items.arrive(name, &empty, EMPTY_LIFE, deadline).await?;
            let found = self.take(name, Some(item));
            let Found::Queue(mut document, version) = found else {
                let answer = self.answer(&own, name, &found, sent);
                return Ok((own, answer));
            };
            let highest = document.highest_token();
            let token = match number.filter(|number| *number > highest) {
                Some(number) => number,
                // The store has dropped the counter, and perhaps not the queue.
                None => self.items.number(name, highest, deadline).await?,
            };
            let is_alone = document.claims.iter().all(|place| place.id() == Some(id));
            // The time is read after the queue, so the noted time is not before the observation.
            if !is_alone && let Ok(now) = self.items.time(deadline).await {
                for dead in document.observe(id, now, MARGIN + CLOCK) {
                    document.remove(dead);
                }
            }
            let token = document.enter(id, Record::of(request, ttl), token, wall_clock());
            self.check_room(&document)?;
            let sent = self.clock.now();
            if self.put(name, &version, &document, deadline).await? {
                own.keys = vec![Key { order: token, text: id.to_string() }];
                locked(&self.leases).insert(id, sent + ttl);
                let answer = self.answer(&own, name, &Found::Queue(document, version), sent);
                return Ok((own, answer));
            }
            if self.clock.now() >= deadline {
                return Err(contended());
            }
        }
    }

    async fn read(&self, names: &[LockName], extent: Extent<'_>, deadline: Moment) -> FaultResult<Answer> {
        let sent = self.clock.now();
        let Extent::Needed(own) = extent else {
            let (mut queues, mut mark) = (Vec::new(), 0);
            for name in names {
                let found = self.look(name, deadline).await?;
                mark = seen(&found, None);
                queues.push(self.queue(name, &found, extent == Extent::Shown));
            }
            return Ok(Answer { queues, note: None, sent, seen: mark });
        };
        let name = only(names)?;
        let until = deadline.min(self.expires(own.id));
        let tidy = |document: &mut Document, _: bool| {
            let now = self.clock.now();
            let is_in = document.position(own.id).is_some();
            let watches = locked(&self.watches);
            let dead = watches.get(name).filter(|_| is_in).map(|watch| watch.dead(own.id, now));
            let dead = dead.unwrap_or_default();
            for id in &dead {
                document.remove(*id);
            }
            Ok(!dead.is_empty())
        };
        let found = match self.change(name, until, tidy).await {
            Ok(found) => found,
            // Its lease has ended before an answer.
            Err(_) if self.has_expired(own.id) => Found::Nothing,
            Err(fault) => return Err(fault),
        };
        Ok(self.answer(own, name, &found, sent))
    }

    async fn commit(
        &self,
        own: Option<&Own>,
        when: &[(LockName, Key)],
        steps: &[Step],
        deadline: Moment,
    ) -> FaultResult<(bool, Answer)> {
        let (sent, mut done) = (self.clock.now(), false);
        let nothing = Answer { queues: Vec::new(), note: None, sent, seen: 0 };
        // A claim has one name.
        let (name, step) = match steps {
            [Step::RemoveForeign(name, key)] => {
                return Ok((self.remove_foreign(name, key, deadline).await?, nothing));
            }
            [step @ Step::Change(name, ..)] => (Some(name), step),
            [step @ Step::Remove { id, names, note, .. }, further @ ..] => {
                if let (Some(name), Some(note)) = (names.first(), note) {
                    let note = serde_json::to_vec(&note.stored()).unwrap_or_default();
                    self.items.write(Which::Gone(name, *id), &note, Some(NOTED), deadline).await?;
                }
                if let (Some(name), [Step::Success { held_for }]) = (names.first(), further) {
                    // The other half of the time is for the release, which other claims wait for. If the record fails, the next
                    // run is one too many.
                    let until = sent + deadline.since(sent) / 2;
                    drop(self.record_success(name, *held_for, until).await);
                }
                (names.first(), step)
            }
            [step, ..] => (own.and_then(|own| own.names.first()), step),
            [] => return Ok((false, nothing)),
        };
        let Some(name) = name else { return Ok((false, nothing)) };
        let leaver = match step {
            Step::Remove { id, .. } => own.filter(|own| own.id == *id),
            _ => None,
        };
        let edit = |document: &mut Document, again: bool| {
            let has = |(_, key): &(LockName, Key)| document.claims.iter().any(|place| is_at(place, key));
            let lives = |own: &Own| document.position(own.id).is_some() && !self.has_expired(own.id);
            if (leaver.is_some() || own.is_none_or(lives)) && when.iter().all(has) {
                done = apply(document, own, step);
                if matches!(step, Step::Change(_, _, Change::Label(_))) {
                    self.check_room(document)?;
                }
                return Ok(done);
            }
            // An earlier attempt with a lost answer may have removed what was there.
            done = again && matches!(step, Step::Remove { id, .. } if document.position(*id).is_none());
            Ok(false)
        };
        let found = self.change(name, deadline, edit).await?;
        if let Some(own) = leaver {
            locked(&self.leases).remove(&own.id);
        }
        let answer = own.filter(|_| leaver.is_none()).map(|own| self.answer(own, name, &found, sent));
        Ok((done, answer.unwrap_or(nothing)))
    }

    async fn renew(&self, own: &Own, _: bool, deadline: Moment) -> FaultResult<Option<(Moment, Answer)>> {
        let (sent, name) = (self.clock.now(), only(&own.names)?);
        let mut renewed = false;
        let raise = |document: &mut Document, _: bool| {
            renewed = !self.has_expired(own.id) && document.renewed(own.id).is_some();
            Ok(renewed)
        };
        let found = self.change(name, deadline, raise).await?;
        if !renewed {
            return Ok(None);
        }
        if let Some(expires) = locked(&self.leases).get_mut(&own.id) {
            *expires = (*expires).max(sent + own.ttl);
        }
        Ok(Some((sent, self.answer(own, name, &found, sent))))
    }

    async fn changed(&self, watched: Watched<'_>, seen: Seen, until: Moment) -> FaultResult<()> {
        tokio::select! {
            () = self.clock.sleep_until(until) => Ok(()),
            changed = self.poll(watched, seen) => changed,
        }
    }

    async fn why_gone(&self, own: &Own, held: bool, deadline: Moment) -> FaultResult<Option<Note>> {
        if self.has_expired(own.id) {
            return Ok(None);
        }
        let name = only(&own.names)?;
        let note = self.items.read(Which::Gone(name, own.id), deadline).await?;
        let removal = |(why, by): (String, _)| Note::removal(&why, by);
        let note = note.map(|note| serde_json::from_slice(&note.bytes).ok().and_then(removal));
        let note = note.map(|note| note.unwrap_or(Note::Evicted(None)));
        let note = note.filter(|note| !(held && matches!(note, Note::Superseded(_))));
        if note.is_some() || self.look(name, deadline).await?.document().is_some() {
            return Ok(note);
        }
        let service = self.items.capabilities().backend;
        let why = format!(
            "{service} no longer has the item of the lock: it was evicted, deleted or overwritten, or {service} was restarted"
        );
        Ok(Some(Note::Forgotten(LossReason::Replaced(why))))
    }

    async fn list(&self, prefix: &str, deadline: Moment) -> FaultResult<Vec<Queue>> {
        let mut all = Vec::new();
        for (key, item) in self.items.all(deadline).await? {
            let Some(document) = Document::parse(&item.bytes) else { continue };
            let Ok(name) = LockName::new(document.lock.clone()) else { continue };
            // A lock of the same name under another prefix has another key.
            let is_own = self.items.key(Which::Queue(&name)).is_ok_and(|own| own == key);
            if is_own && name.as_str().starts_with(prefix) && !document.claims.is_empty() {
                all.push(self.queue(&name, &Found::Queue(document, item.version), false));
            }
        }
        all.sort_by(|one, other| one.name.cmp(&other.name));
        all.dedup_by(|one, other| one.name == other.name);
        Ok(all)
    }

    async fn last_success(&self, name: &LockName, deadline: Moment) -> FaultResult<Option<Duration>> {
        let (now, last) = self.success(name, deadline).await?;
        Ok(last.and_then(|acquired| success::age(now, acquired)))
    }

    fn abandon(&self, id: ClaimId) {
        locked(&self.leases).remove(&id);
    }

    async fn examine(&self, deadline: Moment) -> FaultResult<Examination> {
        self.items.examine(deadline).await
    }

    async fn forget(&self, name: &LockName, deadline: Moment) -> FaultResult<()> {
        self.items.forget(name, deadline).await
    }
}
