//! The steps of claims, each one transaction.

use etcd_client::{Compare, CompareOp, GetOptions, LeaseTimeToLiveOptions, PutOptions, Txn, TxnOp};

use super::fault::{self, LEASE_GONE, NO_SPACE};
use super::keys::{Layout, QueueKeys, Span};
use super::ops::{act, put, stands, unchanged};
use super::stored::{Hold, Stored, note_text, wall_clock};
use super::view::{Claimed, bytes, present};
use super::wire::{Wire, revoke};
use crate::backend::success;
use crate::clock;
use crate::lock::{FencingToken, LockName, Mode, Moment, Verb};
use crate::net::fault::FaultResult;
use crate::queue::store::{Answer, Change, Item, Key, Note, Step};

/// The parts of a step.
pub(super) struct Committer<'a> {
    pub(super) wire: &'a Wire,
    pub(super) layout: &'a Layout,
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
                self.wire.persist();
                let lease = self.layout.lease_of(*id);
                match (&self.own, note, found.first()) {
                    (Some(own), ..) if own.lease == lease => self.leave(own, further).await?,
                    (_, Some(note), Some(first)) => self.take_out(lease, names, found, first, note).await?,
                    (_, Some(_), None) => self.end_bare_lease(lease, names).await?,
                    // All keys of the claim depend on its lease, and so do its requests in flight.
                    (_, None, _) => revoke(self.wire, lease, self.deadline).await.map(|()| true)?,
                }
            }
            // Only the key is deleted, because the lease may carry other keys of that client.
            [Step::RemoveForeign(_, key)] => {
                self.act(vec![present(key)], vec![TxnOp::delete(bytes(key), None)]).await?
            }
            [Step::Change(name, item, change)] => self.change(name, item, change).await?,
            _ => return Err(fault::corrupt("steps that do not go together")),
        };
        Ok((done, Answer { queues: Vec::new(), note: None, sent: clock::now(), seen: 0 }))
    }

    /// Commits `then` if the own claim and the entries that must be present are, and `compares` hold.
    async fn act(&self, mut compares: Vec<Compare>, then: Vec<TxnOp>) -> FaultResult<bool> {
        compares.extend(self.when.iter().map(|(_, key)| present(key)));
        compares.extend(self.own.iter().flat_map(Claimed::stand).take(1));
        let answer = act(self.wire, Txn::new().when(compares).and_then(then), self.deadline).await?;
        Ok(answer.is_some_and(|answer| answer.succeeded()))
    }

    /// Writes the hold, whose revision is the token, unless that was written since the token `seen`: a request that is
    /// executed late must not write it again.
    async fn hold(&self, slots: &[Option<u32>], seen: Option<FencingToken>) -> FaultResult<(bool, Answer)> {
        let own = self.own.as_ref().ok_or_else(|| fault::corrupt("a hold of no claim"))?;
        let seen = seen.map_or(0, |token| token.get().cast_signed());
        // The token of a claim without a hold is the revision of its entry.
        let written = if seen == own.created { 0 } else { seen };
        let first = own.queues.first().map(|queue| unchanged(queue.hold(own.lease), written));
        let mut compares: Vec<Compare> = first.into_iter().chain(own.stand()).collect();
        let mut then = Vec::new();
        for (at, queue) in own.queues.iter().enumerate() {
            let slot = slots.get(at).copied().flatten();
            then.push(put(queue.hold(own.lease), Hold::now(slot).to_text(), own.lease));
            if let Some(slot) = slot {
                compares.push(stands(queue.slot(slot), 0));
                then.push(put(queue.slot(slot), "", own.lease));
            }
        }
        let (reads, sent) = (own.reads(), clock::now());
        then.extend(reads.clone());
        let txn = Txn::new().when(compares).and_then(then).or_else(reads.clone());
        let (done, answer) = match act(self.wire, txn, self.deadline).await? {
            Some(answer) => (answer.succeeded(), answer),
            None => (false, self.wire.txn(Txn::new().and_then(reads), self.deadline).await?),
        };
        Ok((done, own.answer(&answer, sent)?))
    }

    /// Removes the own claim. After a success, one transaction records that and removes the keys. With slots they end
    /// together, with the lease.
    async fn leave(&self, own: &Claimed, further: &[Step]) -> FaultResult<bool> {
        let mut has_left = false;
        if let [Step::Success { held_for }] = further {
            let acquired = wall_clock().saturating_sub(u64::try_from(held_for.as_millis()).unwrap_or(0));
            let successes = own.queues.iter().map(|queue| success(queue, own.mode, acquired));
            let has_slots = matches!(own.mode, Mode::Slots(_));
            let removed = if has_slots { &[] } else { own.queues.as_slice() };
            let steps = successes.chain(removal(removed, own.mode, own.lease, &[]));
            let txn = Txn::new().when(own.stand().collect::<Vec<_>>()).and_then(steps.collect::<Vec<_>>());
            has_left = match act(self.wire, txn, self.deadline).await {
                // A server without space records no success. Waiters cannot run before there is space again, so the
                // claim leaves without the record.
                Err(fault) if fault.code == NO_SPACE => false,
                left => left?.is_some_and(|answer| answer.succeeded()) && !has_slots,
            };
        }
        let revoked = revoke(self.wire, own.lease, self.deadline).await;
        // Once the keys are removed, no waiter waits for the lease.
        revoked.or_else(|fault| if has_left { Ok(()) } else { Err(fault) }).map(|()| true)
    }

    /// Removes the entries of another claim and leaves `note` for its owner. Its lease remains until the owner has read
    /// the note or the ttl is over.
    async fn take_out(
        &self,
        lease: i64,
        names: &[LockName],
        found: &[Item],
        first: &Item,
        note: &Note,
    ) -> FaultResult<bool> {
        let mode = first.mode.unwrap_or(Mode::Exclusive);
        let queues: Vec<QueueKeys> = names.iter().map(|name| self.layout.queue(name)).collect();
        let slots: Vec<Option<u32>> = found.iter().map(|item| item.slot).collect();
        let mut compares = Vec::new();
        if matches!(mode, Mode::Slots(_)) {
            // The claim was not given a slot meanwhile.
            let held_at = first.token.map_or(0, |token| token.get().cast_signed());
            compares.extend(queues.first().map(|queue| unchanged(queue.hold(lease), held_at)));
        }
        let mut steps = removal(&queues, mode, lease, &slots);
        steps.push(put(self.layout.note(lease), note_text(note), lease));
        let removed = match self.act(compares, steps).await {
            // The owner then learns that its entry is gone, but not why. A waiter is not removed so, because it would
            // enter again.
            Err(fault) if fault.code == NO_SPACE && matches!(note, Note::Evicted(_)) => {
                revoke(self.wire, lease, self.deadline).await.map(|()| true)
            }
            removed => removed,
        }?;
        let verb = first.about.as_ref().map(|about| about.entry.verb);
        if removed && verb == Some(Verb::Detach) {
            // A detached claim has no process to read the note. If this fails, the rest ends with its ttl.
            let _ = revoke(self.wire, lease, self.deadline).await;
        }
        Ok(removed)
    }

    /// Revokes the lease of an attempt to enter that has no entry yet, and so can never get one. Returns whether no
    /// entry of it is in the queues of `names`.
    async fn end_bare_lease(&self, lease: i64, names: &[LockName]) -> FaultResult<bool> {
        let lives = self.wire.call(self.deadline, |mut c| async move {
            c.client.lease_time_to_live(lease, Some(LeaseTimeToLiveOptions::new().with_keys())).await
        });
        match lives.await {
            Ok(answer) if !answer.keys().is_empty() => {
                let mut spans = names.iter().map(|name| self.layout.queue(name).entries());
                let within = |(first, end): Span, key: &[u8]| first.as_bytes() <= key && key < end.as_bytes();
                Ok(!spans.any(|span| answer.keys().iter().any(|key| within(span.clone(), key))))
            }
            Ok(answer) if answer.ttl() > 0 => revoke(self.wire, lease, self.deadline).await.map(|()| true),
            Err(fault) if fault.code != LEASE_GONE => Err(fault),
            _ => Ok(true),
        }
    }

    async fn change(&self, name: &LockName, item: &Item, change: &Change) -> FaultResult<bool> {
        let (queue, lease) = (self.layout.queue(name), self.layout.lease_of(item.id));
        let steps = match change {
            // The note ends with the claim.
            Change::Asked(by) => {
                vec![put(self.layout.note(lease), note_text(&Note::Asked(by.clone())), lease)]
            }
            // The value is in the entry itself, as in Go's `Election`, and in the record.
            Change::Label(text) => {
                let record = queue.record(item.mode.unwrap_or(Mode::Exclusive), lease);
                let answer = self.wire.get(record.clone(), GetOptions::new(), self.deadline).await?;
                let stored = answer.kvs().first().and_then(|kv| Stored::parse(kv.value()));
                let Some(mut stored) = stored else { return Ok(false) };
                stored.record.holder.label = Some(text.clone());
                let same_lease = || Some(PutOptions::new().with_ignore_lease());
                vec![
                    TxnOp::put(bytes(&item.key), text.as_str(), same_lease()),
                    TxnOp::put(record, stored.to_text(), same_lease()),
                ]
            }
            // The key of the hold has its time.
            Change::HeldFor(_) => return Ok(true),
        };
        self.act(vec![present(&item.key)], steps).await
    }
}

