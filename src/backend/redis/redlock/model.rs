//! A model of nodes and claims with slots, run under schedules of chance in which some nodes are slow, with the rules that
//! there are and with those that there were: these must be found out.
//!
//! The nodes are those of `quorum.lua`; what a claim makes of their answers is decided by the real [`NodeClaim`] and
//! [`majority`].

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::num::NonZeroU32;
use std::time::Duration;

use super::majority;
use super::model_node::{Node, Request, Rules};
use super::node_claim::{NodeClaim, Phase};
use super::reply::{Position, Row};
use super::want::Want;
use crate::lock::{Granted, Mode, Moment};

const NODES: usize = 5;
const BEGIN: Moment = Moment::from_nanos(3_600_000_000_000);
const TTL: Duration = Duration::from_secs(10);
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

/// One who comes: for which names, and within whose hold, which ends no sooner.
#[derive(Clone)]
pub(super) struct Comer {
    pub(super) names: Vec<usize>,
    pub(super) within: Option<usize>,
}

struct Claim {
    comer: Comer,
    node_claims: Vec<NodeClaim>,
    heard: u64,
    score: Option<u64>,
    ordered: bool,
    hold: Option<Vec<Granted>>,
    over: bool,
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

/// Where a claim that moves slots gathers: one of those that most others leave it, by chance.
fn slot_to_move_to(node_claims: &[NodeClaim], mode: Mode, chance: usize) -> Option<u32> {
    let Mode::Slots(slots) = mode else { return None };
    let given: Vec<(&NodeClaim, Granted)> =
        node_claims.iter().filter_map(|node_claim| Some((node_claim, node_claim.present(0)?))).collect();
    let worth = |slot: u32| {
        let open = given.iter().filter(|(node_claim, _)| !node_claim.rows[0].taken.contains(&slot)).count();
        (open, given.iter().filter(|(_, part)| part.slot == Some(slot)).count())
    };
    let most = majority::of(node_claims.len());
    let best = (1..=slots.get()).map(worth).filter(|(open, _)| *open >= most).max()?;
    let all: Vec<u32> = (1..=slots.get()).filter(|slot| worth(*slot) == best).collect();
    all.get(chance % all.len()).copied().filter(|_| given.len() >= most)
}

/// What a claim that moves slots asks of a node.
fn moved(node_claim: &mut NodeClaim, to: Option<u32>) -> Request {
    let row = &node_claim.rows[0];
    let Some(part) = row.granted() else { return Request::Nothing };
    if row.behind || node_claim.present(0).is_none() {
        let wish = to.filter(|slot| !row.taken.contains(slot));
        node_claim.give_back(0, part.token);
        return Request::GiveBack { token: part.token.get(), wish };
    }
    to.filter(|slot| part.slot != Some(*slot)).map_or(Request::Nothing, Request::Move)
}

/// What a claim that gives back asks of a node for its `n`th name.
fn given_back(node_claim: &mut NodeClaim, n: usize, want: Want) -> Request {
    let wish = want.wish(&node_claim.rows[n]);
    let Some(part) = want.goes_back(node_claim, n) else { return Request::Nothing };
    node_claim.give_back(n, part.token);
    Request::GiveBack { token: part.token.get(), wish }
}

impl World {
    pub(super) fn new(rules: Rules, slots: u32, comers: Vec<Comer>, seed: u64) -> Self {
        let names = comers.iter().flat_map(|comer| &comer.names).max().map_or(0, |last| last + 1);
        let claim = |comer: Comer| Claim {
            node_claims: (0..NODES).map(|_| NodeClaim::new(comer.names.len())).collect(),
            comer,
            heard: 0,
            score: None,
            ordered: false,
            hold: None,
            over: false,
        };
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
            Self::confirm(one, self.rules, &hold)
        } else {
            let chance = self.below(1_000);
            Self::make_way(&mut self.claims[claim], self.rules, mode, chance)
        };
        for (at, requests) in wanted {
            self.send(claim, at, requests);
        }
        end
    }

    fn confirm(one: &Claim, rules: Rules, hold: &[Granted]) -> Vec<(usize, Vec<Request>)> {
        let mut wanted = Vec::new();
        for (at, node_claim) in one.node_claims.iter().enumerate().filter(|(_, n)| n.can_be_told()) {
            let unknown = |(row, hold): (&Row, &Granted)| {
                let part = row.granted();
                let differs = part.is_none_or(|part| part.slot != hold.slot) && row.score != Some(0);
                row.fence < hold.token.get() || (row.score != Some(0) && !rules.moves) || differs
            };
            if node_claim.rows.iter().zip(hold).any(unknown) {
                let request = |(row, hold): (&Row, &Granted)| Request::Confirm {
                    token: hold.token.get(),
                    slot: hold.slot.unwrap_or(0),
                    given: row.granted().map(|part| part.token.get()),
                };
                wanted.push((at, node_claim.rows.iter().zip(hold).map(request).collect()));
            }
        }
        wanted
    }

    fn make_way(one: &mut Claim, rules: Rules, mode: Mode, chance: usize) -> Vec<(usize, Vec<Request>)> {
        let names = 0..one.comer.names.len();
        let wants: Vec<Want> = names.map(|n| Want::of(&one.node_claims, n, mode, TTL, BEGIN)).collect();
        let move_to = if rules.moves { slot_to_move_to(&one.node_claims, mode, chance) } else { None };
        let first = !one.ordered && one.score.is_some();
        one.ordered |= first;
        let score = one.score;
        let mut wanted = Vec::new();
        for (at, node_claim) in
            one.node_claims.iter_mut().enumerate().filter(|(_, node_claim)| node_claim.phase == Phase::In)
        {
            let other = |row: &Row| row.score.is_some_and(|at| at != 0 && Some(at) != score);
            if let (Some(score), true) = (score, first || rules.order_again)
                && node_claim.rows.iter().any(other)
            {
                if node_claim.can_be_told() || first {
                    wanted.push((at, vec![Request::Order(score); wants.len()]));
                }
                continue;
            }
            if !node_claim.can_be_told() {
                continue;
            }
            let requests: Vec<Request> = if rules.moves {
                vec![moved(node_claim, move_to)]
            } else {
                let back = wants.iter().enumerate().map(|(n, want)| given_back(node_claim, n, *want));
                back.collect()
            };
            let assure = |(n, want): (usize, &Want)| {
                let given = want.to_assure(node_claim, n).filter(|_| rules.by_name);
                given.map_or(Request::Nothing, |given| Request::Assure { token: given.token.get() })
            };
            let any = |requests: &[Request]| requests.iter().any(|r| !matches!(r, Request::Nothing));
            let requests =
                if any(&requests) { requests } else { wants.iter().enumerate().map(assure).collect() };
            if any(&requests) {
                wanted.push((at, requests));
            }
        }
        wanted
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
