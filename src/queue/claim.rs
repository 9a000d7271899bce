//! One claim: its task reads, decides and commits.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::{Mutex as Turn, Notify};
use tokio::task::AbortHandle;

use super::decide::{self, Stand, Wait};
use super::enter::{append, removal};
use super::store::{Answer, Change, Extent, Item, Note, Own, Seen, Step, Store, Target, Watched};
use crate::backend::Claim;
use crate::backend::claim_state::{POLL, Publisher, SHORT_HOLD, due, patience};
use crate::clock::Clock;
use crate::lock::{
    ClaimState, Error, ErrorKind, FencingToken, Granted, LockName, LossReason, Mode, Moment, Request, Result,
};
use crate::net::fault::{Fault, FaultResult};
use crate::sync::locked;

/// The time to find the reason for a vanished entry before its end is published without one.
const WHY: Duration = Duration::from_millis(200);
/// The time for such a claim to leave its other queues.
const LEAVING: Duration = Duration::from_secs(1);
/// The first pause before another attempt at a store that is down.
const PAUSE: Duration = Duration::from_millis(50);
/// The pause before another attempt to take a slot.
const SLOT_PAUSE: Duration = Duration::from_millis(20);
/// When a claim that waited records how long it has held, for display. A shorter hold shows its arrival.
const LONG_HOLD: Duration = Duration::from_secs(1);

/// The next reason to read the claim.
#[derive(Debug)]
enum Place {
    Gone,
    /// A change of its own entry, or the end of a target, after what was seen.
    Follows {
        on: Vec<Target>,
        until: Moment,
        seen: Seen,
    },
}

#[derive(Debug)]
struct Core {
    store: Arc<dyn Store>,
    clock: Clock,
    request: Request,
    own: Mutex<Own>,
    publisher: Publisher,
    /// Whether it had to wait, or may have.
    waited: AtomicBool,
    /// Its entries, as they were read last.
    items: Mutex<Vec<Item>>,
    /// Held while the claim is read and its hold is taken.
    turn: Turn<()>,
    /// The result of the last renewal, if the claim was not read since then.
    renewed: Mutex<Option<Place>>,
    /// Makes the task read.
    look: Notify,
}

/// A claim, followed by a task while it exists. Dropping it leaves its entry to its ttl.
#[derive(Debug)]
pub(super) struct QueueClaim {
    core: Arc<Core>,
    task: AbortHandle,
}

impl QueueClaim {
    /// Joins the queues and follows the claim from then on.
    pub(super) async fn enter(
        store: &Arc<dyn Store>,
        clock: Clock,
        request: &Request,
        deadline: Moment,
    ) -> FaultResult<Self> {
        let (own, answer) = append(&**store, request, deadline).await?;
        let core = Arc::new(Core {
            store: Arc::clone(store),
            clock,
            request: request.clone(),
            publisher: Publisher::new(clock, answer.sent),
            waited: AtomicBool::new(store.is_past_arrival(&own, &answer)),
            own: Mutex::new(own),
            items: Mutex::default(),
            turn: Turn::default(),
            renewed: Mutex::default(),
            look: Notify::new(),
        });
        let place = core.settle(answer, false, deadline).await?;
        let task = tokio::spawn(follow(Arc::clone(&core), place)).abort_handle();
        Ok(Self { core, task })
    }

    /// Returns whether a caller that enters again with its id can use it.
    pub(super) fn is_live(&self) -> bool {
        !self.core.publisher.is_over()
    }
}

