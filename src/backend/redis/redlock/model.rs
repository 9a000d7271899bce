//! A model of nodes and claims with slots, run under schedules of chance in which some nodes are slow, with the rules that
//! there are and with those that there were: these must be found out.
//!
//! The nodes are those of `quorum.lua`; what a claim makes of their answers is decided by the real [`NodeClaim`] and
//! [`majority`].

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::num::NonZeroU32;
use std::time::Duration;

use super::majority;
use super::model_claim::{BEGIN, Claim, Comer, TTL};
use super::model_node::{Node, Request, Rules};
use super::node_claim::Phase;
use super::reply::{Position, Row};
use super::want::Want;
use crate::lock::{Granted, Mode};

const NODES: usize = 5;
/// So many steps no schedule takes in which somebody gets on.
const ENOUGH: usize = 60_000;

/// So often in one schedule those who look for a slot ask after it.
const LOOKS: usize = 20;

/// How a schedule ended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum End {
    Well,
    StoodStill,
    TwoOnOneSlot,
    TokenFell,
}

/// What is under way between one claim and one node: both ways in order.
#[derive(Default)]
struct Way {
    there: VecDeque<(Vec<Request>, u64)>,
    back: VecDeque<(Vec<Row>, bool)>,
}

pub(super) struct World {
    rules: Rules,
    slots: u32,
    /// For each node its queues.
    nodes: Vec<Vec<Node>>,
    claims: Vec<Claim>,
    ways: BTreeMap<(usize, usize), Way>,
    time: u64,
    random: u64,
    slow: [bool; NODES],
    last: BTreeMap<(usize, u32), u64>,
}