/// Returns the steps that remove all keys of a claim but its note.
fn removal(queues: &[QueueKeys], mode: Mode, lease: i64, slots: &[Option<u32>]) -> Vec<TxnOp> {
    let mut steps = Vec::new();
    for (at, queue) in queues.iter().enumerate() {
        let keys = [queue.entry(mode, lease), queue.record(mode, lease), queue.hold(lease)];
        let slot = slots.get(at).copied().flatten().map(|slot| queue.slot(slot));
        steps.extend(keys.into_iter().chain(slot).map(|key| TxnOp::delete(key, None)));
    }
    steps
}

/// Returns the step that records the success of a run that acquired the lock at `acquired_ms`. An exclusive claim
/// acquired later than all claims that have ended. Other claims first check for the success of a run that acquired
/// later and is not dated in the future. The check is a nested transaction, so the claim leaves the queue in any case.
fn success(queue: &QueueKeys, mode: Mode, acquired_ms: u64) -> TxnOp {
    // All times have the same number of digits, since values are compared as bytes.
    let digits = |millis: u64| format!("{millis:013}");
    let acquired = digits(acquired_ms);
    let put = TxnOp::put(queue.done(), acquired.clone(), None);
    if mode == Mode::Exclusive {
        return put;
    }
    // A missing value is not greater.
    let later = Compare::value(queue.done(), CompareOp::Greater, acquired);
    let ahead = u64::try_from(success::AHEAD.as_millis()).unwrap_or(u64::MAX);
    let too_late = digits(wall_clock().saturating_add(ahead).saturating_add(1));
    let told = Compare::value(queue.done(), CompareOp::Less, too_late);
    TxnOp::txn(Txn::new().when([later, told]).or_else([put]))
}
