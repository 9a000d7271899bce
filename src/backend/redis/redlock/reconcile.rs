//! Acting on what was learnt, and learning of changes.

use std::sync::Arc;

use super::core::{Aim, Core, Inner};
use super::majority;
use super::node_claim::{NodeClaim, Phase};
use super::reply::Row;
use super::script::{ADJUST, ASSURE, CONFIRM, LOOK, ORDER};
use super::want::Want;
use crate::backend::claim_state::{POLL, SHORT_HOLD};
use crate::backend::redis::connection::{Connection, any_notified};
use crate::backend::redis::script::Step;
use crate::clock::Alarm;
use crate::lock::{Grant, Granted, Mode, Moment};

/// How often in a row one acts on the answers to what one did; whatever is then left to do waits for news.
const MOST_TURNS: u32 = 32;

/// For each node claim what its node is told, if anything.
type Steps = Vec<Option<Step>>;

/// What is to be done next.
enum Plan {
    Nothing,
    /// The hold waits for that.
    Confirm(Steps),
    /// Without a majority.
    MakeWay(Steps),
    /// For a hold; nobody waits for it.
    Aside(Steps),
}

impl Core {
    /// Decides what to do; takes the hold if there is nothing left to do for it. `thorough` also tells nodes what concerns
    /// later claims alone.
    fn plan(&self, thorough: bool) -> Plan {
        let (now, hint) = (self.clock.now(), self.next_token());
        let mut inner = self.inner();
        if self.publisher.is_leaving() || majority::lost(&inner.node_claims, now) {
            return Plan::Nothing;
        }
        if inner.grant.is_none()
            && let Some(won) = majority::won(&inner.node_claims, self.names.len(), self.mode, self.ttl, now)
        {
            if !won.firm {
                let steps = self.told(&mut inner, |core, node_claim| {
                    core.confirmation(node_claim, &won.given, hint, true)
                });
                return if steps.iter().any(Option::is_some) { Plan::Confirm(steps) } else { Plan::Nothing };
            }
            self.publisher.prove(won.counts_from);
            inner.grant = Some(Grant { names: won.given, counts_from: won.counts_from });
            drop(inner);
            self.learnt();
            inner = self.inner();
        }
        let steps = match inner.grant.clone() {
            Some(grant) if thorough || self.is_told_of_at_once() => {
                self.told(&mut inner, |core, node_claim| {
                    core.confirmation(node_claim, &grant.names, hint, thorough || core.supersedes())
                })
            }
            Some(_) => return Plan::Nothing,
            None => return self.make_way(&mut inner, now, hint),
        };
        if steps.iter().any(Option::is_some) { Plan::Aside(steps) } else { Plan::Nothing }
    }

    /// Whether nodes have to know of a hold soon: with slots nobody else gets in before, and what waits at a node and can be
    /// superseded is taken out there by a newer one.
    fn is_told_of_at_once(&self) -> bool {
        matches!(self.mode, Mode::Slots(_)) || self.supersedes()
    }

    fn supersedes(&self) -> bool {
        self.newcomer[1] != "0"
    }

    /// What the node claims that can be told are told, by `make`.
    fn told(&self, inner: &mut Inner, make: impl Fn(&Self, &mut NodeClaim) -> Option<Step>) -> Steps {
        let tell = |node_claim: &mut NodeClaim| {
            let step = if node_claim.can_be_told() { make(self, node_claim) } else { None };
            node_claim.telling += u32::from(step.is_some());
            step
        };
        inner.node_claims.iter_mut().map(tell).collect()
    }