impl World {
    pub(super) fn new(rules: Rules, slots: u32, comers: Vec<Comer>, seed: u64) -> Self {
        let names = comers.iter().flat_map(|comer| &comer.names).max().map_or(0, |last| last + 1);
        let claim = |comer: Comer| Claim::new(comer, NODES);
        let mut world = Self {
            rules,
            slots,
            nodes: (0..NODES).map(|_| (0..names).map(|_| Node::default()).collect()).collect(),
            claims: comers.into_iter().map(claim).collect(),
            ways: BTreeMap::new(),
            time: 1_000,
            random: seed,
            slow: [false; NODES],
            last: BTreeMap::new(),
        };
        for at in 0..NODES {
            world.slow[at] = world.below(3) == 0;
        }
        for claim in 0..world.claims.len() {
            if world.claims[claim].comer.within.is_none() {
                world.send_to_all(claim, Request::Enter);
            }
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

    fn send(&mut self, claim: usize, at: usize, requests: Vec<Request>) {
        self.claims[claim].node_claims[at].telling += 1;
        self.ways.entry((claim, at)).or_default().there.push_back((requests, self.time));
    }

    fn send_to_all(&mut self, claim: usize, request: Request) {
        let requests = vec![request; self.claims[claim].comer.names.len()];
        (0..NODES).for_each(|at| self.send(claim, at, requests.clone()));
    }

    fn mode(&self) -> Mode {
        Mode::Slots(NonZeroU32::new(self.slots).unwrap_or(NonZeroU32::MIN))
    }

    /// Node `at` does the next request of `claim`.
    fn serve(&mut self, claim: usize, at: usize) {
        let next = self.ways.get_mut(&(claim, at)).and_then(|way| way.there.pop_front());
        let Some((requests, hint)) = next else { return };
        let (rules, slots, time) = (self.rules, self.slots, self.time);
        let names = self.claims[claim].comer.names.clone();
        let mut told = BTreeSet::new();
        for (name, request) in names.iter().zip(requests) {
            self.nodes[at][*name].take(rules, slots, claim, request, time);
        }
        for name in &names {
            told.extend(self.nodes[at][*name].settle(rules, slots, hint));
        }
        for who in told.into_iter().filter(|who| *who != claim) {
            let rows = self.rows(who, at);
            self.ways.entry((who, at)).or_default().back.push_back((rows, false));
        }
        let rows = self.rows(claim, at);
        self.ways.entry((claim, at)).or_default().back.push_back((rows, true));
    }

    fn rows(&self, claim: usize, at: usize) -> Vec<Row> {
        let names = self.claims[claim].comer.names.iter();
        names.map(|name| self.nodes[at][*name].row(self.rules, claim)).collect()
    }

    /// `claim` hears the next of what node `at` has said, and acts on it.
    fn hear(&mut self, claim: usize, at: usize) -> Option<End> {
        let (rows, answer) = self.ways.get_mut(&(claim, at)).and_then(|way| way.back.pop_front())?;
        let one = &mut self.claims[claim];
        one.heard += 1;
        let node_claim = &mut one.node_claims[at];
        node_claim.telling -= u32::from(answer);
        node_claim.from = BEGIN;
        let uptime = Duration::from_secs(3_600);
        node_claim.take(one.heard, Position { found: true, rows, uptime, run: String::new() }, TTL, BEGIN);
        let entered = one.node_claims.iter().all(|node_claim| node_claim.phase == Phase::In);
        if entered && one.score.is_none() {
            self.decide(claim);
        }
        self.act(claim)
    }

    /// The claim takes its place by what it has heard so far.
    fn decide(&mut self, claim: usize) {
        let mut scores: Vec<u64> = self.claims[claim]
            .node_claims
            .iter()
            .filter_map(|node_claim| node_claim.rows.first().and_then(|row| row.score))
            .collect();
        scores.sort_unstable();
        self.claims[claim].score = scores.get(majority::of(NODES) - 1).copied();
    }

    fn act(&mut self, claim: usize) -> Option<End> {
        let mode = self.mode();
        let one = &mut self.claims[claim];
        if one.over {
            return None;
        }
        let won = majority::won(&one.node_claims, one.comer.names.len(), mode, TTL, BEGIN);
        let (firm, won) = (won.as_ref().is_some_and(|won| won.firm), won.map(|won| won.given));
        let mut end = None;
        if let (None, Some(hold), true) = (&one.hold, &won, firm) {
            one.hold = Some(hold.clone());
            end = self.begins(claim, &hold.clone());
        }
        let one = &mut self.claims[claim];
        let wanted = if let Some(hold) = one.hold.clone().or(won) {
            one.confirm(self.rules, &hold)
        } else {
            let chance = self.below(1_000);
            self.claims[claim].make_way(self.rules, mode, chance)
        };
        for (at, requests) in wanted {
            self.send(claim, at, requests);
        }
        end
    }

    /// The claim's command starts, and who comes within it.
    fn begins(&mut self, claim: usize, hold: &[Granted]) -> Option<End> {
        let mut end = None;
        for (name, hold) in self.claims[claim].comer.names.clone().into_iter().zip(hold) {
            let has_it = |other: &Claim| {
                let names = other.comer.names.iter();
                let mut holds = names.zip(other.hold.iter().flatten());
                holds.any(|(at, other)| *at == name && other.slot == hold.slot)
            };
            if self.claims.iter().enumerate().any(|(at, one)| at != claim && !one.over && has_it(one)) {
                return Some(End::TwoOnOneSlot);
            }
            let last = self.last.insert((name, hold.slot.unwrap_or(0)), hold.token.get());
            if last.is_some_and(|last| last >= hold.token.get()) {
                end = Some(End::TokenFell);
            }
        }
        for inner in self.within(claim) {
            self.send_to_all(inner, Request::Enter);
        }
        end
    }

    fn within(&self, claim: usize) -> Vec<usize> {
        (0..self.claims.len()).filter(|at| self.claims[*at].comer.within == Some(claim)).collect()
    }

    fn leave(&mut self, claim: usize) {
        self.claims[claim].over = true;
        self.send_to_all(claim, Request::Leave);
    }

    /// Nobody tells of slots that others leave: who looks for one asks, when time has passed. Says whether there is anybody.
    fn look(&mut self) -> bool {
        let mode = self.mode();
        let mut any = false;
        for claim in 0..self.claims.len() {
            let one = &self.claims[claim];
            let seeks = |n: usize| {
                let part = one.node_claims.iter().any(|node_claim| node_claim.present(n).is_some());
                part && !Want::of(&one.node_claims, n, mode, TTL, BEGIN).won
            };
            if !one.over && one.hold.is_none() && (0..one.comer.names.len()).any(seeks) {
                any = true;
                self.send_to_all(claim, Request::Nothing);
            }
        }
        any
    }

    /// Lets happen what happens, in an order of chance, until all have run or nobody gets on.
    pub(super) fn run(mut self) -> End {
        let mut looks = 0;
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
                .filter(|at| self.within(*at).into_iter().all(|inner| self.claims[inner].over))
                .collect();
            if self.claims.iter().all(|one| one.over) {
                return End::Well;
            }
            if busy.is_empty() && running.is_empty() {
                looks += 1;
                if looks > LOOKS || !self.look() {
                    return End::StoodStill;
                }
                continue;
            }
            if !running.is_empty() && (busy.is_empty() || self.below(40) == 0) {
                let claim = running[self.below(running.len())];
                self.leave(claim);
                continue;
            }
            let (claim, at) = busy[self.below(busy.len())];
            if self.slow[at] && self.below(30) != 0 {
                // The others have answered for so long that their claim goes on without.
                let entered = self.claims[claim]
                    .node_claims
                    .iter()
                    .filter(|node_claim| node_claim.phase == Phase::In)
                    .count();
                if self.claims[claim].score.is_none() && entered >= majority::of(NODES) && self.below(8) == 0
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
