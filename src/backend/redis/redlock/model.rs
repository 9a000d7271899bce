//! A model of nodes and claims with slots, run under schedules of chance in which some nodes are slow, with the rules that
//! there are and with those that there were: these must be found out.
//!
//! The nodes are those of `quorum.lua`; what a claim makes of their answers is decided by the real [`NodeClaim`] and
//! [`majority`].

use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroU32;
use std::time::Duration;

use super::majority;
use super::model_node::{Node, Request, Rules};
use super::node_claim::{NodeClaim, Phase};
use super::reply::{Position, Row};
use crate::lock::{Granted, Mode, Moment};

const NODES: usize = 5;
const BEGIN: Moment = Moment::from_nanos(3_600_000_000_000);
const TTL: Duration = Duration::from_secs(10);
/// So many steps no schedule takes in which somebody gets on.
const ENOUGH: usize = 60_000;

/// How a schedule ended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum End {
    Well,
    StoodStill,
    TwoOnOneSlot,
    TokenFell,
}

struct Claim {
    node_claims: Vec<NodeClaim>,
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

impl World {
    pub(super) fn new(rules: Rules, slots: u32, claims: usize, seed: u64) -> Self {
        let claim = |_| Claim {
            node_claims: (0..NODES).map(|_| NodeClaim::new(1)).collect(),
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
        self.claims[claim].node_claims[at].telling += 1;
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
        let node_claim = &mut one.node_claims[at];
        node_claim.telling -= u32::from(answer);
        node_claim.from = BEGIN;
        let uptime = Duration::from_secs(3_600);
        node_claim.take(
            one.heard,
            Position { found: true, rows: vec![row], uptime, run: String::new() },
            TTL,
            BEGIN,
        );
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
        let won = majority::won(&one.node_claims, 1, mode, TTL, BEGIN);
        let (firm, won) = (won.as_ref().is_some_and(|won| won.firm), won.map(|won| won.names[0]));
        let mut end = None;
        if let (None, Some(hold), true) = (one.hold, won, firm) {
            one.hold = Some(hold);
            end = self.begins(claim, hold);
        }
        let one = &mut self.claims[claim];
        let mut wanted = Vec::new();
        if let Some(hold) = one.hold.or(won) {
            for (at, node_claim) in
                one.node_claims.iter().enumerate().filter(|(_, node_claim)| node_claim.can_be_told())
            {
                let (row, part) = (&node_claim.rows[0], node_claim.rows[0].granted());
                let differs = part.is_none_or(|part| part.slot != hold.slot) && row.score != Some(0);
                if row.fence < hold.token.get() || (row.score != Some(0) && !self.rules.moves) || differs {
                    let given = part.map(|part| part.token.get());
                    let slot = hold.slot.unwrap_or(0);
                    wanted.push((at, Request::Confirm { token: hold.token.get(), slot, given }));
                }
            }
        } else {
            let chance = self.below(1_000);
            wanted = Self::make_way(&mut self.claims[claim], self.rules, mode, chance);
        }
        for (at, request) in wanted {
            self.send(claim, at, request);
        }
        end
    }

    fn make_way(one: &mut Claim, rules: Rules, mode: Mode, chance: usize) -> Vec<(usize, Request)> {
        let want = if rules.moves {
            slot_to_move_to(&one.node_claims, mode, chance)
        } else {
            majority::slot_to_want(&one.node_claims, 0, mode, BEGIN)
        };
        let first = !one.ordered && one.score.is_some();
        one.ordered |= first;
        let score = one.score;
        let mut wanted = Vec::new();
        for (at, node_claim) in
            one.node_claims.iter_mut().enumerate().filter(|(_, node_claim)| node_claim.phase == Phase::In)
        {
            let (behind, part) = (node_claim.rows[0].behind, node_claim.rows[0].granted());
            let other = node_claim.rows[0].score.filter(|at| *at != 0 && Some(*at) != score);
            if let (Some(score), Some(_), true) = (score, other, first || rules.order_again) {
                if node_claim.can_be_told() || first {
                    wanted.push((at, Request::Order(score)));
                }
                continue;
            }
            let (Some(part), true) = (part, node_claim.can_be_told()) else { continue };
            let wish = want.filter(|slot| !node_claim.rows[0].taken.contains(slot));
            let differs = wish.is_some_and(|slot| part.slot != Some(slot));
            if behind || node_claim.present(0).is_none() || (differs && !rules.moves) {
                node_claim.give_back(0, part.token);
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
