//! The steps of claims, each one transaction.

use std::num::NonZeroU32;

use etcd_client::{Compare, CompareOp, GetOptions, Txn, TxnOp};

use super::cluster::Cluster;
use super::fault::{LEASE_GONE, NO_SPACE};
use super::keys::{Arrived, Hold, QueueKeys, note_text, stored, wall_clock};
use super::queue::{Claimed, bytes, present, put, stands, unchanged};
use crate::backend::success;
use crate::clock;
use crate::lock::{FencingToken, LockName, Mode, Moment, Verb};
use crate::net::fault::{Fault, FaultResult};
use crate::queue::store::{Answer, Change, Item, Key, Note, Step};

/// The parts of a step.
pub(super) struct Committer<'a> {
    pub(super) cluster: &'a Cluster,
    /// The own claim.
    pub(super) own: Option<Claimed>,
    /// The entries that must be present.
    pub(super) when: &'a [(LockName, Key)],
    pub(super) deadline: Moment,
}

impl Committer<'_> {
    /// Implements [`crate::queue::store::Store::commit`].
    pub(super) async fn commit(&self, steps: &[Step]) -> FaultResult<(bool, Answer)> {
        let done = match steps {
            [Step::Hold { slots, seen }] => return self.hold(slots, *seen).await,
            [Step::Remove { id, names, found, note, .. }, further @ ..] => {
                self.cluster.persist();
                let lease = self.cluster.layout.lease_of(*id);
                match (&self.own, note) {
                    (Some(own), _) if own.lease == lease => self.leave(own, further).await?,
                    (_, Some(note)) => self.take_out(lease, names, found, note).await?,
                    // All keys of the claim depend on its lease, and so do its requests in flight.
                    (_, None) => self.revoke(lease).await?,
                }
            }
            // Only the key is deleted, because the lease may carry other keys of that client.
            [Step::RemoveForeign(_, key)] => {
                self.act(vec![present(key)], vec![TxnOp::delete(bytes(key), None)]).await?
            }
            [Step::Change(name, item, change)] => self.change(name, item, change).await?,
            _ => return Err(Fault::nonsense("steps that do not go together")),
        };
        Ok((done, Answer { queues: Vec::new(), note: None, sent: clock::now(), seen: 0 }))
    }

    /// Commits `then` if the own claim and the entries that must be present are, and `compares` hold.
    async fn act(&self, mut compares: Vec<Compare>, then: Vec<TxnOp>) -> FaultResult<bool> {
        compares.extend(self.when.iter().map(|(_, key)| present(key)));
        compares.extend(self.own.iter().flat_map(Claimed::stand).take(1));
        Ok(self.cluster.txn(Txn::new().when(compares).and_then(then), self.deadline).await?.succeeded())
    }

    async fn revoke(&self, lease: i64) -> FaultResult<bool> {
        self.cluster.revoke(lease, self.deadline).await.map(|()| true)
    }

    /// Writes the hold, whose revision is the token, unless that was written since the token `seen`: a request that is
    /// executed late must not write it again.
    async fn hold(&self, slots: &[Option<u32>], seen: Option<FencingToken>) -> FaultResult<(bool, Answer)> {
        let own = self.own.as_ref().ok_or_else(|| Fault::nonsense("a hold of no claim"))?;
        let seen = seen.map_or(0, |token| token.get().cast_signed());
        // The token of a claim without a hold is the revision of its entry.
        let written = if seen == own.created { 0 } else { seen };
        let first = own.queues.first().map(|queue| unchanged(queue.hold(own.lease), written));
        let mut compares: Vec<Compare> = first.into_iter().chain(own.stand()).collect();
        let mut then = Vec::new();
        for (queue, slot) in own.queues.iter().zip(slots) {
            let hold = Hold { since_ms: wall_clock(), slot: *slot };
            then.push(put(queue.hold(own.lease), stored(&hold), own.lease));
            if let Some(slot) = slot {
                compares.push(stands(queue.slot(*slot), 0));
                then.push(put(queue.slot(*slot), "", own.lease));
            }
        }
        then.extend(own.reads());
        let sent = clock::now();
        let txn = Txn::new().when(compares).and_then(then).or_else(own.reads());
        let answer = self.cluster.txn(txn, self.deadline).await?;
        Ok((answer.succeeded(), own.answer(&answer, sent)?))
    }

    /// Removes the own claim. After a success, one transaction records that and removes the keys. With slots they end
    /// together, with the lease.
    async fn leave(&self, own: &Claimed, further: &[Step]) -> FaultResult<bool> {
        let mut has_left = false;
        if let [Step::Success { held_for }] = further {
            let acquired = wall_clock().saturating_sub(u64::try_from(held_for.as_millis()).unwrap_or(0));
            let has_slots = matches!(own.mode, Mode::Slots(_));
            let removed = if has_slots { &[] } else { own.queues.as_slice() };
            let mut steps: Vec<TxnOp> = own.queues.iter().map(|queue| success(queue, acquired)).collect();
            steps.extend(removal(removed, own.mode, own.lease));
            let txn = Txn::new().when(own.stand().collect::<Vec<_>>()).and_then(steps);
            has_left = match self.cluster.txn(txn, self.deadline).await {
                // A server without space records no success. Waiters cannot run before there is space again, so the
                // claim leaves without the record.
                Err(fault) if fault.code == NO_SPACE => false,
                left => left?.succeeded() && !has_slots,
            };
        }
        // Once the keys are removed, no waiter waits for the lease.
        self.revoke(own.lease).await.or_else(|fault| if has_left { Ok(true) } else { Err(fault) })
    }

    /// Removes the entries of another claim, if it has any, and leaves `note` for its owner. The note also refuses entries
    /// that arrive later. The lease remains until the owner has read the note or the ttl is over.
    async fn take_out(
        &self,
        lease: i64,
        names: &[LockName],
        found: &[Item],
        note: &Note,
    ) -> FaultResult<bool> {
        let layout = &self.cluster.layout;
        let queues: Vec<QueueKeys> = names.iter().map(|name| layout.queue(name)).collect();
        let note_it = put(layout.note(lease), note_text(note), lease);
        let Some(first) = found.first() else {
            let modes = [Mode::Exclusive, Mode::Shared, Mode::Slots(NonZeroU32::MIN)];
            let absent = |queue: &QueueKeys| modes.map(|mode| stands(queue.entry(mode, lease), 0));
            return match self.act(queues.iter().flat_map(absent).collect(), vec![note_it]).await {
                // Without its lease, and on a server without space, it gets no entry.
                Err(fault) if [LEASE_GONE, NO_SPACE].contains(&fault.code) => Ok(true),
                noted => noted,
            };
        };
        let mode = first.mode.unwrap_or(Mode::Exclusive);
        let mut compares = Vec::new();
        if matches!(mode, Mode::Slots(_)) {
            // The claim was not given a slot meanwhile.
            let held_at = first.token.map_or(0, |token| token.get().cast_signed());
            compares.extend(queues.first().map(|queue| unchanged(queue.hold(lease), held_at)));
        }
        let mut steps = removal(&queues, mode, lease);
        let slots = queues.iter().zip(found).filter_map(|(queue, item)| Some(queue.slot(item.slot?)));
        steps.extend(slots.map(|slot| TxnOp::delete(slot, None)));
        steps.push(note_it);
        let removed = match self.act(compares, steps).await {
            // The owner then learns that its entry is gone, but not why. A waiter is not removed so, because it would
            // enter again.
            Err(fault) if fault.code == NO_SPACE && matches!(note, Note::Evicted(_)) => {
                self.revoke(lease).await
            }
            removed => removed,
        }?;
        if removed && first.about.as_ref().is_some_and(|about| about.entry.verb == Verb::Detach) {
            // A detached claim has no process to read the note. If this fails, the rest ends with its ttl.
            let _ = self.revoke(lease).await;
        }
        Ok(removed)
    }

    async fn change(&self, name: &LockName, item: &Item, change: &Change) -> FaultResult<bool> {
        let layout = &self.cluster.layout;
        let (queue, lease) = (layout.queue(name), layout.lease_of(item.id));
        let steps = match change {
            // The note ends with the claim.
            Change::Asked(by) => vec![put(layout.note(lease), note_text(&Note::Asked(by.clone())), lease)],
            // The value is in the entry itself, as in Go's `Election`, and in the record.
            Change::Label(text) => {
                let mode = item.mode.unwrap_or(Mode::Exclusive);
                let record = queue.record(mode, lease);
                let answer = self.cluster.get(record.clone(), GetOptions::new(), self.deadline).await?;
                let arrived = answer.kvs().first().and_then(|kv| Arrived::parse(kv.value()));
                let Some(mut arrived) = arrived else { return Ok(false) };
                arrived.record.holder.label = Some(text.clone());
                vec![
                    put(queue.entry(mode, lease), text.as_str(), lease),
                    put(record, stored(&arrived), lease),
                ]
            }
            // The key of the hold has its time.
            Change::HeldFor(_) => return Ok(true),
        };
        self.act(vec![present(&item.key)], steps).await
    }
}

