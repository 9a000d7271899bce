//! Redlock: locks on several independent Redis servers, of which a majority decides.
//!
//! The algorithm is the one that Redis describes
//! (<https://redis.io/docs/latest/develop/use/patterns/distributed-locks/>): an attempt sets the lock's key at all nodes
//! at once where it is not set, and holds if more than half of them did so, for as long as the ttl lasts from when they
//! were asked; else it is taken back everywhere, and tried again after a random delay, or once the nodes report that the
//! key has changed. The key's value is the claim's record, so it says who holds. There is no queue: nothing is known of
//! those who wait. With slots a lock has that many keys, of which a claim holds one. A node's word counts only if it has
//! run for longer than any ttl: a restarted one may have forgotten what it gave.

mod answers;
mod attempt;
mod claim;
mod config;
mod core;
mod examine;
mod inspect;
mod keys;
mod nodes;
mod observe;
mod refusal;
mod wait;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use async_trait::async_trait;
use redis::Value;

use self::core::Core;
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
use claim::RedlockClaim;
pub use config::RedlockConfig;
use keys::{Keys, beginning};
use nodes::Nodes;

/// Several independent Redis servers.
#[derive(Debug)]
pub struct RedlockBackend {
    nodes: Arc<Nodes>,
    config: RedlockConfig,
    naming: Naming,
    clock: Clock,
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
        let naming = Naming { prefix, group: "redlock:" };
        Self { nodes: Nodes::of(&config, clock), naming, config, clock, claims: Mutex::default() }
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
        let core = Arc::new(Core::of(&self.nodes, Keys::of(&self.naming, name)?, request));
        let refused = core.enter(deadline).await?;
        let claim = Arc::new(RedlockClaim::new(core, refused));
        let mut claims = self.claims.lock().unwrap_or_else(PoisonError::into_inner);
        claims.insert(request.id, Arc::downgrade(&claim));
        Ok(claim)
    }

    /// Does `step` at all nodes; whether one of them found what it was to change. A holder that is asked to leave may do so
    /// before the others are asked.
    async fn change(&self, step: Call, deadline: Moment) -> FaultResult<bool> {
        Ok(self.nodes.changed(deadline, step).await?.contains(&true))
    }

    async fn evict_by(
        &self,
        name: &LockName,
        id: ClaimId,
        how: Evict,
        by: &Holder,
        deadline: Moment,
    ) -> FaultResult<bool> {
        let keys = Keys::of(&self.naming, name)?;
        let step = match how {
            Evict::Ask => keys.note(id, "asked", &serde_json::to_string(by).unwrap_or_default()),
            Evict::Force => keys.release(&beginning(id), false),
        };
        self.change(step, deadline).await
    }

    async fn publish_value(
        &self,
        name: &LockName,
        id: ClaimId,
        value: &str,
        deadline: Moment,
    ) -> FaultResult<bool> {
        let step = Keys::of(&self.naming, name)?.note(id, "label", value);
        let found = self.nodes.changed(deadline, step).await?;
        let done = found.iter().filter(|found| **found).count();
        self.nodes.verdict(done, found.len() - done, "taken the value")
    }

    /// At every node where the key says the same.
    async fn remove_foreign(&self, name: &LockName, id: ClaimId, deadline: Moment) -> FaultResult<bool> {
        self.change(Keys::of(&self.naming, name)?.evict_foreign(id), deadline).await
    }

    /// Each node's age by its own clock.
    async fn age_of_success(&self, name: &LockName, deadline: Moment) -> FaultResult<Option<Duration>> {
        let counters = Keys::of(&self.naming, name)?.counters();
        let steps = vec![Call::command(["HGET", &counters, "success"]), Call::command(["TIME"])];
        let age = |replies: Vec<Value>| {
            let [success, Value::Array(time)] = replies.as_slice() else { return None };
            let part = |n: usize| time.get(n).and_then(integer).and_then(|n| u64::try_from(n).ok());
            let now = Duration::from_secs(part(0)?) + Duration::from_micros(part(1)?);
            success::age(now, Duration::from_micros(text(success)?.parse().ok()?))
        };
        Ok(self.nodes.replies(deadline, steps).await?.into_iter().flatten().filter_map(age).min())
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
        self.config.identity()
    }

    fn has_connected(&self) -> bool {
        self.nodes.all.iter().any(|node| node.service.has_connected())
    }

    async fn enter(&self, request: &Request, deadline: Moment) -> Result<Arc<dyn Claim>> {
        Ok(self.claim(request, deadline).await?)
    }

    async fn inspect(&self, name: &LockName, deadline: Moment) -> Result<LockStatus> {
        inspect::status(&self.nodes, &self.naming, name, deadline).await
    }

    async fn list(&self, prefix: &str, deadline: Moment) -> Result<Vec<LockStatus>> {
        inspect::list(&self.nodes, &self.naming, prefix, deadline).await
    }

    async fn observe(&self, name: &LockName) -> Result<Box<dyn Observer>> {
        // Tracking everything that is read is a matter of whole connections.
        let own = Nodes::of(&self.config, self.clock);
        let watched = observe::WatchedQueue::new(own, self.naming.clone());
        Ok(Box::new(QueueObserver::new(self.clock, name.clone(), watched)))
    }

    async fn evict(
        &self,
        name: &LockName,
        id: ClaimId,
        how: Evict,
        by: &Holder,
        deadline: Moment,
    ) -> Result<bool> {
        self.evict_by(name, id, how, by, deadline).await
    }

    async fn publish(&self, name: &LockName, id: ClaimId, value: &str, deadline: Moment) -> Result<bool> {
        self.publish_value(name, id, value, deadline).await
    }

    async fn evict_foreign(&self, name: &LockName, id: ClaimId, deadline: Moment) -> Result<bool> {
        self.remove_foreign(name, id, deadline).await
    }

    async fn examine(&self, deadline: Moment) -> Result<Examination> {
        examine::examine(&self.nodes, deadline).await
    }

    async fn forget(&self, name: &LockName, deadline: Moment) -> Result<()> {
        let step = Call::command(["DEL", &Keys::of(&self.naming, name)?.counters()]);
        self.nodes.replies(deadline, vec![step]).await.map(drop)
    }

    async fn last_success(&self, name: &LockName, deadline: Moment) -> Result<Option<Duration>> {
        self.age_of_success(name, deadline).await
    }
}
