//! A store in memory, on the runtime's clock, with programmed faults.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;

use super::store::{About, Answer, Change, Extent, Item, Key, Note, Own, Queue, Seen, Step, Store, Watched};
use crate::backend::record::Record;
use crate::backend::{Capabilities, Examination, TokenStrength};
use crate::clock::Clock;
use crate::lock::{ClaimId, FencingToken, Holder, LockName, Mode, Moment, Request};
use crate::net::fault::{Fault, FaultResult};
use crate::sync::locked;

/// The fate of one request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fate {
    Answered,
    /// It is not executed.
    Lost,
    /// It is executed, and its answer is lost.
    Unanswered,
    /// Its answer is lost, and it is executed after this time.
    Late(Duration),
}

#[derive(Debug)]
struct Stored {
    item: Item,
    dies_at: Moment,
    ttl: Duration,
    asked: Option<Holder>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    queues: BTreeMap<LockName, Vec<Stored>>,
    notes: HashMap<ClaimId, Note>,
    barred: HashSet<ClaimId>,
    drawn: u64,
    held_for: Option<Duration>,
    successes: Vec<Duration>,
}

/// The store.
#[derive(Debug)]
pub(super) struct Memory {
    state: Arc<Mutex<State>>,
    clock: Clock,
    revision: Arc<watch::Sender<Seen>>,
    /// The fates of the next requests, the last one first; all others are answered.
    fates: Mutex<Vec<Fate>>,
    /// The requests so far.
    pub(super) requests: Mutex<Vec<&'static str>>,
    /// Whether a claim that waited draws its token by a step.
    late_tokens: bool,
}

impl State {
    fn draw(&mut self) -> Option<FencingToken> {
        self.drawn += 1;
        FencingToken::new(self.drawn)
    }

    fn bury(&mut self, now: Moment) {
        for queue in self.queues.values_mut() {
            queue.retain(|stored| stored.dies_at > now);
        }
    }

    fn find(&mut self, name: &LockName, key: &Key) -> Option<&mut Stored> {
        self.queues.get_mut(name)?.iter_mut().find(|stored| stored.item.key == *key)
    }

    fn has(&mut self, name: &LockName, key: &Key) -> bool {
        self.find(name, key).is_some()
    }

    fn show(&mut self, names: &[LockName], now: Moment) -> Vec<Queue> {
        let queue = |name: &LockName| {
            let stored = self.queues.get(name).map_or(&[][..], Vec::as_slice).iter().enumerate();
            let item = |(at, stored): (usize, &Stored)| {
                let left = Some(stored.dies_at.since(now));
                Item { at, left, ..stored.item.clone() }
            };
            Queue { name: name.clone(), items: stored.map(item).collect() }
        };
        names.iter().map(queue).collect()
    }

    fn append(&mut self, request: &Request, now: Moment) -> (Own, Option<Note>) {
        let Request { id, names, mode, ttl, .. } = request.clone();
        let mut own = Own { id, names, mode, ttl, keys: Vec::new() };
        if self.barred.contains(&id) {
            own.keys = own.names.iter().map(|_| Key { order: 0, text: String::new() }).collect();
            return (own, self.notes.get(&id).cloned());
        }
        let token = self.draw();
        for name in &own.names {
            let queue = self.queues.entry(name.clone()).or_default();
            if let Some(stored) = queue.iter_mut().find(|stored| stored.item.id == id) {
                stored.dies_at = now + ttl;
                own.keys.push(stored.item.key.clone());
                continue;
            }
            let key = Key { order: self.drawn, text: id.to_string() };
            own.keys.push(key.clone());
            let entry = Record::of(request, ttl).entry();
            let names = request.names.clone();
            let about = About { entry, held_since: None, names, ttl, supersede: request.supersede };
            let (slot, left, about) = (None, None, Some(Box::new(about)));
            let item = Item { at: 0, key, id, foreign: false, mode: Some(mode), slot, token, left, about };
            queue.push(Stored { item, dies_at: now + ttl, ttl, asked: None });
        }
        (own, None)
    }

