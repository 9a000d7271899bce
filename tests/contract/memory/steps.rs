//! The steps that change queues.

use std::time::{Duration, SystemTime};

use tokio::sync::watch;

use dlock::backend::mixing::{Use, mismatch};
use dlock::lock::{ClaimId, ClaimState, ErrorKind, Holder, LockName, LossReason, Moment, Request};

use super::queues::{Entry, Queues, Refusal};
use super::{Evict, Mutation};

type StateReceiver = watch::Receiver<ClaimState>;

impl Queues {
    /// Joins the queues of all names, or refuses and changes nothing.
    pub(super) fn enter(
        &mut self,
        request: &Request,
        counts_from: Moment,
        now: Moment,
    ) -> Result<StateReceiver, Refusal> {
        if !self.has(Mutation::EnterNotIdempotent) {
            let known = self.position(request.id).map(|at| &self.entries[at]);
            if let Some(entry) = known.or_else(|| self.ended.get(&request.id)) {
                return Ok(entry.news.subscribe());
            }
        }
        let mismatch = match self.check_kinds(request) {
            Err(refusal) if !self.has(Mutation::MismatchStays) => return Err(refusal),
            other => other,
        };
        for id in self.superseded(request) {
            if let Some(at) = self.position(id) {
                self.end(at, ClaimState::Superseded { by: request.holder.clone() });
            }
        }
        let news = self.push(request, counts_from, now);
        mismatch.map(|()| news)
    }

    fn push(&mut self, request: &Request, counts_from: Moment, now: Moment) -> StateReceiver {
        let mut request = request.clone();
        match self.mutation {
            Some(Mutation::EntersFirstNameOnly) => request.names.truncate(1),
            Some(Mutation::TokensRestartWhenIdle) if self.queue(&request.names[0]).is_empty() => {
                self.last_token = 0;
            }
            Some(Mutation::TruncatesTexts) => {
                each_text(&mut request.holder, |t| t.chars().take(64).collect());
            }
            Some(Mutation::CleansTexts) => {
                each_text(&mut request.holder, |t| t.chars().filter(|c| !c.is_control()).collect());
            }
            _ => {}
        }
        let start = if self.has(Mutation::TrustsClientClock) { counts_from } else { now };
        let (sender, news) = watch::channel(ClaimState::Waiting { ahead: None, holder: None });
        self.entries.push(Entry {
            expires: start + request.ttl,
            request,
            counts_from,
            arrived: SystemTime::now(),
            hold: None,
            asked: None,
            answered: false,
            news: sender,
        });
        self.version += 1;
        news
    }

    fn check_kinds(&self, request: &Request) -> Result<(), Refusal> {
        let other = request.names.iter().find_map(|name| {
            let odd = |i: &usize| !self.entries[*i].request.mode.mixes_with(request.mode);
            self.queue(name).into_iter().find(odd).map(|at| (name, at))
        });
        let Some((name, at)) = other.filter(|_| !self.has(Mutation::MixesKinds)) else { return Ok(()) };
        let Request { mode, holder, .. } = &self.entries[at].request;
        let kind = if self.has(Mutation::MismatchIsTransient) {
            ErrorKind::Unavailable
        } else {
            ErrorKind::Mismatch
        };
        let who = if self.has(Mutation::MismatchUnnamed) { "others".to_owned() } else { holder.to_string() };
        Err(Refusal::new(kind, mismatch(Some(name), Some(&who), Use::Mode(*mode), request.mode)))
    }

    /// Returns the older waiters whose place `request` takes.
    fn superseded(&self, request: &Request) -> Vec<ClaimId> {
        let also_holders = self.has(Mutation::SupersedeEndsHolder);
        let older = self.entries.iter().filter(|e| {
            request.supersede
                && e.request.supersede
                && (e.hold.is_none() || also_holders)
                && e.request.names.iter().any(|n| request.names.contains(n))
        });
        let ids = older.map(|e| e.request.id).collect();
        if self.has(Mutation::SupersedeIgnored) { Vec::new() } else { ids }
    }

    /// Notes that the client has received the answer to its request to enter.
    pub(super) fn answer(&mut self, id: ClaimId) {
        if let Some(at) = self.position(id) {
            self.entries[at].answered = true;
        }
    }