/// Reads the claim whenever it may have changed, until it is over.
async fn follow(core: Arc<Core>, mut place: Place) {
    let mut marked = false;
    while let Place::Follows { on, until, seen } = &place {
        let own = core.own();
        let next = async {
            // Most commands end before.
            let young = core.publisher.held_at().map(|at| core.after(at + SHORT_HOLD));
            futures_util::future::OptionFuture::from(young).await;
            core.store.changed(Watched::Claim { own: &own, on }, *seen, *until).await
        };
        let mark_at = core.mark_at().filter(|_| !marked).unwrap_or(Moment::NEVER);
        let changed = tokio::select! {
            changed = next => changed,
            () = core.look.notified() => Ok(()),
            () = core.after(mark_at), if !mark_at.is_never() => {
                marked = true;
                let each = own.names.iter().cloned().zip(locked(&core.items).clone()).collect();
                core.mark(&own, each, core.clock.now() + patience(own.ttl)).await;
                Ok(())
            }
        };
        if changed.is_ok()
            && core.clock.now() >= *until
            && let Some(newer) = locked(&core.renewed).take()
        {
            place = newer;
            continue;
        }
        let (mut outcome, mut pause, holds) = (changed, PAUSE, core.publisher.holds());
        place = loop {
            if let Err(fault) = outcome {
                // A refusal lasts.
                pause = if fault.is_transient() { pause } else { POLL };
                core.publisher.cannot_follow(fault);
                core.clock.sleep_until(core.clock.now() + pause).await;
                // Waiters would take the room for the connection of a holder that does not come back at once.
                pause = if holds { PAUSE } else { (pause * 2).min(POLL) };
            }
            if core.publisher.is_over() {
                return;
            }
            outcome = match core.read(core.clock.now() + patience(own.ttl)).await {
                Ok(place) => break place,
                Err(fault) => Err(fault),
            };
        };
    }
}

impl Core {
    fn own(&self) -> Own {
        locked(&self.own).clone()
    }

    fn is_slotted(&self) -> bool {
        matches!(self.request.mode, Mode::Slots(_))
    }

    fn hold_is_a_step(&self) -> bool {
        self.store.hold_is_a_step(self.request.mode, self.waited.load(Ordering::Relaxed))
    }

    /// Reads and publishes the state of the claim, and takes its hold if it may. A waiter whose hold is a step without
    /// slots makes that step at once: the answer shows whether it holds, and else the step means nothing.
    async fn read(&self, deadline: Moment) -> FaultResult<Place> {
        let late = || Fault::unavailable("an earlier request had no answer by the deadline");
        let _turn = self.clock.by(deadline, self.turn.lock()).await.ok_or_else(late)?;
        let own = self.own();
        drop(locked(&self.renewed).take());
        if own.keys.is_empty() {
            let (own, answer) = append(&*self.store, &self.request, deadline).await?;
            self.publisher.prove(answer.sent);
            *locked(&self.own) = own;
            return self.settle(answer, false, deadline).await;
        }
        let holds = self.publisher.held_at().is_some();
        let (taken, answer) = if !holds && !self.is_slotted() && self.hold_is_a_step() {
            let seen = locked(&self.items).first().and_then(|item| item.token);
            self.hold(&own, vec![None; own.names.len()], seen, deadline).await?
        } else {
            (false, self.store.read(&own.names, Extent::Needed(&own), deadline).await?)
        };
        self.settle(answer, taken, deadline).await
    }