    fn commit(&mut self, own: Option<&Own>, when: &[(LockName, Key)], steps: &[Step]) -> bool {
        let is_removal =
            |step: &Step| matches!(step, Step::Remove { id, .. } if own.is_some_and(|own| own.id == *id));
        if !when.iter().all(|(name, key)| self.has(name, key)) {
            return false;
        }
        let stands =
            own.is_none_or(|own| own.names.iter().zip(&own.keys).all(|(name, key)| self.has(name, key)));
        if !stands && !steps.iter().any(is_removal) {
            return false;
        }
        steps.iter().all(|step| self.step(own, step))
    }

    fn step(&mut self, own: Option<&Own>, step: &Step) -> bool {
        match step {
            Step::Hold { slots, seen } => {
                let Some(own) = own else { return false };
                let first = self.find(&own.names[0], &own.keys[0]).and_then(|stored| stored.item.token);
                let free = |state: &Self| {
                    own.names.iter().zip(slots).all(|(name, slot)| {
                        slot.is_none() || state.queues[name].iter().all(|stored| stored.item.slot != *slot)
                    })
                };
                if first != *seen || !free(self) {
                    return false;
                }
                let token = self.draw();
                for ((name, key), slot) in own.names.iter().zip(&own.keys).zip(slots) {
                    let Some(stored) = self.find(name, key) else { return false };
                    stored.item.slot = *slot;
                    if slot.is_none() {
                        stored.item.token = token;
                    }
                }
            }
            Step::Remove { id, names, note, .. } => {
                for name in names {
                    self.queues.entry(name.clone()).or_default().retain(|stored| stored.item.id != *id);
                }
                self.notes.extend(note.clone().map(|note| (*id, note)));
                self.barred.insert(*id);
            }
            Step::RemoveForeign(name, key) => {
                self.queues.entry(name.clone()).or_default().retain(|stored| stored.item.key != *key);
            }
            Step::Change(name, item, change) => {
                let Some(stored) = self.find(name, &item.key) else { return false };
                match change {
                    Change::Asked(by) => stored.asked = Some(by.clone()),
                    Change::Label(text) => {
                        if let Some(about) = &mut stored.item.about {
                            about.entry.label = Some(text.clone());
                        }
                    }
                    Change::HeldFor(length) => self.held_for = Some(*length),
                }
            }
            Step::Success { held_for } => self.successes.push(*held_for),
        }
        true
    }

    fn note(&mut self, own: &Own) -> Option<Note> {
        let asked = self.find(own.names.first()?, own.keys.first()?).and_then(|stored| stored.asked.clone());
        asked.map(Note::Asked).or_else(|| self.notes.get(&own.id).cloned())
    }
}

impl Memory {
    pub(super) fn new(clock: Clock, late_tokens: bool) -> Arc<Self> {
        Arc::new(Self {
            state: Arc::default(),
            clock,
            revision: Arc::new(watch::Sender::new(0)),
            fates: Mutex::default(),
            requests: Mutex::default(),
            late_tokens,
        })
    }

    /// Sets the fates of the next requests.
    pub(super) fn expect(&self, fates: &[Fate]) {
        *locked(&self.fates) = fates.iter().rev().copied().collect();
    }

    /// Returns how long a claim has held, as recorded last.
    pub(super) fn held_for(&self) -> Option<Duration> {
        locked(&self.state).held_for
    }

    /// Returns the lengths of the holds that were recorded as successes.
    pub(super) fn successes(&self) -> Vec<Duration> {
        locked(&self.state).successes.clone()
    }

    /// Executes one request by its fate.
    async fn request<T: Send + 'static>(
        &self,
        what: &'static str,
        execute: impl FnOnce(&mut State, Moment) -> T + Send + 'static,
    ) -> FaultResult<T> {
        locked(&self.requests).push(what);
        let fate = locked(&self.fates).pop().unwrap_or(Fate::Answered);
        tokio::time::sleep(Duration::from_millis(1)).await;
        let (state, clock, revision) = (Arc::clone(&self.state), self.clock, Arc::clone(&self.revision));
        let run = move || {
            let mut state = locked(&state);
            state.bury(clock.now());
            let result = execute(&mut state, clock.now());
            if matches!(what, "append" | "commit") {
                revision.send_modify(|revision| *revision += 1);
            }
            result
        };
        match fate {
            Fate::Answered => return Ok(run()),
            Fate::Unanswered => drop(run()),
            Fate::Lost => {}
            Fate::Late(after) => drop(tokio::spawn(async move {
                tokio::time::sleep(after).await;
                drop(run());
            })),
        }
        Err(Fault::unavailable("no answer"))
    }

    fn answer(&self, queues: Vec<Queue>, note: Option<Note>, sent: Moment) -> Answer {
        Answer { queues, note, sent, seen: *self.revision.borrow() }
    }
}

