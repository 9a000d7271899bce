//! The nodes of the model: as `quorum.lua`, and as it was.

use std::collections::{BTreeMap, BTreeSet};

use super::reply::Row;
use crate::backend::redis::redlock::row;
use crate::lock::{FencingToken, Granted};

/// What nodes and claims do.
#[derive(Clone, Copy)]
#[expect(clippy::struct_excessive_bools, reason = "each rule is put in force or out of it alone")]
pub(super) struct Rules {
    /// A node admits at most one claim that is not known to hold a majority.
    pub(super) door: bool,
    /// A place in the queue is told again until it has arrived.
    pub(super) order_again: bool,
    /// A claim moves a slot that it has; else it gives it back and wishes for another.
    pub(super) moves: bool,
    /// A claim of several names tells nodes of a majority for one of them.
    pub(super) by_name: bool,
}

/// What a claim asks of a node for one of its names.
#[derive(Clone, Copy, Debug)]
pub(super) enum Request {
    Nothing,
    Enter,
    Order(u64),
    GiveBack { token: u64, wish: Option<u32> },
    Move(u32),
    Confirm { token: u64, slot: u32, given: Option<u64> },
    Assure { token: u64 },
    Leave,
}

/// What a node gave.
#[derive(Clone, Debug)]
struct Part {
    score: u64,
    token: u64,
    slot: Option<u32>,
    behind: bool,
    assured: bool,
}

impl Part {
    /// Whether it is known that a majority gave the name.
    fn is_firm(&self) -> bool {
        self.score == 0 || self.assured
    }
}

/// One queue of one node.
#[derive(Default)]
pub(super) struct Node {
    queue: BTreeSet<(u64, usize)>,
    holds: BTreeMap<usize, Part>,
    wishes: BTreeMap<usize, u32>,
    fence: u64,
}

impl Node {
    fn used(&self, slot: u32) -> Option<usize> {
        self.holds.iter().find(|(_, part)| part.slot == Some(slot)).map(|(who, _)| *who)
    }

    fn grant(&mut self, who: usize, score: u64, hint: u64) {
        self.fence = hint.max(self.fence + 1);
        let wish = self.wishes.get(&who).copied().filter(|slot| self.used(*slot).is_none());
        let lowest = || (1..=u32::MAX).find(|slot| self.used(*slot).is_none()).filter(|_| score != 0);
        let slot = wish.or_else(lowest);
        self.queue.remove(&(score, who));
        self.holds.insert(who, Part { score, token: self.fence, slot, behind: false, assured: false });
    }

    /// As `settle` in `quorum.lua`; says who stands otherwise.
    pub(super) fn settle(&mut self, rules: Rules, slots: u32, hint: u64) -> BTreeSet<usize> {
        let mut told = BTreeSet::new();
        for who in self.holds.keys().copied().collect::<Vec<_>>() {
            let bare = self.holds.get(&who).is_some_and(|part| part.slot.is_none() && part.score == 0);
            let wish = self.wishes.get(&who).copied().filter(|slot| bare && self.used(*slot).is_none());
            if let (Some(slot), Some(part)) = (wish, self.holds.get_mut(&who)) {
                part.slot = Some(slot);
                told.insert(who);
            }
        }
        while let Some((score, who)) = self.queue.first().copied() {
            let open = rules.door && self.holds.values().any(|part| !part.is_firm());
            if self.holds.len() < slots as usize && (!open || score == 0) {
                self.grant(who, score, hint);
                told.insert(who);
                continue;
            }
            for (other, part) in &mut self.holds {
                if (part.score, *other) > (score, who) && part.score != 0 && !part.behind {
                    part.behind = true;
                    told.insert(*other);
                }
            }
            break;
        }
        told
    }

    fn put_back(&mut self, who: usize, score: u64, wish: Option<u32>) {
        self.holds.remove(&who);
        self.queue.insert((score, who));
        self.wishes.remove(&who);
        self.wishes.extend(wish.map(|slot| (who, slot)));
    }

    fn place(&mut self, who: usize, score: u64) {
        if let Some(part) = self.holds.get_mut(&who) {
            part.score = if part.score == 0 { 0 } else { score };
        } else if let Some(at) = self.queue.iter().find(|(at, id)| *id == who && *at != 0).copied() {
            self.queue.remove(&at);
            self.queue.insert((score, who));
        }
    }

    fn confirm(&mut self, rules: Rules, who: usize, token: u64, slot: u32, given: Option<u64>) {
        self.fence = self.fence.max(token);
        if let Some(part) = self.holds.get_mut(&who) {
            part.behind = false;
        }
        let part = self.holds.get(&who).map(|part| (part.token, part.slot));
        let free = self.used(slot).is_none();
        if let Some(part) = self.holds.get_mut(&who).filter(|_| rules.moves) {
            part.score = 0;
            if part.slot != Some(slot) {
                part.slot = free.then_some(slot);
            }
            return;
        }
        if part.is_some_and(|(own, has)| Some(own) == given && has.is_some_and(|has| has != slot)) {
            self.put_back(who, 0, Some(slot));
        } else if let Some(part) = self.holds.get_mut(&who).filter(|part| Some(part.token) == given) {
            part.score = 0;
        }
        if let Some(at) = self.queue.iter().find(|(_, id)| *id == who).copied() {
            self.queue.remove(&at);
            self.queue.insert((0, who));
            self.wishes.insert(who, slot);
        }
    }

    pub(super) fn take(&mut self, rules: Rules, slots: u32, who: usize, request: Request, time: u64) {
        match request {
            Request::Enter => {
                let last = self.queue.iter().map(|(at, _)| *at).chain(self.holds.values().map(|p| p.score));
                let at = time.max(last.max().unwrap_or(0) + 1);
                self.queue.insert((at, who));
            }
            Request::Order(score) => self.place(who, score),
            Request::GiveBack { token, wish } => {
                if let Some(part) = self.holds.get(&who).filter(|part| part.token == token).cloned() {
                    self.put_back(who, part.score, wish);
                }
            }
            Request::Move(slot) if slot <= slots => {
                let by = self.used(slot);
                if let Some(part) = self.holds.get_mut(&who).filter(|_| by != Some(who)) {
                    part.slot = by.is_none().then_some(slot);
                }
            }
            Request::Confirm { token, slot, given } => self.confirm(rules, who, token, slot, given),
            Request::Assure { token } => {
                if let Some(part) = self.holds.get_mut(&who).filter(|part| part.token == token) {
                    part.assured = true;
                }
            }
            Request::Move(_) | Request::Nothing => {}
            Request::Leave => {
                self.queue.retain(|(_, id)| *id != who);
                self.holds.remove(&who);
                self.wishes.remove(&who);
            }
        }
    }

    pub(super) fn row(&self, rules: Rules, who: usize) -> Row {
        let part = self.holds.get(&who);
        let others = self.holds.iter().filter(|(id, part)| **id != who && (rules.moves || part.is_firm()));
        let granted = part
            .and_then(|part| FencingToken::new(part.token).map(|token| Granted { token, slot: part.slot }));
        let base = row::Row { granted, ..row::Row::default() };
        let waits = self.queue.iter().find(|(_, id)| *id == who).map(|(at, _)| *at);
        Row {
            base,
            score: part.map(|part| part.score).or(waits),
            behind: part.is_some_and(|part| part.behind),
            taken: others.map(|(_, part)| part.slot.unwrap_or(0)).collect(),
            fence: self.fence,
            assured: part.is_some_and(|part| part.assured),
            compared: false,
        }
    }
}