/// Returns the steps that remove all keys of a claim but its note and its slots.
fn removal(queues: &[QueueKeys], mode: Mode, lease: i64) -> Vec<TxnOp> {
    let keys = |queue: &QueueKeys| [queue.entry(mode, lease), queue.record(mode, lease), queue.hold(lease)];
    queues.iter().flat_map(keys).map(|key| TxnOp::delete(key, None)).collect()
}

/// Returns the step that records the success of a run that acquired the lock at `acquired_ms`, unless a run that
/// acquired later succeeded already and is not dated in the future. The check is a nested transaction, so the claim
/// leaves the queue in any case.
fn success(queue: &QueueKeys, acquired_ms: u64) -> TxnOp {
    // All times have the same number of digits, since values are compared as bytes.
    let digits = |millis: u64| format!("{millis:013}");
    let acquired = digits(acquired_ms);
    let ahead = u64::try_from(success::AHEAD.as_millis()).unwrap_or(u64::MAX);
    let too_late = digits(wall_clock().saturating_add(ahead).saturating_add(1));
    // A missing value is not greater.
    let later = Compare::value(queue.done(), CompareOp::Greater, acquired.as_str());
    let told = Compare::value(queue.done(), CompareOp::Less, too_late);
    TxnOp::txn(Txn::new().when([later, told]).or_else([TxnOp::put(queue.done(), acquired, None)]))
}
