//! The client side of a claim.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use etcd_client::{Compare, CompareOp, Txn, TxnOp};
use tokio::task::AbortHandle;

use super::core::{Core, lock};
use super::enter::Joined;
use super::evict::act;
use super::fault::NO_SPACE;
use super::follow::follow;
use super::keys::QueueKeys;
use super::stored::wall_clock;
use super::wire::revoke;
use crate::backend::{Claim, success};
use crate::lock::{ClaimState, Mode, Moment, Result};
use crate::net::fault::FaultResult;

#[derive(Debug)]
pub(super) struct EtcdClaim {
    core: Arc<Core>,
    follower: AbortHandle,
}

impl EtcdClaim {
    /// Starts following the queue.
    pub(super) fn new(joined: Joined) -> Self {
        let core = joined.core;
        let task = tokio::spawn(follow(Arc::clone(&core), joined.place, joined.revision));
        Self { core, follower: task.abort_handle() }
    }

    /// Returns whether a caller that enters again with its id can use it.
    pub(super) fn is_live(&self) -> bool {
        !self.core.publisher.is_over()
    }

    /// Releases or withdraws. If the run succeeded, one transaction records that and removes the claim's keys.
    async fn leave(&self, succeeded: bool, deadline: Moment) -> FaultResult<()> {
        let core = &self.core;
        core.publisher.begin_leaving();
        core.wire.persist();
        let acquired = *lock(&core.acquired_ms);
        let has_left = match acquired.filter(|_| succeeded) {
            Some(acquired) => self.leave_with_success(acquired, deadline).await?,
            None => false,
        };
        let revoked = revoke(&core.wire, core.lease, deadline).await;
        // Once the keys are removed, no waiter waits for the lease.
        revoked.or_else(|fault| if has_left { Ok(()) } else { Err(fault) })?;
        core.publisher.leave();
        Ok(())
    }

    /// Records the success of the run that acquired the lock at `acquired`, and removes the claim's keys; `false` if
    /// that is not possible.
    async fn leave_with_success(&self, acquired: u64, deadline: Moment) -> FaultResult<bool> {
        let core = &self.core;
        let successes = core.queues.iter().map(|queue| success(queue, core.mode, acquired));
        let steps: Vec<TxnOp> = successes.chain(self.removal()).collect();
        match act(&core.wire, Txn::new().when(core.all_stand()).and_then(steps), deadline).await {
            // A server without space records no success. Waiters cannot run before there is space again, so the claim
            // leaves without the record.
            Err(fault) if fault.code == NO_SPACE => Ok(false),
            left => left,
        }
    }

    /// Returns the steps that remove all keys of the claim.
    fn removal(&self) -> Vec<TxnOp> {
        let core = &self.core;
        let slots = lock(&core.slots).clone();
        let mut steps = Vec::new();
        for (at, queue) in core.queues.iter().enumerate() {
            let keys = [core.entry(queue), queue.record(core.mode, core.lease), queue.hold(core.lease)];
            steps.extend(keys.map(|key| TxnOp::delete(key, None)));
            if let Some(slot) = slots.get(at).copied().flatten() {
                steps.push(TxnOp::delete(queue.slot(slot), None));
            }
        }
        steps
    }
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

impl Drop for EtcdClaim {
    fn drop(&mut self) {
        self.follower.abort();
    }
}

#[async_trait]
impl Claim for EtcdClaim {
    fn ttl(&self) -> Option<Duration> {
        Some(self.core.ttl)
    }

    async fn changed(&self, seen: Option<&ClaimState>) -> Result<ClaimState> {
        self.core.publisher.changed(seen).await
    }

    async fn renew(&self, deadline: Moment) -> Result<Moment> {
        self.core.renew(deadline).await
    }

    async fn leave(&self, succeeded: bool, deadline: Moment) -> Result<()> {
        self.leave(succeeded, deadline).await
    }
}
