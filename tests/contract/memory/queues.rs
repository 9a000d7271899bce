//! The entries, and the consequences of their order.

use std::collections::HashMap;
use std::time::SystemTime;

use tokio::sync::watch;

use dlock::lock::claim::Granted;
use dlock::lock::{
    ClaimId, ClaimState, ErrorKind, FencingToken, Grant, Holder, LockName, LossReason, Mode, Moment, Request,
    queue,
};

use super::Mutation;

/// The reason for a refused step; becomes an [`dlock::lock::Error`].
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) kind: ErrorKind,
    pub(super) reason: String,
}

impl Refusal {
    pub(super) fn new(kind: ErrorKind, reason: impl Into<String>) -> Self {
        Self { kind, reason: reason.into() }
    }
}

/// One claim, in the queues of all its names.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) request: Request,
    pub(super) expires: Moment,
    /// The beginning, by its client's clock, of the last call that proved it.
    pub(super) counts_from: Moment,
    pub(super) arrived: SystemTime,
    pub(super) hold: Option<Hold>,
    pub(super) asked: Option<Holder>,
    pub(super) answered: bool,
    pub(super) news: watch::Sender<ClaimState>,
}

#[derive(Debug)]
pub(super) struct Hold {
    pub(super) grant: Grant,
    pub(super) at: Moment,
    pub(super) since: SystemTime,
}

/// All queues of a server. Every method is one step of the service: nothing happens between its parts.
#[derive(Debug)]
pub(super) struct Queues {
    pub(super) mutation: Option<Mutation>,
    /// In order of arrival.
    pub(super) entries: Vec<Entry>,
    pub(super) ended: HashMap<ClaimId, Entry>,
    pub(super) successes: HashMap<LockName, Moment>,
    /// Grows with each visible change.
    pub(super) version: u64,
    pub(super) last_token: u64,
    last_shared_token: u64,
}

impl Queues {
    pub(super) fn new(mutation: Option<Mutation>) -> Self {
        Self {
            mutation,
            entries: Vec::new(),
            ended: HashMap::new(),
            successes: HashMap::new(),
            version: 0,
            last_token: 0,
            last_shared_token: 0,
        }
    }

