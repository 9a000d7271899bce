//! The entries, and the steps that change them.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use dlock::lock::{ClaimId, FencingToken, Holder, LockName, Mode, Moment, Request, queue};
use dlock::queue::store::{Change, Key, Note, Own, Step};

use super::Mutation;

/// One claim, in the queues of all its names.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) request: Request,
    pub(super) order: u64,
    /// For each name.
    pub(super) tokens: Vec<FencingToken>,
    /// For each name.
    pub(super) slots: Vec<Option<u32>>,
    pub(super) expires: Moment,
    pub(super) since: SystemTime,
    pub(super) held_since: Option<SystemTime>,
    pub(super) asked: Option<Holder>,
}

/// All queues of a server. Every method is one step of the service: nothing happens between its parts.
#[derive(Debug, Default)]
pub(super) struct Queues {
    pub(super) mutation: Option<Mutation>,
    /// In order of arrival.
    pub(super) entries: Vec<Entry>,
    ended: HashMap<ClaimId, Option<Note>>,
    successes: HashMap<LockName, Moment>,
    /// Grows with each visible change.
    pub(super) version: u64,
    last_order: u64,
    last_token: u64,
}

impl Queues {
    pub(super) fn new(mutation: Option<Mutation>) -> Self {
        Self { mutation, ..Self::default() }
    }

