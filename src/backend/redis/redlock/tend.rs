//! Acting on what was learnt, and learning of changes.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use super::core::{Aim, Core, Inner, UNTOLD};
use super::leg::{Leg, Phase};
use super::script::{ADJUST, CONFIRM, LOOK};
use super::tally::{self, Won};
use crate::backend::redis::connection::Connection;
use crate::clock::Alarm;
use crate::lock::{Grant, Mode, Moment};

/// A hold that ends sooner is not worth listening for its loss.
const SHORT_HOLD: Duration = Duration::from_millis(100);
/// The longest pause before another attempt to gather on one slot.
const LONGEST_PAUSE_MS: u32 = 32;

/// What is to be done next.
enum Plan {
    Nothing,
    /// The tokens are to be written to a majority before the hold counts.
    Confirm(Won),
    /// For each leg what its node is asked to change.
    Adjust(Vec<Option<Vec<String>>>),
}

impl Core {
    /// Decides what to do; takes the hold if there is nothing left to do for it.
    fn plan(&self, attempt: u32) -> Plan {
        let now = self.clock.now();
        let mut inner = self.inner();
        if inner.grant.is_some() || inner.leaving || tally::lost(&inner.legs, now) {
            return Plan::Nothing;
        }
        match tally::won(&inner.legs, self.names.len(), self.mode, self.ttl, now) {
            Some(won) if won.firm => {
                inner.held_at = now;
                inner.last_good = inner.last_good.max(won.counts_from);
                inner.grant = Some(Grant { names: won.names, counts_from: won.counts_from });
                drop(inner);
                self.learnt();
                Plan::Nothing
            }
            Some(won) => Plan::Confirm(won),
            None => self.make_way(&mut inner, attempt, now),
        }
    }

    /// Without a majority everything goes back for which somebody waits who comes first, and of slots those that
    /// are not the same at a majority are exchanged.
    fn make_way(&self, inner: &mut Inner, attempt: u32, now: Moment) -> Plan {
        let seed = u32::try_from(self.id.to_number() & 0xffff).unwrap_or(0).wrapping_mul(attempt);
        let wanted: Vec<Option<u32>> = (0..self.names.len())
            .map(|n| tally::slot_to_want(&inner.legs, n, self.mode, seed, now))
            .collect();
        let mut changes = Vec::with_capacity(inner.legs.len());
        let stuck = matches!(self.mode, Mode::Slots(_)) && wanted.iter().all(Option::is_none);
        for leg in &mut inner.legs {
            if stuck && leg.present(0).is_some() {
                // Nobody tells of slots that others exchange.
                leg.look_at = leg.look_at.min(now + UNTOLD);
            }
            let mut change = vec![String::new(); self.names.len()];
            for (n, change) in change.iter_mut().enumerate() {
                let Some(granted) = leg.present(n).filter(|_| leg.phase == Phase::In) else { continue };
                if leg.rows[n].behind {
                    leg.give_back(n, granted.token);
                    *change = format!("y{}", granted.token);
                } else if let Some(slot) = wanted[n].filter(|slot| granted.slot != Some(*slot)) {
                    *change = format!("s{slot}");
                }
            }
            changes.push(change.iter().any(|words| !words.is_empty()).then_some(change));
        }
        if changes.iter().any(Option::is_some) { Plan::Adjust(changes) } else { Plan::Nothing }
    }

    /// Does what there is to do about what was learnt.
    pub(super) async fn act(self: &Arc<Self>) {
        let _turn = self.acting.lock().await;
        for attempt in 0.. {
            let deadline = self.clock.now() + self.patience();
            match self.plan(attempt) {
                Plan::Nothing => return,
                Plan::Confirm(won) => {
                    let firm = |core: &Self| core.is_firm();
                    self.confirm(&won.names, deadline, firm).await;
                    if !self.is_firm() && !self.pause(attempt).await {
                        return;
                    }
                }
                Plan::Adjust(changes) => {
                    let hint = self.next_token();
                    let make = |at: usize, _: &Leg| Some(self.step(&ADJUST, hint, changes[at].as_deref()?));
                    self.round(Aim::Other, deadline, make, |_| true).await;
                    if matches!(self.mode, Mode::Slots(_)) && !self.pause(attempt).await {
                        return;
                    }
                }
            }
        }
    }

    /// Waits a little, differently long in each claim; says whether to go on.
    async fn pause(&self, attempt: u32) -> bool {
        let bits = u32::try_from((self.id.to_number() >> (attempt % 16 * 8)) & 0xff).unwrap_or(1);
        let most = LONGEST_PAUSE_MS.min(1 << attempt.min(5));
        self.clock.sleep_until(self.clock.now() + Duration::from_millis((bits % most).into())).await;
        !self.is_over()
    }