    pub(super) fn has(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    pub(super) fn position(&self, id: ClaimId) -> Option<usize> {
        self.entries.iter().position(|e| e.request.id == id)
    }

    /// Applies time and order: ends expired entries, grants free locks and notifies all claims.
    pub(super) fn settle(&mut self, now: Moment) {
        while let Some(at) = self.entries.iter().position(|e| e.expires <= now && !self.keeps(e)) {
            self.end(at, ClaimState::Lost(LossReason::Expired));
        }
        for at in 0..self.entries.len() {
            if self.entries[at].hold.is_none() && self.may_hold(at) {
                self.give(at, now);
            }
        }
        for at in 0..self.entries.len() {
            let state = self.state(at);
            let told = self.entries[at].news.send_if_modified(|old| {
                let differs = *old != state;
                *old = state;
                differs
            });
            self.version += u64::from(told);
        }
    }

    fn keeps(&self, entry: &Entry) -> bool {
        match self.mutation {
            Some(Mutation::KeepsAbandonedWaiters) => entry.hold.is_none(),
            Some(Mutation::KeepsAbandonedHolders) => entry.hold.is_some(),
            _ => false,
        }
    }

    /// Removes the entry from all queues, for ever.
    pub(super) fn end(&mut self, at: usize, last: ClaimState) {
        let entry = self.entries.remove(at);
        if !self.has(Mutation::TellsNoLoss) {
            entry.news.send_replace(last);
        }
        self.version += 1;
        self.ended.insert(entry.request.id, entry);
    }

    /// Returns the indices of the entries in the queue of `name`, in order.
    pub(super) fn queue(&self, name: &LockName) -> Vec<usize> {
        let in_queue = |e: &Entry| e.request.names.iter().any(|n| self.same(n, name));
        let mut queue: Vec<usize> = (0..self.entries.len()).filter(|i| in_queue(&self.entries[*i])).collect();
        if self.has(Mutation::GrantsOutOfOrder) {
            queue.sort_by_key(|i| if self.entries[*i].hold.is_some() { *i } else { usize::MAX - i });
        }
        queue
    }

    fn same(&self, a: &LockName, b: &LockName) -> bool {
        let first = |n: &LockName| n.as_str().split('/').next().map(str::to_owned);
        match self.mutation {
            Some(Mutation::FoldsNames) => a.as_str().eq_ignore_ascii_case(b.as_str()),
            Some(Mutation::CutsNamesAtSlash) => first(a) == first(b),
            _ => a == b,
        }
    }

    pub(super) fn modes(&self, queue: &[usize]) -> Vec<Mode> {
        queue.iter().map(|i| self.entries[*i].request.mode).collect()
    }

    /// Returns the entries in the queue of `name` that no entry ahead keeps from holding.
    pub(super) fn free(&self, name: &LockName) -> Vec<usize> {
        let mut queue = self.queue(name);
        let modes = self.modes(&queue);
        let held = queue::held(&modes);
        let extra = match (self.mutation, modes.first()) {
            (Some(Mutation::SlotsAdmitOneTooMany), Some(Mode::Slots(_)))
            | (Some(Mutation::TellsHoldEarly), Some(Mode::Exclusive)) => true,
            (Some(Mutation::Reentrant), Some(_)) => {
                queue.get(held).is_some_and(|i| self.holder(*i) == self.holder(queue[0]))
            }
            _ => false,
        };
        if self.has(Mutation::SharedPassesExclusive) && modes.first() == Some(&Mode::Shared) {
            queue.retain(|i| self.entries[*i].request.mode == Mode::Shared);
            return queue;
        }
        queue.truncate(held + usize::from(extra));
        queue
    }

    fn holder(&self, at: usize) -> &Holder {
        &self.entries[at].request.holder
    }

    fn may_hold(&self, at: usize) -> bool {
        let names = &self.entries[at].request.names;
        let needed = if self.has(Mutation::TellsHoldOnFirstName) { &names[..1] } else { &names[..] };
        needed.iter().all(|name| self.free(name).contains(&at))
    }

    fn give(&mut self, at: usize, now: Moment) {
        let names = self.entries[at].request.names.clone();
        let mode = self.entries[at].request.mode;
        let names = names
            .iter()
            .map(|name| Granted { token: self.next_token(mode), slot: self.free_slot(name, mode) })
            .collect();
        let late = self.has(Mutation::GrantCountsFromGrant);
        let entry = &mut self.entries[at];
        let counts_from = if late { now } else { entry.counts_from };
        entry.hold = Some(Hold { grant: Grant { names, counts_from }, at: now, since: SystemTime::now() });
    }

    fn next_token(&mut self, mode: Mode) -> FencingToken {
        let counter = if self.has(Mutation::TokensPerMode) && mode == Mode::Shared {
            &mut self.last_shared_token
        } else {
            &mut self.last_token
        };
        *counter += 1;
        let number = match self.mutation {
            Some(Mutation::RepeatsToken) if *counter % 5 == 0 => *counter - 1,
            _ => *counter,
        };
        FencingToken::new(number).expect("counts from one")
    }

    fn free_slot(&self, name: &LockName, mode: Mode) -> Option<u32> {
        let Mode::Slots(_) = mode else { return None };
        let taken: Vec<u32> = self.queue(name).into_iter().filter_map(|i| self.slot(i, name)).collect();
        (1..=u32::MAX).find(|slot| !taken.contains(slot))
    }

    /// Returns the slot that an entry holds on `name`.
    pub(super) fn slot(&self, at: usize, name: &LockName) -> Option<u32> {
        self.granted(at, name).and_then(|given| given.slot)
    }

    /// Returns the grant of an entry on `name`.
    pub(super) fn granted(&self, at: usize, name: &LockName) -> Option<Granted> {
        let entry = &self.entries[at];
        let index = entry.request.names.iter().position(|n| self.same(n, name))?;
        entry.hold.as_ref().and_then(|hold| hold.grant.names.get(index)).copied()
    }

    /// Returns the state of an entry.
    pub(super) fn state(&self, at: usize) -> ClaimState {
        let entry = &self.entries[at];
        match (&entry.asked, &entry.hold) {
            (Some(by), _) if !self.has(Mutation::AskIsForgotten) => {
                ClaimState::AskedToLeave { by: by.clone() }
            }
            (_, Some(hold)) => ClaimState::Held(hold.grant.clone()),
            _ => {
                let (ahead, first) = self.ahead(at);
                let holder = first.map(|i| Box::new(self.entry_without_clock(i, &self.waited_for(at))));
                ClaimState::Waiting { ahead: Some(ahead), holder }
            }
        }
    }

    /// Returns the first of its names on which an entry still waits.
    fn waited_for(&self, at: usize) -> LockName {
        let names = &self.entries[at].request.names;
        names.iter().find(|name| !self.free(name).contains(&at)).unwrap_or(&names[0]).clone()
    }

    /// Returns how many entries are ahead in any of an entry's queues, and the first of the queue that it waits in.
    pub(super) fn ahead(&self, at: usize) -> (u32, Option<usize>) {
        let mut all: Vec<usize> = Vec::new();
        for name in &self.entries[at].request.names {
            all.extend(self.queue(name).into_iter().take_while(|i| *i != at));
        }
        all.sort_unstable();
        all.dedup();
        let first = self.queue(&self.waited_for(at)).first().copied().filter(|i| *i != at);
        (u32::try_from(all.len()).unwrap_or(u32::MAX), first)
    }

    /// Returns the next instant at which time alone may change the state of `id`. Entries behind it do not matter.
    pub(super) fn next_expiry(&self, id: ClaimId, now: Moment) -> Moment {
        let Some(at) = self.position(id) else { return Moment::NEVER };
        let ahead = self.entries[..=at].iter().map(|e| e.expires);
        ahead.filter(|when| *when > now).min().unwrap_or(Moment::NEVER)
    }
}
