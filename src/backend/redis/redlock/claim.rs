//! One client's end of a claim.

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::task::AbortHandle;

use super::core::{Aim, Core};
use super::node_claim::{NodeClaim, Phase};
use super::script::{ENTER, LEAVE, RENEW};
use super::{deadlock, majority};
use crate::backend::Claim;
use crate::backend::fault::{During, Fault, FaultResult};
use crate::backend::redis::fault::NAME;
use crate::backend::redis::script::{Step, millis};
use crate::lock::{ClaimState, Grant, LockName, Moment, Result};

#[derive(Debug)]
pub(super) struct RedlockClaim {
    pub(super) core: Arc<Core>,
    /// Where nested claims are listed, if it is one.
    nested: Option<String>,
    tender: Mutex<Option<AbortHandle>>,
}

impl Drop for RedlockClaim {
    fn drop(&mut self) {
        self.core.nodes.claims.fetch_sub(1, Ordering::Relaxed);
        if let Some(tender) = self.tender.lock().unwrap_or_else(PoisonError::into_inner).take() {
            tender.abort();
        }
    }
}

impl Core {
    /// The further arguments of entering with `score`.
    pub(super) fn entering(&self, score: &str) -> Vec<String> {
        let mut words = vec![self.record.clone(), self.mode.to_string(), millis(self.ttl), score.to_owned()];
        let grant = self.inner().grant.clone();
        words.extend((0..self.names.len()).map(|n| {
            let slot = grant.as_ref().and_then(|grant| grant.names[n].slot);
            slot.map_or_else(String::new, |slot| slot.to_string())
        }));
        words.push(self.attempt.to_string());
        words
    }

    /// The step that takes the claim out; to withdraw an attempt, unless a later one has entered. Its last argument says for
    /// how long the id is to stay out.
    pub(super) fn leaving(&self, aim: Aim, succeeded: bool) -> Step {
        let success = if succeeded { "1" } else { "0" }.to_owned();
        let attempt = if aim == Aim::Withdraw { self.attempt.to_string() } else { String::new() };
        self.step(&LEAVE, self.next_token(), &[success, attempt, "0".to_owned()])
    }

    /// What went wrong at the nodes that could not be used.
    pub(super) fn faults(&self) -> Vec<Fault> {
        self.inner().node_claims.iter().filter_map(|node_claim| node_claim.fault.clone()).collect()
    }

    /// Whether the node claim's last proof of life is no older than `begin`.
    fn is_proven(node_claim: &NodeClaim, grant: Option<&Grant>, begin: Moment, now: Moment) -> bool {
        let carries =
            |grant: &Grant| grant.names.iter().enumerate().all(|(n, hold)| node_claim.carries(n, hold, now));
        node_claim.phase == Phase::In && node_claim.from >= begin && grant.is_none_or(carries)
    }

    fn proven(&self, begin: Moment) -> usize {
        let inner = self.inner();
        let (now, grant) = (self.clock.now(), inner.grant.as_ref());
        inner.node_claims.iter().filter(|node_claim| Self::is_proven(node_claim, grant, begin, now)).count()
    }

    /// Gives the entries another ttl, and makes those anew that a node has lost while a majority still has them.
    async fn extend(self: &Arc<Self>, begin: Moment, deadline: Moment) -> FaultResult<()> {
        let hint = self.next_token();
        let renewal = self.step(&RENEW, hint, &[millis(self.ttl)]);
        let (alive, score) = {
            let inner = self.inner();
            let score = if inner.grant.is_some() { Some(0) } else { inner.score };
            (majority::alive(&inner.node_claims, inner.grant.as_ref(), self.ttl, begin), score)
        };
        let score = score.map_or_else(String::new, |score| score.to_string());
        let entry = self.step(&ENTER, hint, &self.entering(&score));
        let majority = self.nodes.majority();
        let make = |_: usize, node_claim: &NodeClaim| match node_claim.phase {
            Phase::Missing | Phase::Unknown if alive >= majority => Some(entry.clone()),
            Phase::In | Phase::Missing | Phase::Unknown => Some(renewal.clone()),
            Phase::Gone => None,
        };
        self.round(Aim::Life, deadline, make, |core| core.proven(begin) >= majority).await;
        let proven = self.proven(begin);
        if proven >= majority {
            return Ok(());
        }
        let faults = self.faults();
        Err(self.nodes.too_few(proven, &faults))
    }
}

impl RedlockClaim {
    pub(super) fn new(core: Arc<Core>, nested: Option<String>) -> Self {
        Self { core, nested, tender: Mutex::new(None) }
    }

    /// Begins to follow the claim.
    pub(super) fn reconcile(&self) {
        let tender = tokio::spawn(Arc::clone(&self.core).reconcile());
        *self.tender.lock().unwrap_or_else(PoisonError::into_inner) = Some(tender.abort_handle());
    }

    fn lock(&self) -> Option<&LockName> {
        self.core.names.first().map(|keys| &keys.name)
    }

    async fn send_leave(&self, succeeded: bool, deadline: Moment) -> FaultResult<()> {
        let core = &self.core;
        let step = core.leaving(Aim::Leave, succeeded);
        core.publisher.begin_leaving();
        let make = |_: usize, node_claim: &NodeClaim| (!node_claim.left).then(|| step.clone());
        let majority = core.nodes.majority();
        let left = |core: &Core| core.inner().node_claims.iter().filter(|node_claim| node_claim.left).count();
        core.round(Aim::Leave, deadline, make, |core| left(core) >= majority).await;
        let left = left(core);
        if left >= majority {
            return Ok(());
        }
        let faults = core.faults();
        Err(core.nodes.too_few(left, &faults))
    }
}

#[async_trait]
impl Claim for RedlockClaim {
    fn ttl(&self) -> Option<Duration> {
        Some(self.core.ttl)
    }

    async fn changed(&self, seen: Option<&ClaimState>) -> Result<ClaimState> {
        self.core.publisher.changed(seen).await
    }

    async fn renew(&self, deadline: Moment) -> Result<Moment> {
        let core = &self.core;
        if !core.publisher.has_ended() {
            let begin = core.clock.now();
            match core.extend(begin, deadline).await {
                Ok(()) => core.publisher.prove(begin),
                Err(fault) if !core.publisher.has_ended() => {
                    return Err(fault.during(NAME, "renew the claim", self.lock()));
                }
                Err(_) => {}
            }
            core.tidy();
        }
        Ok(core.publisher.proof())
    }

    async fn leave(&self, succeeded: bool, deadline: Moment) -> Result<()> {
        self.send_leave(succeeded, deadline).await.during(NAME, "leave the queue", self.lock())?;
        self.core.publisher.leave();
        if let Some(index) = &self.nested {
            // What is left of it is found stale by the next search.
            drop(deadlock::forget(&self.core.nodes, index, self.core.id, deadline).await);
        }
        Ok(())
    }

    fn anchors(&self) -> Result<Vec<OwnedFd>> {
        Ok(Vec::new())
    }
}