    /// What tells a node of a majority for `names`, if it does not know: it gives no lower token, lets nobody who waits go
    /// before the claim, and lets the next one in.
    fn confirmation(
        &self,
        node_claim: &NodeClaim,
        names: &[Granted],
        hint: u64,
        thorough: bool,
    ) -> Option<Step> {
        let slots = matches!(self.mode, Mode::Slots(_));
        let unknown = |(row, hold): (&Row, &Granted)| {
            let part = row.granted();
            let told = row.score == Some(0);
            let lower = row.fence < hold.token.get();
            if thorough {
                lower || (!told && (slots || part != Some(*hold)))
            } else {
                !told && part.is_some()
            }
        };
        if !node_claim.rows.iter().zip(names).any(unknown) {
            return None;
        }
        let word = |text: Option<String>| text.unwrap_or_default();
        let words: Vec<String> = node_claim
            .rows
            .iter()
            .zip(names)
            .flat_map(|(row, hold)| {
                let slot = hold.slot.map(|slot| slot.to_string());
                let given = row.granted().map(|given| given.token.to_string());
                [hold.token.to_string(), word(slot), word(given)]
            })
            .collect();
        Some(self.step(&CONFIRM, hint, &words))
    }

    /// Without a majority for all names: everywhere the same place in the queue, and with it the comparison with others that
    /// supersede; everything goes back for which somebody waits who comes first; of slots that differ those go back that are
    /// not the one to be had everywhere; and where a majority gave a slot the nodes are told, so that nobody waits there until
    /// the others are to be had as well.
    fn make_way(&self, inner: &mut Inner, now: Moment, hint: u64) -> Plan {
        let want = |n| Want::of(&inner.node_claims, n, self.mode, self.ttl, now);
        let wants: Vec<Want> = (0..self.names.len()).map(want).collect();
        let score = inner.score;
        let steps = self.told(inner, |core, node_claim| {
            let placed = |row: &Row| row.score == score && (row.compared || !core.supersedes());
            let unplaced = |row: &Row| row.score.is_some_and(|at| at != 0) && !placed(row);
            match score {
                Some(score) if node_claim.rows.iter().any(unplaced) => {
                    let [by, newest] = core.newcomer.clone();
                    Some(core.step(&ORDER, hint, &[score.to_string(), by, newest]))
                }
                _ => core
                    .giving_back(node_claim, &wants, hint)
                    .or_else(|| core.assurance(node_claim, &wants, hint)),
            }
        });
        if steps.iter().any(Option::is_some) {
            return Plan::MakeWay(steps);
        }
        if matches!(self.mode, Mode::Slots(_)) {
            // Nobody tells of slots that others leave.
            let looks_for_one = |node_claim: &&mut NodeClaim| {
                wants.iter().enumerate().any(|(n, want)| !want.won && node_claim.present(n).is_some())
            };
            for node_claim in inner.node_claims.iter_mut().filter(looks_for_one) {
                node_claim.look_at = node_claim.look_at.min(now + POLL);
            }
        }
        Plan::Nothing
    }

    /// What gives back what the claim should not have at that node claim; it counts no more from now on. Asked for again for as
    /// long as it is there.
    fn giving_back(&self, node_claim: &mut NodeClaim, wants: &[Want], hint: u64) -> Option<Step> {
        let mut words = Vec::with_capacity(wants.len() * 2);
        for (n, want) in wants.iter().enumerate() {
            let wish = want.wish(&node_claim.rows[n]);
            let given = want.goes_back(node_claim, n);
            words.push(given.map_or_else(String::new, |given| given.token.to_string()));
            words.push(wish.map_or_else(String::new, |slot| slot.to_string()));
            if let Some(given) = given {
                node_claim.give_back(n, given.token);
            }
        }
        let any = words.iter().step_by(2).any(|token| !token.is_empty());
        any.then(|| self.step(&ADJUST, hint, &words))
    }

    /// What tells a node that what it gave is a part of what a majority gave, if it does not know.
    fn assurance(&self, node_claim: &NodeClaim, wants: &[Want], hint: u64) -> Option<Step> {
        let token = |(n, want): (usize, &Want)| {
            want.to_assure(node_claim, n).map_or_else(String::new, |given| given.token.to_string())
        };
        let words: Vec<String> = wants.iter().enumerate().map(token).collect();
        words.iter().any(|token| !token.is_empty()).then(|| self.step(&ASSURE, hint, &words))
    }

