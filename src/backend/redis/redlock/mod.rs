//! Redlock: locks on several independent Redis servers, of which a majority decides.
//!
//! The algorithm is the one that Redis describes
//! (<https://redis.io/docs/latest/develop/use/patterns/distributed-locks/>). An attempt sets the lock's key at all
//! nodes at once, if it is not set. The claim holds if more than half of them did so, for the ttl from when the
//! requests were sent. Otherwise the attempt is undone everywhere, and repeated after a random delay, or once the nodes
//! report a change of the key.
//!
//! The key's value is the claim's record, so it names the holder. There is no queue: waiters are not recorded. With
//! slots a lock has that many keys, of which a claim holds one. A node votes only if it has run for longer than any
//! ttl: a restarted one may have lost a hold that it granted.

mod claim;
mod config;
mod examine;
mod keys;
mod nodes;

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use async_trait::async_trait;

use crate::backend::claim_state::POLL;
use crate::backend::observe::{LOOK, QueueObserver, Watched};
use crate::backend::redis::client::Client;
use crate::backend::redis::fault::NAME;
use crate::backend::redis::keys::{COUNTERS, Naming};
use crate::backend::redis::names::{QUEUES_AT_ONCE, scan};
use crate::backend::redis::script::Call;
use crate::backend::{Backend, Capabilities, Claim, Evict, Examination, Observer, ServiceClient};
use crate::clock::Clock;
use crate::lock::{ClaimId, ErrorKind, Holder, LockName, LockStatus, Mode, Moment, Request, Result};
use crate::net::fault::{Fault, FaultResult};
use crate::net::rank::Rank;
use crate::sync::locked;
use claim::RedlockClaim;
pub use config::RedlockConfig;
use keys::{ASKED, LABEL, beginning, holds, merge};
use nodes::{Answer, Nodes, Question, answered, count};

/// Several independent Redis servers.
#[derive(Debug)]
pub struct RedlockBackend {
    locks: Locks,
    identity: String,
    /// The claims that this client has entered: entering one again returns the same.
    claims: Mutex<HashMap<ClaimId, Weak<RedlockClaim>>>,
}

/// The locks at the nodes, as they show them.
#[derive(Clone, Debug)]
struct Locks {
    nodes: Arc<Nodes>,
    naming: Naming,
}

impl Locks {
    /// Reads the status of each lock. A hold is left out if it would not have a majority even with all the nodes that
    /// have not answered.
    async fn read(&self, names: &[LockName], deadline: Moment) -> FaultResult<Vec<LockStatus>> {
        let keys = names.iter().map(|name| self.naming.of(name)).collect::<FaultResult<Vec<_>>>()?;
        let steps = keys.iter().map(|keys| keys.inspect(&[])).collect();
        let answers = self.nodes.majority_of(Question::by(deadline), steps).await?;
        let silent = self.nodes.all.len() - answered(&answers).count();
        let status = |(n, name): (usize, &LockName)| {
            let said = answered(&answers).map(|answer| holds(answer, n, &keys[n].lock));
            let said = said.collect::<FaultResult<Vec<_>>>()?;
            let holders = merge(said.iter().flatten(), self.nodes.majority() - silent);
            Ok(LockStatus::of(name, holders, Vec::new()))
        };
        names.iter().enumerate().map(status).collect()
    }

    /// Returns the held locks with names that start with `prefix`.
    async fn list(&self, prefix: &str, deadline: Moment) -> FaultResult<Vec<LockStatus>> {
        let names = |node: Arc<Client>| {
            let naming = self.naming.clone();
            async move { scan(&node, &naming, COUNTERS, deadline).await }
        };
        let scans = self.nodes.each(deadline, |_| false, names).await;
        self.nodes.refuse_too_few(answered(&scans).count(), &scans)?;
        let mut names: BTreeSet<LockName> = answered(&scans).flatten().cloned().collect();
        names.retain(|name| name.as_str().starts_with(prefix));
        let mut found = Vec::new();
        for some in names.into_iter().collect::<Vec<_>>().chunks(QUEUES_AT_ONCE) {
            found.extend(self.read(some, deadline).await?);
        }
        found.retain(|status| !status.is_empty());
        Ok(found)
    }

    /// Executes `step` at all nodes, at least a majority. Returns how many had the key to change, and how many did not.
    async fn change(&self, step: Call, deadline: Moment) -> FaultResult<(usize, usize)> {
        let found = self.nodes.majority_of(Question::by(deadline), vec![step]).await?;
        Ok((count(&found, |changed| changed > 0), count(&found, |changed| changed == 0)))
    }
}

impl Watched for Locks {
    async fn look(&mut self, name: &LockName) -> FaultResult<LockStatus> {
        let deadline = self.nodes.clock.now() + LOOK;
        Ok(self.read(std::slice::from_ref(name), deadline).await?.remove(0))
    }

    async fn notified(&mut self, _: &LockName) -> FaultResult<()> {
        let clock = self.nodes.clock;
        clock.sleep_until(clock.now() + POLL).await;
        Ok(())
    }
}

impl RedlockBackend {
    /// Creates a client with `config`, which connects with the first call.
    pub fn open(config: RedlockConfig) -> Self {
        Self::with_clock(config, Clock::Boot)
    }

