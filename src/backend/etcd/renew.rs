//! Proving that a claim lives.
//!
//! A keep-alive is answered by the member that believes to be the leader, without asking the others. A leader that is
//! cut off continues to answer while the others let the lease expire. So a linearizable read of the claim's entry
//! follows, and both must be answered in the same term, which has one leader. Then the leader that received the
//! keep-alive still was the leader afterwards.
//!
//! The members that answer do not matter, and behind a balancer dlock cannot choose them. A transaction without an
//! operation would be answered from the member's own data, so it has one.

use std::sync::Mutex;
use std::time::Duration;

use etcd_client::{Txn, TxnOp, TxnResponse};

use super::core::{Core, lock};
use super::evict::act;
use super::fault::LEASE_GONE;
use super::keep_alive::{Checked, Kept, keep_and_check, term};
use super::keys::{Layout, QueueKeys};
use super::look::{self, Answers, Seen};
use super::queue;
use super::wire::Wire;
use crate::clock::{self, Clock};
use crate::lock::{ClaimId, Moment};
use crate::net::fault::FaultResult;

/// The pause between two attempts if the leader changed in between.
const PAUSE: Duration = Duration::from_millis(20);

impl Core {
    /// Implements [`crate::backend::Claim::renew`].
    pub(super) async fn renew(&self, deadline: Moment) -> FaultResult<Moment> {
        let begun = clock::now();
        if !self.publisher.is_over() {
            match prove(&self.wire, self.lease, &self.kept, &self.check(), deadline).await? {
                Some((since, answer)) => self.confirmed(since.unwrap_or(begun), &answer)?,
                None => self.conclude().await,
            }
        }
        Ok(self.publisher.proof())
    }

    /// Returns the transaction of a renewal. A waiter's also reads its position.
    fn check(&self) -> Txn {
        let mut operations = Vec::new();
        if self.is_held() {
            operations.push(TxnOp::get(self.entry(&self.queues[0]), None));
        } else {
            for queue in &self.queues {
                operations.extend(look::reads(queue, self.mode, Some(self.created)));
            }
        }
        Txn::new().when(self.all_stand()).and_then(operations)
    }

    /// Records a renewal with a ttl that counts from `since`.
    fn confirmed(&self, since: Moment, answer: &TxnResponse) -> FaultResult<()> {
        self.publisher.prove(since);
        let mut answers = Answers::of(answer);
        // The hold may have been proved meanwhile; the answer may then be to either transaction.
        if self.is_held() {
            return Ok(());
        }
        let seen = self.queues.iter().map(|_| answers.seen(self.mode, self.created));
        let seen: Vec<Seen> = seen.collect::<FaultResult<_>>()?;
        let targets = self.targets(&seen);
        if targets.is_empty() {
            self.look.notify_one();
        } else {
            self.publish_waiting(&seen, &targets);
        }
        Ok(())
    }
}

/// Implements [`crate::backend::Backend::renew`], in `queue` of the claim `id`.
pub(super) async fn renew_alone(
    wire: &Wire,
    layout: &Layout,
    queue: &QueueKeys,
    id: ClaimId,
    deadline: Moment,
) -> FaultResult<bool> {
    let snapshot = queue::read(wire, queue, deadline).await?;
    let Some(member) = snapshot.position(id).map(|at| &snapshot.members[at]) else { return Ok(false) };
    let holders = snapshot.status(&queue.name).holders;
    if !holders.iter().any(|entry| entry.claim == Some(id)) {
        return Ok(false);
    }
    let names = member.stored.as_ref().map(|stored| stored.record.names(&queue.name)).unwrap_or_default();
    let entries = names.iter().map(|name| layout.queue(name).entry(member.mode, member.lease));
    let stand: Vec<_> = entries.map(|entry| look::stands(entry, member.created)).collect();
    let txn = Txn::new().when(stand).and_then([TxnOp::get(member.key.clone(), None)]);
    let kept = Mutex::default();
    Ok(prove(wire, member.lease, &kept, &txn, deadline).await?.is_some())
}

/// Keeps `lease` alive, over the stream in `kept` if there is one, and then executes `txn`, which checks its keys, in
/// the same term. Returns `None` if they are gone. Also returns from when the ttl counts, if that may be before the
/// call.
async fn prove(
    wire: &Wire,
    lease: i64,
    kept: &Mutex<Option<Kept>>,
    txn: &Txn,
    deadline: Moment,
) -> FaultResult<Option<(Option<Moment>, TxnResponse)>> {
    loop {
        let checked = wire.call(deadline, |c| async move {
            let stream = lock(kept).take();
            let mut checked = keep_and_check(c, lease, stream, txn.clone()).await?;
            *lock(kept) = checked.kept.take();
            Ok(checked)
        });
        match checked.await {
            Ok(checked) if !checked.answer.succeeded() => return Ok(None),
            Ok(Checked { term: Some(kept_in), since, answer, .. })
                if term(answer.header()) == Some(kept_in) =>
            {
                return Ok(Some((since, answer)));
            }
            // A new leader may not have received the keep-alive.
            Ok(_) => {}
            // The member may not know the lease yet. The keys end with it, and the transaction shows reliably whether
            // they exist.
            Err(fault) if fault.code == LEASE_GONE && act(wire, txn.clone(), deadline).await? => {}
            Err(fault) if fault.code == LEASE_GONE => return Ok(None),
            Err(fault) => return Err(fault),
        }
        Clock::Boot.sleep_until(deadline.min(clock::now() + PAUSE)).await;
    }
}
