//! A model of nodes and claims with slots, run under schedules of chance in which some nodes are slow, with the rules that
//! there are and with those that there were: these must be found out.
//!
//! The nodes are those of `quorum.lua`; what a claim makes of their answers is decided by the real [`Leg`] and
//! [`tally`].

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::num::NonZeroU32;
use std::time::Duration;

use super::leg::{Leg, Phase};
use super::reply::{Row, Standing};
use super::tally;
use crate::backend::redis::row;
use crate::lock::{FencingToken, Granted, Mode, Moment};

const NODES: usize = 5;
const BEGIN: Moment = Moment::from_nanos(3_600_000_000_000);
const TTL: Duration = Duration::from_secs(10);
/// So many steps no schedule takes in which somebody gets on.
const ENOUGH: usize = 60_000;

/// What nodes and claims do.
#[derive(Clone, Copy)]
pub(super) struct Rules {
    /// A node admits at most one claim that is not known to hold a majority.
    pub(super) door: bool,
    /// A place in line is told again until it has arrived.
    pub(super) order_again: bool,
    /// A claim moves a slot that it has; else it gives it back and wishes for another.
    pub(super) moves: bool,
}

/// How a schedule ended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum End {
    Well,
    StoodStill,
    TwoOnOneSlot,
    TokenFell,
}

#[derive(Clone, Copy, Debug)]
enum Request {
    Enter,
    Order(u64),
    GiveBack { token: u64, wish: Option<u32> },
    Move(u32),
    Confirm { token: u64, slot: u32, given: Option<u64> },
    Leave,
}

#[derive(Clone, Debug)]
struct Part {
    score: u64,
    token: u64,
    slot: Option<u32>,
    behind: bool,
}

#[derive(Default)]
struct Node {
    line: BTreeSet<(u64, usize)>,
    holds: BTreeMap<usize, Part>,
    wishes: BTreeMap<usize, u32>,
    fence: u64,
}

struct Claim {
    legs: Vec<Leg>,
    heard: u64,
    score: Option<u64>,
    ordered: bool,
    hold: Option<Granted>,
    over: bool,
}

/// What is under way between one claim and one node: both ways in order.
#[derive(Default)]
struct Way {
    there: VecDeque<(Request, u64)>,
    back: VecDeque<(Row, bool)>,
}

pub(super) struct World {
    rules: Rules,
    slots: u32,
    nodes: Vec<Node>,
    claims: Vec<Claim>,
    ways: BTreeMap<(usize, usize), Way>,
    time: u64,
    random: u64,
    slow: [bool; NODES],
    last: BTreeMap<u32, u64>,
}

impl Node {
    fn used(&self, slot: u32) -> Option<usize> {
        self.holds.iter().find(|(_, part)| part.slot == Some(slot)).map(|(who, _)| *who)
    }

    fn grant(&mut self, who: usize, score: u64, hint: u64) {
        self.fence = hint.max(self.fence + 1);
        let wish = self.wishes.get(&who).copied().filter(|slot| self.used(*slot).is_none());
        let lowest = || (1..).find(|slot| self.used(*slot).is_none()).filter(|_| score != 0);
        let slot = wish.or_else(lowest);
        self.line.remove(&(score, who));
        self.holds.insert(who, Part { score, token: self.fence, slot, behind: false });
    }