#[async_trait]
impl Store for Memory {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            backend: "memory",
            queue: true,
            shared: true,
            token: TokenStrength::Durable,
            leased: true,
            renewals_per_ttl: 3,
            look_while_running: false,
            abandoned_bound: Duration::ZERO,
        }
    }

    fn hold_is_a_step(&self, mode: Mode, waited: bool) -> bool {
        matches!(mode, Mode::Slots(_)) || (waited && self.late_tokens)
    }

    async fn append(&self, request: &Request, _: Moment) -> FaultResult<(Own, Answer)> {
        let (request, sent) = (request.clone(), self.clock.now());
        let appended = move |state: &mut State, now| {
            let (own, note) = state.append(&request, now);
            (state.show(&own.names, now), own, note)
        };
        let (queues, own, note) = self.request("append", appended).await?;
        Ok((own, self.answer(queues, note, sent)))
    }

    async fn read(&self, names: &[LockName], extent: Extent<'_>, _: Moment) -> FaultResult<Answer> {
        let (names, sent) = (names.to_vec(), self.clock.now());
        let own = if let Extent::Needed(own) = extent { Some(own.clone()) } else { None };
        let read =
            move |state: &mut State, now| (state.show(&names, now), own.and_then(|own| state.note(&own)));
        let (queues, note) = self.request("read", read).await?;
        Ok(self.answer(queues, note, sent))
    }

    async fn commit(
        &self,
        own: Option<&Own>,
        when: &[(LockName, Key)],
        steps: &[Step],
        _: Moment,
    ) -> FaultResult<(bool, Answer)> {
        let (own, when, steps, sent) = (own.cloned(), when.to_vec(), steps.to_vec(), self.clock.now());
        let commit = move |state: &mut State, now| {
            let done = state.commit(own.as_ref(), &when, &steps);
            let names = own.as_ref().map(|own| own.names.clone()).unwrap_or_default();
            (done, state.show(&names, now), own.and_then(|own| state.note(&own)))
        };
        let (done, queues, note) = self.request("commit", commit).await?;
        Ok((done, self.answer(queues, note, sent)))
    }

    async fn renew(&self, own: &Own, _: bool, _: Moment) -> FaultResult<Option<(Moment, Answer)>> {
        let (own, sent) = (own.clone(), self.clock.now());
        let renew = move |state: &mut State, now| {
            for (name, key) in own.names.iter().zip(&own.keys) {
                let stored = state.find(name, key)?;
                stored.dies_at = now + stored.ttl;
            }
            Some((state.show(&own.names, now), state.note(&own)))
        };
        let renewed = self.request("renew", renew).await?;
        Ok(renewed.map(|(queues, note)| (sent, self.answer(queues, note, sent))))
    }

    async fn changed(&self, _: Watched<'_>, seen: Seen, until: Moment) -> FaultResult<()> {
        let mut revision = self.revision.subscribe();
        tokio::select! {
            _ = revision.wait_for(|revision| *revision > seen) => {}
            () = self.clock.sleep_until(until) => {}
        }
        Ok(())
    }

    async fn why_gone(&self, own: &Own, _: bool, _: Moment) -> FaultResult<Option<Note>> {
        let id = own.id;
        self.request("note", move |state, _| state.notes.get(&id).cloned()).await
    }

    async fn list(&self, _: &str, _: Moment) -> FaultResult<Vec<Queue>> {
        self.request("list", |state, now| {
            let names: Vec<LockName> = state.queues.keys().cloned().collect();
            state.show(&names, now)
        })
        .await
    }

    async fn last_success(&self, _: &LockName, _: Moment) -> FaultResult<Option<Duration>> {
        Ok(self.successes().last().copied())
    }

    fn identity(&self) -> String {
        "memory".to_owned()
    }

    fn has_connected(&self) -> bool {
        true
    }

    async fn examine(&self, _: Moment) -> FaultResult<Examination> {
        Err(Fault::unavailable("there is no server"))
    }
}