    /// Publishes what `answer` shows, and takes the hold of a claim at the front. `taken` is whether the answer is that
    /// to a step that took it.
    async fn settle(&self, mut answer: Answer, mut taken: bool, deadline: Moment) -> FaultResult<Place> {
        let mut choice = 0;
        loop {
            let own = self.own();
            self.heed(&answer);
            let items = decide::own_items(&answer.queues, &own);
            let before =
                std::mem::replace(&mut *locked(&self.items), items.iter().copied().cloned().collect());
            match decide::stand(&answer.queues, &own) {
                Stand::Gone => {
                    self.conclude(answer.note).await;
                    return Ok(Place::Gone);
                }
                Stand::Waits(wait) => {
                    // It takes no slot yet, and the claim behind it waits for that.
                    self.mark(&own, decide::passed(&answer.queues, &own, &before), deadline).await;
                    return Ok(self.waits(wait, answer.seen));
                }
                Stand::Holds => {}
            }
            let is_held = taken || self.publisher.held_at().is_some();
            if is_held
                || !self.hold_is_a_step()
                || (self.is_slotted() && decide::has_slots(&answer.queues, &own))
            {
                let granted = |item: &&Item| Some(Granted { token: item.token?, slot: item.slot });
                let names: Option<Vec<_>> = items.iter().map(granted).collect();
                let nameless = || Fault::new(ErrorKind::Corrupt, "an entry that holds has no token");
                self.publisher.publish_held(names.ok_or_else(nameless)?);
                return Ok(Place::Follows { on: Vec::new(), until: Moment::NEVER, seen: answer.seen });
            }
            if let Some(slots) = decide::slots(&answer.queues, &own, choice) {
                let seen = items.first().and_then(|item| item.token);
                (taken, answer) = self.hold(&own, slots.clone(), seen, deadline).await?;
                if taken || !self.is_slotted() || decide::has_slots(&answer.queues, &own) {
                    continue;
                }
                choice += usize::from(decide::slots(&answer.queues, &own, choice) == Some(slots));
            }
            // The slot went to another claim, or its last holder has not given it back.
            let next = self.clock.now() + SLOT_PAUSE;
            if next >= deadline {
                return Err(Fault::unavailable("other claims took each free slot until the deadline"));
            }
            self.clock.sleep_until(next).await;
            answer = self.store.read(&own.names, Extent::Needed(&own), deadline).await?;
        }
    }

    async fn hold(
        &self,
        own: &Own,
        slots: Vec<Option<u32>>,
        seen: Option<FencingToken>,
        deadline: Moment,
    ) -> FaultResult<(bool, Answer)> {
        self.store.commit(Some(own), &[], &[Step::Hold { slots, seen }], deadline).await
    }

    /// Reads and publishes the state for a caller.
    async fn look(&self) -> FaultResult<()> {
        self.read(self.clock.now() + patience(self.request.ttl)).await.map(|_| self.look.notify_one())
    }

    fn waits(&self, Wait { ahead, first, on, due: left }: Wait, seen: Seen) -> Place {
        self.waited.store(true, Ordering::Relaxed);
        self.publisher.publish(ClaimState::Waiting { ahead: u32::try_from(ahead).ok(), holder: first });
        Place::Follows { on, until: due(self.clock.now(), left), seen }
    }

    /// Publishes a request to leave.
    fn heed(&self, answer: &Answer) {
        if let Some(Note::Asked(by)) = &answer.note {
            self.publisher.publish(ClaimState::AskedToLeave { by: by.clone() });
        }
    }

    /// Publishes the end of a claim with a vanished entry, with the reason if one is found.
    async fn conclude(&self, note: Option<Note>) {
        if self.publisher.is_over() {
            return;
        }
        let own = self.own();
        let held = self.publisher.held_at().is_some();
        let note = match note {
            Some(note @ (Note::Evicted(_) | Note::Forgotten(_))) => Some(note),
            Some(note @ Note::Superseded(_)) if !held => Some(note),
            _ => self.store.why_gone(&own, held, self.clock.now() + WHY).await.ok().flatten(),
        };
        let is_removed = note.as_ref().is_some_and(|note| note.stored().is_some());
        if own.names.len() > 1 && !held && !is_removed {
            // It may still have places for the other names. A command that was started under them needs them to its end.
            let (steps, deadline) = ([removal(&self.request)], self.clock.now() + LEAVING);
            drop(self.store.commit(Some(&own), &[], &steps, deadline).await);
        }
        self.publisher.publish(match note {
            Some(Note::Superseded(by)) if !held => ClaimState::Superseded { by },
            Some(Note::Evicted(by)) => ClaimState::Lost(LossReason::Evicted(by)),
            Some(Note::Forgotten(why)) => ClaimState::Lost(why),
            Some(Note::Asked(_) | Note::Superseded(_)) | None => self.publisher.ended(own.ttl),
        });
    }