    /// As `settle` in `quorum.lua`; says who stands otherwise.
    fn settle(&mut self, rules: Rules, slots: u32, hint: u64) -> BTreeSet<usize> {
        let mut told = BTreeSet::new();
        for who in self.holds.keys().copied().collect::<Vec<_>>() {
            let bare = self.holds.get(&who).is_some_and(|part| part.slot.is_none() && part.score == 0);
            let wish = self.wishes.get(&who).copied().filter(|slot| bare && self.used(*slot).is_none());
            if let (Some(slot), Some(part)) = (wish, self.holds.get_mut(&who)) {
                part.slot = Some(slot);
                told.insert(who);
            }
        }
        while let Some((score, who)) = self.line.first().copied() {
            let open = rules.door && self.holds.values().any(|part| part.score != 0);
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
        self.line.insert((score, who));
        self.wishes.remove(&who);
        self.wishes.extend(wish.map(|slot| (who, slot)));
    }

    fn place(&mut self, who: usize, score: u64) {
        if let Some(part) = self.holds.get_mut(&who) {
            part.score = if part.score == 0 { 0 } else { score };
        } else if let Some(at) = self.line.iter().find(|(at, id)| *id == who && *at != 0).copied() {
            self.line.remove(&at);
            self.line.insert((score, who));
        }
    }

    fn confirm(&mut self, rules: Rules, who: usize, token: u64, slot: u32, given: Option<u64>) {
        self.fence = self.fence.max(token);
        let part = self.holds.get(&who).map(|part| (part.token, part.slot));
        let free = self.used(slot).is_none();
        if let Some(part) = self.holds.get_mut(&who).filter(|_| rules.moves) {
            (part.score, part.behind) = (0, false);
            if part.slot != Some(slot) {
                part.slot = free.then_some(slot);
            }
            return;
        }
        if part.is_some_and(|(own, has)| Some(own) == given && has.is_some_and(|has| has != slot)) {
            self.put_back(who, 0, Some(slot));
        } else if let Some(part) = self.holds.get_mut(&who).filter(|part| Some(part.token) == given) {
            (part.score, part.behind) = (0, false);
        }
        if let Some(at) = self.line.iter().find(|(_, id)| *id == who).copied() {
            self.line.remove(&at);
            self.line.insert((0, who));
            self.wishes.insert(who, slot);
        }
    }

    fn take(&mut self, rules: Rules, slots: u32, who: usize, request: Request, time: u64) {
        match request {
            Request::Enter => {
                let last = self.line.iter().map(|(at, _)| *at).chain(self.holds.values().map(|p| p.score));
                let at = time.max(last.max().unwrap_or(0) + 1);
                self.line.insert((at, who));
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
            Request::Move(_) => {}
            Request::Confirm { token, slot, given } => self.confirm(rules, who, token, slot, given),
            Request::Leave => {
                self.line.retain(|(_, id)| *id != who);
                self.holds.remove(&who);
                self.wishes.remove(&who);
            }
        }
    }

    fn row(&self, rules: Rules, who: usize) -> Row {
        let part = self.holds.get(&who);
        let others = self.holds.iter().filter(|(id, part)| **id != who && (rules.moves || part.score == 0));
        let granted = part
            .and_then(|part| FencingToken::new(part.token).map(|token| Granted { token, slot: part.slot }));
        let base = row::Row {
            granted,
            gone: None,
            by: None,
            asked: None,
            top: false,
            value: None,
            ahead: 0,
            horizon: None,
            lead: None,
        };
        let waits = self.line.iter().find(|(_, id)| *id == who).map(|(at, _)| *at);
        Row {
            base,
            score: part.map(|part| part.score).or(waits),
            behind: part.is_some_and(|part| part.behind),
            taken: others.map(|(_, part)| part.slot.unwrap_or(0)).collect(),
            fence: self.fence,
        }
    }
}

impl World {
    pub(super) fn new(rules: Rules, slots: u32, claims: usize, seed: u64) -> Self {
        let claim = |_| Claim {
            legs: (0..NODES).map(|_| Leg::new(1)).collect(),
            heard: 0,
            score: None,
            ordered: false,
            hold: None,
            over: false,
        };
        let mut world = Self {
            rules,
            slots,
            nodes: (0..NODES).map(|_| Node::default()).collect(),
            claims: (0..claims).map(claim).collect(),
            ways: BTreeMap::new(),
            time: 1_000,
            random: seed,
            slow: [false; NODES],
            last: BTreeMap::new(),
        };
        for at in 0..NODES {
            world.slow[at] = world.below(3) == 0;
        }
        for claim in 0..claims {
            (0..NODES).for_each(|at| world.send(claim, at, Request::Enter));
        }
        world
    }

    fn below(&mut self, limit: usize) -> usize {
        // SplitMix64.
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % limit.max(1) as u64).unwrap_or(0)
    }

    fn send(&mut self, claim: usize, at: usize, request: Request) {
        self.claims[claim].legs[at].telling += 1;
        self.ways.entry((claim, at)).or_default().there.push_back((request, self.time));
    }

    fn mode(&self) -> Mode {
        Mode::Slots(NonZeroU32::new(self.slots).unwrap_or(NonZeroU32::MIN))
    }

    /// Node `at` does the next request of `claim`.
    fn serve(&mut self, claim: usize, at: usize) {
        let next = self.ways.get_mut(&(claim, at)).and_then(|way| way.there.pop_front());
        let Some((request, hint)) = next else { return };
        let (rules, slots, time) = (self.rules, self.slots, self.time);
        let node = &mut self.nodes[at];
        node.take(rules, slots, claim, request, time);
        let told = node.settle(rules, slots, hint);
        for who in told.into_iter().filter(|who| *who != claim) {
            let row = self.nodes[at].row(rules, who);
            self.ways.entry((who, at)).or_default().back.push_back((row, false));
        }
        let row = self.nodes[at].row(rules, claim);
        self.ways.entry((claim, at)).or_default().back.push_back((row, true));
    }

    /// `claim` hears the next of what node `at` has said, and acts on it.
    fn hear(&mut self, claim: usize, at: usize) -> Option<End> {
        let (row, answer) = self.ways.get_mut(&(claim, at)).and_then(|way| way.back.pop_front())?;
        let one = &mut self.claims[claim];
        one.heard += 1;
        let leg = &mut one.legs[at];
        leg.telling -= u32::from(answer);
        leg.from = BEGIN;
        let uptime = Duration::from_secs(3_600);
        leg.take(
            one.heard,
            Standing { found: true, rows: vec![row], uptime, run: String::new() },
            TTL,
            BEGIN,
        );
        let entered = one.legs.iter().all(|leg| leg.phase == Phase::In);
        if entered && one.score.is_none() {
            self.decide(claim);
        }
        self.act(claim)
    }

    /// The claim takes its place by what it has heard so far.
    fn decide(&mut self, claim: usize) {
        let mut scores: Vec<u64> = self.claims[claim]
            .legs
            .iter()
            .filter_map(|leg| leg.rows.first().and_then(|row| row.score))
            .collect();
        scores.sort_unstable();
        self.claims[claim].score = scores.get(tally::majority(NODES) - 1).copied();
    }

    fn act(&mut self, claim: usize) -> Option<End> {
        let mode = self.mode();
        let one = &mut self.claims[claim];
        if one.over {
            return None;
        }
        let won = tally::won(&one.legs, 1, mode, TTL, BEGIN);
        let (firm, won) = (won.as_ref().is_some_and(|won| won.firm), won.map(|won| won.names[0]));
        let mut end = None;
        if let (None, Some(hold), true) = (one.hold, won, firm) {
            one.hold = Some(hold);
            end = self.begins(claim, hold);
        }
        let one = &mut self.claims[claim];
        let mut wanted = Vec::new();
        if let Some(hold) = one.hold.or(won) {
            for (at, leg) in one.legs.iter().enumerate().filter(|(_, leg)| leg.can_be_told()) {
                let (row, part) = (&leg.rows[0], leg.rows[0].granted());
                let differs = part.is_none_or(|part| part.slot != hold.slot) && row.score != Some(0);
                if row.fence < hold.token.get() || (row.score != Some(0) && !self.rules.moves) || differs {
                    let given = part.map(|part| part.token.get());
                    let slot = hold.slot.unwrap_or(0);
                    wanted.push((at, Request::Confirm { token: hold.token.get(), slot, given }));
                }
            }
        } else {
            wanted = Self::make_way(one, self.rules, mode);
        }
        wanted.into_iter().for_each(|(at, request)| self.send(claim, at, request));
        end
    }

    fn make_way(one: &mut Claim, rules: Rules, mode: Mode) -> Vec<(usize, Request)> {
        let want = tally::slot_to_want(&one.legs, 0, mode, BEGIN);
        let first = !one.ordered && one.score.is_some();
        one.ordered |= first;
        let score = one.score;
        let mut wanted = Vec::new();
        for (at, leg) in one.legs.iter_mut().enumerate().filter(|(_, leg)| leg.phase == Phase::In) {
            let (behind, part) = (leg.rows[0].behind, leg.rows[0].granted());
            let other = leg.rows[0].score.filter(|at| *at != 0 && Some(*at) != score);
            if let (Some(score), Some(_), true) = (score, other, first || rules.order_again) {
                if leg.can_be_told() || first {
                    wanted.push((at, Request::Order(score)));
                }
                continue;
            }
            let (Some(part), true) = (part, leg.can_be_told()) else { continue };
            let wish = want.filter(|slot| !leg.rows[0].taken.contains(slot));
            let differs = wish.is_some_and(|slot| part.slot != Some(slot));
            if behind || leg.present(0).is_none() || (differs && !rules.moves) {
                leg.give_back(0, part.token);
                wanted.push((at, Request::GiveBack { token: part.token.get(), wish }));
            } else if let Some(slot) = want.filter(|slot| part.slot != Some(*slot)) {
                wanted.push((at, Request::Move(slot)));
            }
        }
        wanted
    }

    /// The claim's command starts.
    fn begins(&mut self, claim: usize, hold: Granted) -> Option<End> {
        let holds = |(at, one): (usize, &Claim)| {
            at != claim && !one.over && one.hold.is_some_and(|other| other.slot == hold.slot)
        };
        if self.claims.iter().enumerate().any(holds) {
            return Some(End::TwoOnOneSlot);
        }
        let last = self.last.insert(hold.slot.unwrap_or(0), hold.token.get());
        last.is_some_and(|last| last >= hold.token.get()).then_some(End::TokenFell)
    }

    fn leave(&mut self, claim: usize) {
        self.claims[claim].over = true;
        (0..NODES).for_each(|at| self.send(claim, at, Request::Leave));
    }

    /// Lets happen what happens, in an order of chance, until all have run or nobody gets on.
    pub(super) fn run(mut self) -> End {
        for _ in 0..ENOUGH {
            self.time += 1;
            let busy: Vec<(usize, usize)> = self
                .ways
                .iter()
                .filter(|(_, w)| !w.there.is_empty() || !w.back.is_empty())
                .map(|(k, _)| *k)
                .collect();
            let running: Vec<usize> = (0..self.claims.len())
                .filter(|at| !self.claims[*at].over && self.claims[*at].hold.is_some())
                .collect();
            if self.claims.iter().all(|one| one.over) {
                return End::Well;
            }
            if busy.is_empty() && running.is_empty() {
                return End::StoodStill;
            }
            if !running.is_empty() && (busy.is_empty() || self.below(40) == 0) {
                let claim = running[self.below(running.len())];
                self.leave(claim);
                continue;
            }
            let (claim, at) = busy[self.below(busy.len())];
            if self.slow[at] && self.below(30) != 0 {
                // The others have answered for so long that their claim goes on without.
                let entered = self.claims[claim].legs.iter().filter(|leg| leg.phase == Phase::In).count();
                if self.claims[claim].score.is_none()
                    && entered >= tally::majority(NODES)
                    && self.below(8) == 0
                {
                    self.decide(claim);
                    if let Some(end) = self.act(claim) {
                        return end;
                    }
                }
                continue;
            }
            let way = &self.ways[&(claim, at)];
            if way.back.is_empty() || (!way.there.is_empty() && self.below(2) == 0) {
                self.serve(claim, at);
            } else if let Some(end) = self.hear(claim, at) {
                return end;
            }
        }
        End::StoodStill
    }
}
