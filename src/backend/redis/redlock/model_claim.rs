//! What a claim of the model asks of nodes.

use std::time::Duration;

use super::majority;
use super::model_node::{Request, Rules};
use super::node_claim::{NodeClaim, Phase};
use super::reply::Row;
use super::want::Want;
use crate::lock::{Granted, Mode, Moment};

pub(super) const BEGIN: Moment = Moment::from_nanos(3_600_000_000_000);
pub(super) const TTL: Duration = Duration::from_secs(10);

/// One who comes: for which names, and within whose hold, which ends no sooner.
#[derive(Clone)]
pub(super) struct Comer {
    pub(super) names: Vec<usize>,
    pub(super) within: Option<usize>,
}

/// What the model knows of one claim.
pub(super) struct Claim {
    pub(super) comer: Comer,
    pub(super) node_claims: Vec<NodeClaim>,
    pub(super) heard: u64,
    pub(super) score: Option<u64>,
    pub(super) ordered: bool,
    pub(super) hold: Option<Vec<Granted>>,
    pub(super) over: bool,
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

impl Claim {
    pub(super) fn new(comer: Comer, nodes: usize) -> Self {
        Self {
            node_claims: (0..nodes).map(|_| NodeClaim::new(comer.names.len())).collect(),
            comer,
            heard: 0,
            score: None,
            ordered: false,
            hold: None,
            over: false,
        }
    }

    /// What it tells nodes of its hold.
    pub(super) fn confirm(&self, rules: Rules, hold: &[Granted]) -> Vec<(usize, Vec<Request>)> {
        let mut wanted = Vec::new();
        for (at, node_claim) in self.node_claims.iter().enumerate().filter(|(_, n)| n.can_be_told()) {
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

    /// What it asks of nodes without a hold.
    pub(super) fn make_way(&mut self, rules: Rules, mode: Mode, chance: usize) -> Vec<(usize, Vec<Request>)> {
        let names = 0..self.comer.names.len();
        let wants: Vec<Want> = names.map(|n| Want::of(&self.node_claims, n, mode, TTL, BEGIN)).collect();
        let move_to = if rules.moves { slot_to_move_to(&self.node_claims, mode, chance) } else { None };
        let first = !self.ordered && self.score.is_some();
        self.ordered |= first;
        let score = self.score;
        let mut wanted = Vec::new();
        for (at, node_claim) in
            self.node_claims.iter_mut().enumerate().filter(|(_, node_claim)| node_claim.phase == Phase::In)
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
}