    /// Does what there is to do about what was learnt, by `until`.
    pub(super) async fn act(self: &Arc<Self>, until: Moment) {
        let _turn = self.acting.lock().await;
        for _ in 0..MOST_TURNS {
            let now = self.clock.now();
            if now >= until {
                return;
            }
            let deadline = until.min(now + self.patience());
            match self.plan(false) {
                Plan::Nothing => return,
                Plan::Confirm(steps) => {
                    let make = |at: usize, _: &NodeClaim| steps[at].clone();
                    self.round(Aim::Change, deadline, make, Self::is_firm).await;
                }
                Plan::MakeWay(steps) => {
                    self.round(Aim::Change, deadline, |at, _| steps[at].clone(), |_| true).await;
                }
                Plan::Aside(steps) => return self.send_off(steps),
            }
        }
    }

    fn is_firm(&self) -> bool {
        let inner = self.inner();
        let now = self.clock.now();
        majority::won(&inner.node_claims, self.names.len(), self.mode, self.ttl, now)
            .is_none_or(|won| won.firm)
    }

    fn send_off(self: &Arc<Self>, steps: Steps) {
        let deadline = self.clock.now() + self.patience();
        for (at, step) in steps.into_iter().enumerate() {
            let Some(step) = step else { continue };
            let core = Arc::clone(self);
            // What went wrong is kept with the node claim.
            tokio::spawn(async move { drop(core.exchange(at, &step, Aim::Change, deadline).await) });
        }
    }

    /// For a hold: the nodes at which it does not stand as at the others are told, in the background.
    pub(super) fn tidy(self: &Arc<Self>) {
        if self.inner().grant.is_some()
            && let Plan::Aside(steps) = self.plan(true)
        {
            self.send_off(steps);
        }
    }

    /// Asks node `at` how the claim stands there.
    async fn look(&self, at: usize) {
        let step = self.step(&LOOK, self.next_token(), &[]);
        // What went wrong is kept with the node claim.
        drop(self.exchange(at, &step, Aim::Look, self.clock.now() + self.patience()).await);
        self.inner().node_claims[at].looking = false;
        self.stir.notify_one();
    }

    /// Starts the looks that are due, and says when time alone makes the next one due.
    fn look_around(self: &Arc<Self>) -> (Moment, Vec<(Arc<Connection>, u64)>) {
        let now = self.clock.now();
        let mut inner = self.inner();
        let mut next = inner
            .node_claims
            .iter()
            .map(|node_claim| node_claim.abstains_until)
            .filter(|until| *until > now)
            .min();
        if let Some(after) = self.publisher.held_at().map(|at| at + SHORT_HOLD).filter(|after| now < *after) {
            return (next.map_or(after, |next| next.min(after)), Vec::new());
        }
        let mut listened = Vec::new();
        for (at, node_claim) in inner.node_claims.iter_mut().enumerate() {
            // Where it is not, a renewal brings it back.
            if node_claim.phase == Phase::Unknown || node_claim.phase == Phase::Missing {
                continue;
            }
            if node_claim.is_due(now) {
                node_claim.looking = true;
                let core = Arc::clone(self);
                tokio::spawn(async move { core.look(at).await });
            }
            if !node_claim.looking {
                next = Some(next.map_or(node_claim.look_at, |next| next.min(node_claim.look_at)));
                listened.extend(node_claim.armed.as_ref().map(|a| (Arc::clone(&a.connection), a.notified)));
            }
        }
        (next.unwrap_or(Moment::NEVER), listened)
    }

    /// Follows the claim until it ends: acts, looks where something may have changed, and waits for the next change.
    pub(super) async fn reconcile(self: Arc<Self>) {
        let mut alarm = Alarm::default();
        while !self.is_over() {
            self.act(Moment::NEVER).await;
            let (next, listened) = self.look_around();
            tokio::select! {
                () = self.stir.notified() => {}
                () = any_notified(&listened) => {}
                () = alarm.sleep_until(self.clock, next) => {}
            }
            // Time alone may have changed it, where a node abstained.
            self.tell();
        }
    }
}