    /// Extends a live entry by another TTL. Returns whether there was one.
    pub(super) fn renew(&mut self, id: ClaimId, counts_from: Moment, now: Moment) -> bool {
        if self.has(Mutation::RevivesExpired)
            && let Some(entry) = self.ended.remove(&id)
        {
            self.entries.insert(0, entry);
        }
        let Some(at) = self.position(id) else { return false };
        let trusting = self.has(Mutation::TrustsClientClock);
        if !self.has(Mutation::RenewDoesNothing) {
            let entry = &mut self.entries[at];
            let start = if trusting { counts_from } else { now };
            entry.expires = start + entry.request.ttl;
            entry.counts_from = counts_from;
        }
        true
    }

    /// Removes the entry from its queues.
    pub(super) fn leave(&mut self, id: ClaimId, succeeded: bool) -> Result<(), Refusal> {
        let Some(at) = self.position(id) else {
            let strict = self.has(Mutation::LeaveNotIdempotent);
            return if strict { Err(Refusal::new(ErrorKind::Corrupt, "no such entry")) } else { Ok(()) };
        };
        if self.has(Mutation::WaiterCannotLeave) && self.entries[at].hold.is_none() {
            return Ok(());
        }
        if (succeeded || self.has(Mutation::RecordsFailure))
            && let Some(hold) = &self.entries[at].hold
        {
            let acquired = hold.at;
            let names = self.entries[at].request.names.clone();
            let last_to_end = self.has(Mutation::LastToEndSucceeds);
            for name in names {
                let last = self.successes.entry(name).or_insert(acquired);
                *last = if last_to_end { acquired } else { acquired.max(*last) };
            }
        }
        let cut = self.has(Mutation::WithdrawCutsLine) && self.entries[at].hold.is_none();
        let last = ClaimState::Lost(LossReason::Evicted(None));
        self.end(at, last.clone());
        while cut && at < self.entries.len() {
            self.end(at, last.clone());
        }
        Ok(())
    }

    /// Acts on exactly the entry `id` of the queue of `name`. Returns whether there was one to act on.
    pub(super) fn evict(&mut self, name: &LockName, id: ClaimId, how: Evict, by: &Holder) -> bool {
        let queue = self.queue(name);
        let found = if self.has(Mutation::EvictsHolder) {
            queue.first().copied()
        } else {
            queue.into_iter().find(|i| self.entries[*i].request.id == id)
        };
        let Some(at) = found else { return false };
        if self.has(Mutation::UnansweredCannotBeEvicted) && !self.entries[at].answered {
            return false;
        }
        match how {
            Evict::Ask if !self.has(Mutation::AskRemoves) => {
                self.entries[at].asked = Some(by.clone());
                self.version += 1;
            }
            Evict::Ask | Evict::Force => {
                self.end(at, ClaimState::Lost(LossReason::Evicted(Some(by.clone()))));
            }
        }
        true
    }

    /// Replaces the label of a live entry. Returns whether there was one.
    pub(super) fn publish(&mut self, name: &LockName, id: ClaimId, value: &str) -> bool {
        let holds = |at: &usize| {
            let entry = &self.entries[*at];
            entry.request.names.contains(name)
                && (entry.hold.is_some() || self.has(Mutation::WaiterPublishes))
        };
        let Some(at) = self.position(id).filter(holds) else { return false };
        self.entries[at].request.holder.label = Some(value.to_owned());
        self.version += 1;
        true
    }

    /// Returns how long ago the last successful run acquired `name`.
    pub(super) fn last_success(&self, name: &LockName, now: Moment) -> Option<Duration> {
        self.successes.get(name).map(|at| now.since(*at))
    }

    /// Applies the effect of a restart that keeps the data: none without a mutation.
    pub(super) fn restart(&mut self) {
        match self.mutation {
            Some(Mutation::ForgetsTokensOnRestart) => self.last_token = 0,
            Some(Mutation::ForgetsWaitersOnRestart) => {
                while let Some(at) = self.entries.iter().position(|e| e.hold.is_none()) {
                    self.end(at, ClaimState::Lost(LossReason::SessionEnded));
                }
            }
            _ => {}
        }
    }
}

fn each_text(holder: &mut Holder, change: impl Fn(&str) -> String) {
    for text in [&mut holder.host, &mut holder.user, &mut holder.command].into_iter().chain(&mut holder.label)
    {
        *text = change(text);
    }
}