    pub(super) fn has(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    pub(super) fn position(&self, id: ClaimId) -> Option<usize> {
        self.entries.iter().position(|e| e.request.id == id)
    }

    /// Returns the indices of the entries in the queue of `name`, in order.
    pub(super) fn queue(&self, name: &LockName) -> Vec<usize> {
        let in_queue = |i: &usize| self.entries[*i].request.names.iter().any(|n| self.same(n, name));
        let mut queue: Vec<usize> = (0..self.entries.len()).filter(in_queue).collect();
        if self.has(Mutation::GrantsOutOfOrder) && queue.len() > 1 {
            queue[1..].reverse();
        }
        queue
    }

    pub(super) fn same(&self, a: &LockName, b: &LockName) -> bool {
        if self.has(Mutation::FoldsNames) { a.as_str().eq_ignore_ascii_case(b.as_str()) } else { a == b }
    }

    fn holds(&self, at: usize) -> bool {
        self.entries[at].request.names.iter().all(|name| {
            let queue = self.queue(name);
            let modes: Vec<Mode> = queue.iter().map(|i| self.entries[*i].request.mode).collect();
            queue[..queue::held(&modes)].contains(&at)
        })
    }

    pub(super) fn waits_or_holds(&self, own: Option<&Own>) -> bool {
        own.is_some_and(|own| self.position(own.id).is_some())
    }

    /// Ends expired entries.
    pub(super) fn settle(&mut self, now: Moment) {
        let keeps = |queues: &Self, at| queues.has(Mutation::KeepsAbandonedHolders) && queues.holds(at);
        let ends = |queues: &Self, at: &usize| queues.entries[*at].expires <= now && !keeps(queues, *at);
        while let Some(at) = (0..self.entries.len()).find(|at| ends(self, at)) {
            self.end(at, None);
        }
    }

    /// Returns the next instant at which time alone changes a queue.
    pub(super) fn next_expiry(&self, now: Moment) -> Moment {
        let all = self.entries.iter().map(|e| e.expires).filter(|when| *when > now);
        all.min().unwrap_or(Moment::NEVER)
    }

    /// Removes the entry from all queues, for ever.
    pub(super) fn end(&mut self, at: usize, note: Option<Note>) {
        let entry = self.entries.remove(at);
        self.ended.insert(entry.request.id, note);
        self.version += 1;
    }

    pub(super) fn note(&self, id: ClaimId) -> Option<Note> {
        self.ended.get(&id).cloned().flatten()
    }

    /// Joins the queues of all names. An entry that is there stays, and one that has ended stays out.
    pub(super) fn append(&mut self, request: &Request, sent: Moment, now: Moment) -> Own {
        let (id, mode, ttl) = (request.id, request.mode, request.ttl);
        let known = self.position(id).is_some() || self.ended.contains_key(&id);
        if !known || self.has(Mutation::EnterNotIdempotent) {
            self.push(request, sent, now);
        }
        let (order, names) = match self.position(id) {
            Some(at) => (self.entries[at].order, self.entries[at].request.names.clone()),
            None => (0, request.names.clone()),
        };
        let key = Key { order, text: id.to_string() };
        Own { id, mode, ttl, keys: vec![key; names.len()], names }
    }

    fn push(&mut self, request: &Request, sent: Moment, now: Moment) {
        let mut request = request.clone();
        if self.has(Mutation::TruncatesTexts) {
            request.holder.command = request.holder.command.chars().take(64).collect();
        }
        let tokens = request.names.iter().map(|_| self.next_token()).collect();
        self.last_order += 1;
        let start = if self.has(Mutation::TrustsClientClock) { sent } else { now };
        self.entries.push(Entry {
            order: self.last_order,
            tokens,
            slots: vec![None; request.names.len()],
            expires: start + request.ttl,
            since: SystemTime::now(),
            held_since: None,
            asked: None,
            request,
        });
        self.version += 1;
    }

    fn next_token(&mut self) -> FencingToken {
        self.last_token += 1;
        let repeats = self.has(Mutation::RepeatsToken) && self.last_token.is_multiple_of(5);
        FencingToken::new(self.last_token - u64::from(repeats)).expect("counts from one")
    }

    /// Gives a live entry another TTL. Returns whether there was one.
    pub(super) fn renew(&mut self, id: ClaimId, begun: Moment, now: Moment) -> bool {
        let start = if self.has(Mutation::TrustsClientClock) { begun } else { now };
        let keeps = self.has(Mutation::RenewDoesNothing);
        let Some(at) = self.position(id) else { return false };
        let entry = &mut self.entries[at];
        entry.expires = if keeps { entry.expires } else { start + entry.request.ttl };
        true
    }

    /// Makes all steps if the entries in `when` and the own one are present. Returns whether it did.
    pub(super) fn commit(
        &mut self,
        own: Option<&Own>,
        when: &[(LockName, Key)],
        steps: &[Step],
        now: Moment,
    ) -> bool {
        let leaves =
            |step: &Step| matches!(step, Step::Remove { id, .. } if own.is_some_and(|own| own.id == *id));
        let is_present = |(_, key): &(LockName, Key)| self.entries.iter().any(|e| e.order == key.order);
        if !when.iter().all(is_present)
            || !(steps.iter().any(leaves) || own.is_none() || self.waits_or_holds(own))
        {
            return false;
        }
        for step in steps {
            match step {
                Step::Hold { slots, .. } => return self.take(own, slots),
                Step::Remove { id, names, note, .. } => self.remove(own, *id, names, note.as_ref()),
                Step::Change(_, item, change) => self.change(item.key.order, change),
                Step::Success { held_for } => self.succeed(own, now - *held_for),
                Step::RemoveForeign(..) => {}
            }
        }
        true
    }

    /// Takes the slots unless others have them.
    fn take(&mut self, own: Option<&Own>, slots: &[Option<u32>]) -> bool {
        let Some(at) = own.and_then(|own| self.position(own.id)) else { return false };
        let is_taken = |(name, slot): (&LockName, &Option<u32>)| {
            let others = self.queue(name).into_iter().filter(|i| *i != at);
            slot.is_some() && others.into_iter().any(|i| self.slot(i, name) == *slot)
        };
        let names = &self.entries[at].request.names;
        if !self.has(Mutation::SlotsAdmitOneTooMany) && names.iter().zip(slots).any(is_taken) {
            return false;
        }
        self.entries[at].slots = slots.to_vec();
        self.version += 1;
        true
    }

    /// Returns the slot of an entry on `name`.
    pub(super) fn slot(&self, at: usize, name: &LockName) -> Option<u32> {
        let entry = &self.entries[at];
        entry.slots[entry.request.names.iter().position(|n| self.same(n, name))?]
    }

    fn remove(&mut self, own: Option<&Own>, id: ClaimId, names: &[LockName], note: Option<&Note>) {
        let Some(at) = self.position(id) else {
            // A request of that claim in flight is refused.
            self.ended.entry(id).or_insert(note.cloned());
            return;
        };
        let is_own = own.is_some_and(|own| own.id == id);
        let stays = self.has(Mutation::WaiterCannotLeave) && is_own && !self.holds(at);
        if !stays && self.entries[at].request.names.iter().any(|name| names.contains(name)) {
            self.end(at, note.cloned());
        }
    }

    fn change(&mut self, order: u64, change: &Change) {
        let Some(at) = self.entries.iter().position(|e| e.order == order) else { return };
        match change {
            Change::Asked(by) if self.has(Mutation::AskRemoves) => {
                self.end(at, Some(Note::Evicted(Some(by.clone()))));
            }
            Change::Asked(by) => self.entries[at].asked = Some(by.clone()),
            Change::Label(text) => self.entries[at].request.holder.label = Some(text.clone()),
            Change::HeldFor(length) => self.entries[at].held_since = SystemTime::now().checked_sub(*length),
        }
        self.version += 1;
    }

    fn succeed(&mut self, own: Option<&Own>, acquired: Moment) {
        let last_to_end = self.has(Mutation::LastToEndSucceeds);
        for name in own.map(|own| own.names.clone()).unwrap_or_default() {
            let last = self.successes.entry(name).or_insert(acquired);
            *last = if last_to_end { acquired } else { acquired.max(*last) };
        }
    }

    /// Returns how long ago the last successful run acquired `name`.
    pub(super) fn last_success(&self, name: &LockName, now: Moment) -> Option<Duration> {
        self.successes.get(name).map(|at| now.since(*at))
    }

    /// Applies the effect of a restart that keeps the data: none without a mutation.
    pub(super) fn restart(&mut self) {
        if self.has(Mutation::ForgetsTokensOnRestart) {
            self.last_token = 0;
        }
    }
}