    /// Creates a client with a clock that may differ from the servers'; otherwise works like [`RedlockBackend::open`].
    pub fn with_clock(config: RedlockConfig, clock: Clock) -> Self {
        let prefix = config.nodes.first().and_then(|node| node.prefix.clone());
        let (naming, identity) = (Naming { prefix, group: "redlock:" }, config.identity());
        Self { locks: Locks { nodes: Nodes::of(config, clock), naming }, identity, claims: Mutex::default() }
    }
}

impl ServiceClient for RedlockBackend {
    fn capabilities(&self) -> Capabilities {
        Capabilities { queue: false, ..Capabilities::of(NAME) }
    }

    fn identity(&self) -> String {
        self.identity.clone()
    }

    fn connects_as(&self, rank: Rank) {
        for node in &self.locks.nodes.all {
            node.link.connects_as(rank);
        }
    }

    fn has_connected(&self) -> bool {
        self.locks.nodes.all.iter().any(|node| node.link.has_connected())
    }

    fn is_detachable(&self) -> bool {
        false
    }
}

#[async_trait]
impl Backend for RedlockBackend {
    fn client(&self) -> &dyn ServiceClient {
        self
    }

    async fn enter(&self, request: &Request, deadline: Moment) -> Result<Arc<dyn Claim>> {
        let [name] = request.names.as_slice() else {
            let why = "Redlock takes one name; pass one --name";
            return Err(Fault::new(ErrorKind::Invalid, why));
        };
        if request.mode == Mode::Shared {
            return Err(Fault::new(ErrorKind::Unsupported, "Redlock has no shared locks"));
        }
        if request.supersede {
            let why = "a Redlock keeps no queue of waiters, so none can be replaced";
            return Err(Fault::new(ErrorKind::Unsupported, why));
        }
        let known = locked(&self.claims).get(&request.id).and_then(Weak::upgrade);
        if let Some(claim) = known.filter(|claim| claim.is_live()) {
            return Ok(claim);
        }
        let keys = self.locks.naming.of(name)?;
        let claim = Arc::new(RedlockClaim::enter(&self.locks.nodes, keys, request, deadline).await?);
        let mut claims = locked(&self.claims);
        claims.retain(|_, claim| claim.strong_count() > 0);
        claims.insert(request.id, Arc::downgrade(&claim));
        Ok(claim)
    }

    async fn inspect(&self, name: &LockName, deadline: Moment) -> Result<LockStatus> {
        Ok(self.locks.read(std::slice::from_ref(name), deadline).await?.remove(0))
    }

    async fn list(&self, prefix: &str, deadline: Moment) -> Result<Vec<LockStatus>> {
        self.locks.list(prefix, deadline).await
    }

    async fn observe(&self, name: &LockName) -> Result<Box<dyn Observer>> {
        Ok(Box::new(QueueObserver::new(self.locks.nodes.clock, name.clone(), self.locks.clone())))
    }

    async fn evict(
        &self,
        name: &LockName,
        id: ClaimId,
        how: Evict,
        by: &Holder,
        deadline: Moment,
    ) -> Result<bool> {
        let (keys, by) = (self.locks.naming.of(name)?, serde_json::to_string(by).unwrap_or_default());
        let step = match how {
            Evict::Ask => keys.step("note", &beginning(id), None, &[ASKED, &by]),
            Evict::Force => keys.step("release", &beginning(id), None, &[]),
        };
        Ok(self.locks.change(step, deadline).await?.0 > 0)
    }

    async fn publish(&self, name: &LockName, id: ClaimId, value: &str, deadline: Moment) -> Result<bool> {
        let label = serde_json::to_string(value).unwrap_or_default();
        let step = self.locks.naming.of(name)?.step("note", &beginning(id), None, &[LABEL, &label]);
        let (done, without) = self.locks.change(step, deadline).await?;
        let (all, majority) = (self.locks.nodes.all.len(), self.locks.nodes.majority());
        // Even with all the other nodes they would be too few.
        if done >= majority || all - without < majority {
            return Ok(done >= majority);
        }
        Err(Fault::unavailable(format!(
            "{done} of {all} nodes have taken the value and {without} have not, so it may or may not hold"
        )))
    }

    async fn evict_foreign(&self, name: &LockName, id: ClaimId, deadline: Moment) -> Result<bool> {
        // At every node with an equal value of the key.
        let step = self.locks.naming.of(name)?.step("evict_foreign", "", None, &[&id.to_string()]);
        Ok(self.locks.change(step, deadline).await?.0 > 0)
    }

    async fn examine(&self, deadline: Moment) -> Result<Examination> {
        examine::examine(&self.locks.nodes, deadline).await
    }

    async fn forget(&self, name: &LockName, deadline: Moment) -> Result<()> {
        let step = Call::command(["DEL", &self.locks.naming.of(name)?.side(COUNTERS)]);
        self.locks.change(step, deadline).await.map(drop)
    }

    /// The age by each node's own clock, and of these the least.
    async fn last_success(&self, name: &LockName, deadline: Moment) -> Result<Option<Duration>> {
        let step = self.locks.naming.of(name)?.step("age", "", None, &[]);
        let found = self.locks.nodes.majority_of(Question::by(deadline), vec![step]).await?;
        Ok(answered(&found).filter_map(Answer::number).min().map(Duration::from_micros))
    }
}