    fn is_firm(&self) -> bool {
        let inner = self.inner();
        let now = self.clock.now();
        tally::won(&inner.legs, self.names.len(), self.mode, self.ttl, now).is_none_or(|won| won.firm)
    }

    /// Writes the tokens of a claim that has a majority to all nodes, and has it go before everybody who waits.
    pub(super) async fn confirm(
        self: &Arc<Self>,
        names: &[crate::lock::Granted],
        deadline: Moment,
        enough: impl Fn(&Self) -> bool,
    ) {
        let words: Vec<String> = names
            .iter()
            .flat_map(|granted| {
                [granted.token.to_string(), granted.slot.map_or_else(String::new, |slot| slot.to_string())]
            })
            .collect();
        self.inner().confirming = names.iter().map(|granted| granted.token.get()).collect();
        let step = self.step(&CONFIRM, self.next_token(), &words);
        self.round(Aim::Floor, deadline, |_, leg| (leg.phase == Phase::In).then(|| step.clone()), enough)
            .await;
    }

    /// For a hold: the nodes at which it does not stand as at the others are told, in the background.
    pub(super) fn tidy(self: &Arc<Self>) {
        let differs = {
            let inner = self.inner();
            let Some(grant) = &inner.grant else { return };
            let same = |leg: &Leg| {
                let same = |(n, granted)| leg.present(n) == Some(granted);
                leg.phase != Phase::In || grant.names.iter().copied().enumerate().all(same)
            };
            if inner.legs.iter().all(same) { None } else { Some(grant.names.clone()) }
        };
        if let Some(names) = differs {
            let core = Arc::clone(self);
            let deadline = self.clock.now() + self.patience();
            tokio::spawn(async move { core.confirm(&names, deadline, |_| false).await });
        }
    }

    /// Asks node `at` how the claim stands there.
    async fn look(&self, at: usize) {
        let step = self.step(&LOOK, self.next_token(), &[]);
        // What went wrong is kept with the leg.
        drop(self.exchange(at, &step, Aim::Look, self.clock.now() + self.patience()).await);
        self.inner().legs[at].looking = false;
        self.stir.notify_one();
    }

    /// Starts the looks that are due, and says when time alone makes the next one due.
    fn look_around(self: &Arc<Self>) -> (Moment, Vec<(Arc<Connection>, u64)>) {
        let now = self.clock.now();
        let mut inner = self.inner();
        let mut next = inner.legs.iter().map(|leg| leg.abstains_until).filter(|until| *until > now).min();
        if inner.grant.is_some() && now < inner.held_at + SHORT_HOLD {
            let after = inner.held_at + SHORT_HOLD;
            return (next.map_or(after, |next| next.min(after)), Vec::new());
        }
        let mut listened = Vec::new();
        for (at, leg) in inner.legs.iter_mut().enumerate() {
            // Where it is not, a renewal brings it back.
            if leg.phase == Phase::Unknown || leg.phase == Phase::Missing {
                continue;
            }
            if leg.is_due(now) {
                leg.looking = true;
                let core = Arc::clone(self);
                tokio::spawn(async move { core.look(at).await });
            }
            if !leg.looking {
                next = Some(next.map_or(leg.look_at, |next| next.min(leg.look_at)));
                listened.extend(leg.armed.as_ref().map(|a| (Arc::clone(&a.connection), a.told)));
            }
        }
        (next.unwrap_or(Moment::NEVER), listened)
    }

    /// Follows the claim until it ends: acts, looks where something may have changed, and waits for the next change.
    pub(super) async fn tend(self: Arc<Self>) {
        let mut alarm = Alarm::default();
        while !self.is_over() {
            self.act().await;
            let (next, listened) = self.look_around();
            let mut told: Vec<Pin<Box<dyn Future<Output = ()> + Send + '_>>> = listened
                .iter()
                .map(|(connection, told)| Box::pin(connection.news_after(*told)) as Pin<Box<_>>)
                .collect();
            let any = poll_fn(|context| {
                let ready = told.iter_mut().any(|one| one.as_mut().poll(context).is_ready());
                if ready { Poll::Ready(()) } else { Poll::Pending }
            });
            tokio::select! {
                () = self.stir.notified() => {}
                () = any => {}
                () = alarm.sleep_until(self.clock, next) => {}
            }
            // Time alone may have changed it, where a node abstained.
            self.tell();
        }
    }
}