    async fn renew(&self, deadline: Moment) -> FaultResult<()> {
        let (begun, own) = (self.clock.now(), self.own());
        if self.publisher.is_over() {
            return Ok(());
        }
        // Without an entry there is no lease to expire.
        if own.keys.is_empty() {
            self.publisher.prove(begun);
            return Ok(());
        }
        let waits = self.publisher.held_at().is_none();
        let Some((since, answer)) = self.store.renew(&own, waits, deadline).await? else {
            self.conclude(None).await;
            return Ok(());
        };
        self.publisher.prove(since);
        self.heed(&answer);
        if waits && !answer.queues.is_empty() {
            let place = match decide::stand(&answer.queues, &own) {
                Stand::Waits(wait) => Some(self.waits(wait, answer.seen)),
                Stand::Gone | Stand::Holds => {
                    self.look.notify_one();
                    None
                }
            };
            *locked(&self.renewed) = place;
        }
        Ok(())
    }

    /// Completes after `when`. A suspend of the host delays it, which does not matter here. It makes no timer of the kernel, since
    /// it is called just before the command starts.
    fn after(&self, when: Moment) -> tokio::time::Sleep {
        tokio::time::sleep(when.since(self.clock.now()))
    }

    /// Returns when to record how long it has held; `None` if no step is needed for that.
    fn mark_at(&self) -> Option<Moment> {
        let waited = self.waited.load(Ordering::Relaxed) && !self.hold_is_a_step();
        self.publisher.held_at().filter(|_| waited).map(|at| at + LONG_HOLD)
    }

    /// Records how long it has held, in these of its entries. That is for display alone, and a change of its entries.
    async fn mark(&self, own: &Own, each: Vec<(LockName, Item)>, deadline: Moment) {
        for (name, item) in each {
            let held_for = self.publisher.held_at().map_or(Duration::ZERO, |at| self.clock.now().since(at));
            let step = Step::Change(name, item, Change::HeldFor(held_for));
            drop(self.store.commit(Some(own), &[], &[step], deadline).await);
        }
    }
}

#[async_trait]
impl Claim for QueueClaim {
    fn ttl(&self) -> Option<Duration> {
        self.core.store.capabilities().leased.then(|| self.core.store.ttl(&self.core.own()))
    }

    async fn changed(&self, seen: Option<&ClaimState>) -> Result<ClaimState> {
        let core = &*self.core;
        let read = (!core.store.reports_changes()).then(|| core.look());
        let changed = core.publisher.changed(seen, read).await;
        // A claim that waited behind another program's object may find a queue of another kind after it.
        changed.map_err(|error| Error { is_final: error.kind == ErrorKind::Mismatch, ..error })
    }

    async fn renew(&self, deadline: Moment) -> Result<Moment> {
        self.core.renew(deadline).await?;
        Ok(self.core.publisher.proof())
    }

    async fn leave(&self, succeeded: bool, deadline: Moment) -> Result<()> {
        self.task.abort();
        let core = &*self.core;
        core.publisher.begin_leaving();
        let mut steps = vec![removal(&core.request)];
        if let Some(at) = core.publisher.held_at().filter(|_| succeeded) {
            steps.push(Step::Success { held_for: core.clock.now().since(at) });
        }
        core.store.commit(Some(&core.own()), &[], &steps, deadline).await?;
        core.publisher.leave();
        Ok(())
    }

    fn anchors(&self) -> Result<Vec<std::os::fd::OwnedFd>> {
        self.core.store.anchors(self.core.request.id)
    }
}

impl Drop for QueueClaim {
    fn drop(&mut self) {
        self.task.abort();
        self.core.store.abandon(self.core.request.id);
    }
}
