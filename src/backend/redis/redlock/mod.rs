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

mod attempt;
mod claim;
mod config;
mod examine;
mod keys;
mod nodes;
mod view;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use async_trait::async_trait;
use redis::Value;

use crate::backend::observe::QueueObserver;
use crate::backend::redis::dial::text;
use crate::backend::redis::fault::NAME;
use crate::backend::redis::keys::Naming;
use crate::backend::redis::rows::integer;
use crate::backend::redis::script::Call;
use crate::backend::success;
use crate::backend::{Backend, Capabilities, Claim, Evict, Examination, Observer, ServiceClient};
use crate::clock::Clock;
use crate::lock::{ClaimId, ErrorKind, Holder, LockName, LockStatus, Mode, Moment, Request, Result};
use crate::net::fault::{Fault, FaultResult};
use crate::net::rank::Rank;
use crate::sync::locked;
use claim::RedlockClaim;
pub use config::RedlockConfig;
use keys::{Note, beginning};
use nodes::{Answer, Nodes, Question, answered};

/// Several independent Redis servers.
#[derive(Debug)]
pub struct RedlockBackend {
    nodes: Arc<Nodes>,
    naming: Naming,
    identity: String,
    /// The claims that this client has entered: entering one again returns the same.
    claims: Mutex<HashMap<ClaimId, Weak<RedlockClaim>>>,
}

impl RedlockBackend {
    /// Creates a client with `config`, which connects with the first call.
    pub fn open(config: RedlockConfig) -> Self {
        Self::with_clock(config, Clock::Boot)
    }

    /// Creates a client with a clock that may differ from the servers'; otherwise works like [`RedlockBackend::open`].
    pub fn with_clock(config: RedlockConfig, clock: Clock) -> Self {
        let prefix = config.nodes.first().and_then(|node| node.prefix.clone());
        Self {
            naming: Naming { prefix, group: "redlock:" },
            identity: config.identity(),
            nodes: Nodes::of(config, clock),
            claims: Mutex::default(),
        }
    }

    fn known(&self, id: ClaimId) -> Option<Arc<RedlockClaim>> {
        let mut claims = locked(&self.claims);
        claims.retain(|_, claim| claim.strong_count() > 0);
        claims.get(&id).and_then(Weak::upgrade).filter(|claim| !claim.is_over())
    }

    /// Executes `step` at all nodes, at least a majority. Returns how many had the key to change, and how many did not.
    async fn change(&self, step: Call, deadline: Moment) -> FaultResult<(usize, usize)> {
        let found = self.nodes.majority_of(Question::by(deadline), vec![step]).await?;
        let count = |n: fn(i64) -> bool| {
            answered(&found).filter_map(|answer| answer.number(0)).filter(|x| n(*x)).count()
        };
        Ok((count(|found| found > 0), count(|found| found == 0)))
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
        for node in &self.nodes.all {
            node.link.connects_as(rank);
        }
    }

    fn has_connected(&self) -> bool {
        self.nodes.all.iter().any(|node| node.link.has_connected())
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
            let why = "it cannot acquire several locks in one step; use one --name";
            return Err(Fault::new(ErrorKind::Invalid, why));
        };
        if request.mode == Mode::Shared {
            return Err(Fault::new(ErrorKind::Unsupported, "a Redlock has no shared locks"));
        }
        if request.supersede {
            let why = "a Redlock keeps no queue of waiters, so none can be replaced";
            return Err(Fault::new(ErrorKind::Unsupported, why));
        }
        if let Some(claim) = self.known(request.id) {
            return Ok(claim);
        }
        let keys = self.naming.of(name)?;
        let claim = Arc::new(RedlockClaim::enter(&self.nodes, keys, request, deadline).await?);
        let mut claims = locked(&self.claims);
        claims.insert(request.id, Arc::downgrade(&claim));
        Ok(claim)
    }

    async fn inspect(&self, name: &LockName, deadline: Moment) -> Result<LockStatus> {
        view::status(&self.nodes, self.naming.of(name)?, deadline).await
    }

    async fn list(&self, prefix: &str, deadline: Moment) -> Result<Vec<LockStatus>> {
        view::list(&self.nodes, &self.naming, prefix, deadline).await
    }

    async fn observe(&self, name: &LockName) -> Result<Box<dyn Observer>> {
        let (nodes, naming) = (Arc::clone(&self.nodes), self.naming.clone());
        let watched = view::WatchedLock { nodes, naming, heard: Vec::new() };
        Ok(Box::new(QueueObserver::new(self.nodes.clock, name.clone(), watched)))
    }

    async fn evict(
        &self,
        name: &LockName,
        id: ClaimId,
        how: Evict,
        by: &Holder,
        deadline: Moment,
    ) -> Result<bool> {
        let keys = self.naming.of(name)?;
        let step = match how {
            Evict::Ask => keys.note(id, Note::Asked, &serde_json::to_string(by).unwrap_or_default()),
            Evict::Force => keys.release(&beginning(id), None),
        };
        Ok(self.change(step, deadline).await?.0 > 0)
    }

    async fn publish(&self, name: &LockName, id: ClaimId, value: &str, deadline: Moment) -> Result<bool> {
        let label = serde_json::to_string(value).unwrap_or_default();
        let step = self.naming.of(name)?.note(id, Note::Label, &label);
        let (done, without) = self.change(step, deadline).await?;
        let all = self.nodes.all.len();
        // Even with all the other nodes they would be too few.
        if done >= self.nodes.majority() || all - without < self.nodes.majority() {
            return Ok(done >= self.nodes.majority());
        }
        Err(Fault::unavailable(format!(
            "{done} of {all} nodes have taken the value and {without} have not, so it may or may not hold"
        )))
    }

    async fn evict_foreign(&self, name: &LockName, id: ClaimId, deadline: Moment) -> Result<bool> {
        // At every node with an equal value of the key.
        let step = self.naming.of(name)?.evict_foreign(id);
        Ok(self.change(step, deadline).await?.0 > 0)
    }

    async fn examine(&self, deadline: Moment) -> Result<Examination> {
        examine::examine(&self.nodes, deadline).await
    }

    async fn forget(&self, name: &LockName, deadline: Moment) -> Result<()> {
        let step = Call::command(["DEL", &self.naming.of(name)?.counters()]);
        self.nodes.majority_of(Question::by(deadline), vec![step]).await.map(drop)
    }

    /// The age by each node's own clock, and of these the least.
    async fn last_success(&self, name: &LockName, deadline: Moment) -> Result<Option<Duration>> {
        let counters = self.naming.of(name)?.counters();
        let steps = vec![Call::command(["HGET", &counters, "success"]), Call::command(["TIME"])];
        let age = |answer: &Answer| {
            let [success, Value::Array(time)] = answer.replies.as_slice() else { return None };
            let part = |n: usize| time.get(n).and_then(integer).and_then(|n| u64::try_from(n).ok());
            let now = Duration::from_secs(part(0)?) + Duration::from_micros(part(1)?);
            success::age(now, Duration::from_micros(text(success)?.parse().ok()?))
        };
        let found = self.nodes.majority_of(Question::by(deadline), steps).await?;
        Ok(answered(&found).filter_map(age).min())
    }
}
