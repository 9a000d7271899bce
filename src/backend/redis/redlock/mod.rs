//! Redlock: locks on several independent Redis servers, of which a majority decides.
//!
//! The algorithm is the one that Redis describes
//! (<https://redis.io/docs/latest/develop/use/patterns/distributed-locks/>): an attempt sets the lock's key at all nodes
//! at once where it is not set, and holds if more than half of them did so, for as long as the ttl lasts from when they
//! were asked; else it is taken back everywhere, and tried again after a random delay, or once the nodes report that the
//! key has changed. The key's value is the claim's record, so it says who holds. There is no queue: nothing is known of
//! those who wait. With slots a lock has that many keys, of which a claim holds one. A node's word counts only if it has
//! run for longer than any ttl: a restarted one may have forgotten what it gave.

mod attempt;
mod claim;
mod config;
mod core;
mod examine;
mod keys;
mod nodes;
mod view;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use async_trait::async_trait;
use redis::Value;

use crate::backend::observe::QueueObserver;
use crate::backend::redis::dial::text;
use crate::backend::redis::fault::NAME;
use crate::backend::redis::keys::Naming;
use crate::backend::redis::row::integer;
use crate::backend::redis::script::Call;
use crate::backend::success;
use crate::backend::{Backend, Capabilities, Claim, Evict, Examination, Observer, TokenStrength};
use crate::clock::Clock;
use crate::lock::{ClaimId, ErrorKind, Holder, LockName, LockStatus, Mode, Moment, Request, Result};
use crate::net::fault::{Fault, FaultResult};
use crate::net::rank::Rank;
use claim::RedlockClaim;
pub use config::RedlockConfig;
use keys::{Keys, Note};
use nodes::{Answer, Nodes, Question, answered};

/// Several independent Redis servers.
#[derive(Debug)]
pub struct RedlockBackend {
    nodes: Arc<Nodes>,
    naming: Naming,
    identity: String,
    /// Those that this client has entered: whoever enters one again gets the same.
    claims: Mutex<HashMap<ClaimId, Weak<RedlockClaim>>>,
}

impl RedlockBackend {
    /// Takes `config`; nothing is connected before the first call.
    pub fn open(config: RedlockConfig) -> Self {
        Self::with_clock(config, Clock::Boot)
    }

    /// As [`RedlockBackend::open`], for a client whose clock may tell another time than the servers'.
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
        let mut claims = self.claims.lock().unwrap_or_else(PoisonError::into_inner);
        claims.retain(|_, claim| claim.strong_count() > 0);
        claims.get(&id).and_then(Weak::upgrade).filter(|claim| !claim.is_over())
    }

    async fn claim(&self, request: &Request, deadline: Moment) -> FaultResult<Arc<RedlockClaim>> {
        let [name] = request.names.as_slice() else {
            let why = "it cannot acquire several locks in one step; use one --name";
            return Err(Fault::new(ErrorKind::Invalid, why));
        };
        if request.mode == Mode::Shared {
            return Err(Fault::new(ErrorKind::Unsupported, "a Redlock has no shared locks"));
        }
        if let Some(claim) = self.known(request.id) {
            return Ok(claim);
        }
        let keys = Keys::of(&self.naming, name)?;
        let claim = Arc::new(RedlockClaim::enter(&self.nodes, keys, request, deadline).await?);
        let mut claims = self.claims.lock().unwrap_or_else(PoisonError::into_inner);
        claims.insert(request.id, Arc::downgrade(&claim));
        Ok(claim)
    }

    /// Does `step` at all nodes, a majority at least, and counts those that found what it was to change, and those that did not.
    async fn change(&self, step: Call, deadline: Moment) -> FaultResult<(usize, usize)> {
        let found = self.nodes.majority_of(Question::by(deadline), vec![step]).await?;
        let count = |n: fn(i64) -> bool| {
            answered(&found).filter_map(|answer| answer.number(0)).filter(|x| n(*x)).count()
        };
        Ok((count(|found| found > 0), count(|found| found == 0)))
    }

    /// As [`Backend::publish`].
    async fn note_label(
        &self,
        name: &LockName,
        id: ClaimId,
        value: &str,
        deadline: Moment,
    ) -> FaultResult<bool> {
        let label = serde_json::to_string(value).unwrap_or_default();
        let step = Keys::of(&self.naming, name)?.note(id, Note::Label, &label);
        let (done, without) = self.change(step, deadline).await?;
        let all = self.nodes.all.len();
        // Even if all the others have it, they are too few.
        if done >= self.nodes.majority() || all - without < self.nodes.majority() {
            return Ok(done >= self.nodes.majority());
        }
        Err(Fault::unavailable(format!(
            "{done} of {all} nodes have taken the value and {without} know nothing of it, so it may hold or not"
        )))
    }

    /// Each node's age by its own clock.
    async fn age_of_success(&self, name: &LockName, deadline: Moment) -> FaultResult<Option<Duration>> {
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

#[async_trait]
impl Backend for RedlockBackend {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            backend: NAME,
            queue: false,
            shared: false,
            token: TokenStrength::BestEffort,
            leased: true,
            renewals_per_ttl: 3,
            look_while_running: true,
            abandoned_bound: Duration::from_secs(1),
        }
    }

    fn identity(&self) -> String {
        self.identity.clone()
    }

    fn connects_as(&self, rank: Rank) {
        for node in &self.nodes.all {
            node.connects_as(rank);
        }
    }

    fn has_connected(&self) -> bool {
        self.nodes.all.iter().any(|node| node.has_connected())
    }

    async fn enter(&self, request: &Request, deadline: Moment) -> Result<Arc<dyn Claim>> {
        Ok(self.claim(request, deadline).await?)
    }

    async fn inspect(&self, name: &LockName, deadline: Moment) -> Result<LockStatus> {
        view::status(&self.nodes, Keys::of(&self.naming, name)?, deadline).await
    }

    async fn list(&self, prefix: &str, deadline: Moment) -> Result<Vec<LockStatus>> {
        view::list(&self.nodes, &self.naming, prefix, deadline).await
    }

    async fn observe(&self, name: &LockName) -> Result<Box<dyn Observer>> {
        let (nodes, naming) = (Arc::clone(&self.nodes), self.naming.clone());
        let watched = view::WatchedLock { nodes, naming, told: Vec::new() };
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
        let keys = Keys::of(&self.naming, name)?;
        let step = match how {
            Evict::Ask => keys.note(id, Note::Asked, &serde_json::to_string(by).unwrap_or_default()),
            Evict::Force => keys.release(id, false),
        };
        Ok(self.change(step, deadline).await?.0 > 0)
    }

    async fn publish(&self, name: &LockName, id: ClaimId, value: &str, deadline: Moment) -> Result<bool> {
        self.note_label(name, id, value, deadline).await
    }

    async fn evict_foreign(&self, name: &LockName, id: ClaimId, deadline: Moment) -> Result<bool> {
        // At every node where the key says the same.
        let step = Keys::of(&self.naming, name)?.evict_foreign(id);
        Ok(self.change(step, deadline).await?.0 > 0)
    }

    async fn examine(&self, deadline: Moment) -> Result<Examination> {
        examine::examine(&self.nodes, deadline).await
    }

    async fn forget(&self, name: &LockName, deadline: Moment) -> Result<()> {
        let step = Call::command(["DEL", &self.naming.of(name)?.counters()]);
        self.nodes.majority_of(Question::by(deadline), vec![step]).await.map(drop)
    }

    async fn last_success(&self, name: &LockName, deadline: Moment) -> Result<Option<Duration>> {
        self.age_of_success(name, deadline).await
    }
}
