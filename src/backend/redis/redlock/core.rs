//! What the parts of one claim share, and how it talks to the nodes.

use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::sync::{Mutex as Gate, Notify};
use tokio::task::JoinSet;

use super::majority;
use super::node_claim::{NodeClaim, Phase};
use crate::backend::claim_state::{self, Publisher};
use crate::backend::fault::{Fault, FaultResult};
use crate::backend::redis::keys::LockKeys;
use crate::backend::redis::script::{Script, Step};
use crate::backend::redis::service::Service;
use crate::lock::{ClaimId, ClaimState, ErrorKind, Grant, Mode, Moment, Reason};

/// The nodes of one client.
#[derive(Debug)]
pub(super) struct Nodes {
    pub(super) services: Vec<Arc<Service>>,
    /// For how long a restarted node abstains; no ttl is longer.
    pub(super) max_ttl: Duration,
    /// How many claims this client has: a node tells a connection nothing of what it did itself.
    pub(super) claims: AtomicUsize,
    /// How many times it has entered one.
    pub(super) attempts: AtomicUsize,
}

impl Nodes {
    /// How many are a majority.
    pub(super) fn majority(&self) -> usize {
        majority::of(self.services.len())
    }

    /// Whether the claim holds of which `done` nodes say that they `did` what a holder may ask for, and `without` that they know
    /// nothing of it.
    ///
    /// Errors: it depends on nodes that say neither.
    pub(super) fn verdict(&self, done: usize, without: usize, did: &str) -> FaultResult<bool> {
        let all = self.services.len();
        if done >= self.majority() {
            return Ok(true);
        }
        // Even if all the others have it, they are too few.
        if all - without < self.majority() {
            return Ok(false);
        }
        let reason = format!(
            "{done} of {all} nodes have {did} and {without} know nothing of it, so it may hold or not"
        );
        Err(Fault::unavailable(reason))
    }

    /// What few answers mean.
    pub(super) fn too_few(&self, answered: usize, faults: &[Fault]) -> Fault {
        let all = self.services.len();
        let reasons: Vec<Reason> = faults.iter().map(|fault| fault.reason.clone()).collect();
        let reason = if reasons.is_empty() {
            format!("{answered} of {all} nodes confirm it").into()
        } else {
            Reason::within(&reasons, |reasons| format!("{answered} of {all} nodes can be used ({reasons})"))
        };
        // What no waiting helps against is said as what it is.
        let any = |kind| faults.iter().any(|fault| fault.kind == kind);
        let all_corrupt = !faults.is_empty() && faults.iter().all(|fault| fault.kind == ErrorKind::Corrupt);
        let kind =
            [ErrorKind::Denied, ErrorKind::Invalid, ErrorKind::Unsupported].into_iter().find(|k| any(*k));
        let kind = kind.or(all_corrupt.then_some(ErrorKind::Corrupt));
        // With room for this client they would be enough.
        let full = faults.iter().filter(|fault| fault.kind == ErrorKind::Full).count();
        let kind = kind.or((full > 0 && answered + full >= self.majority()).then_some(ErrorKind::Full));
        Fault::new(kind.unwrap_or(ErrorKind::Unavailable), reason)
    }
}

/// What a step is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Aim {
    /// It gives the entry another ttl.
    Life,
    /// It changes how the claim stands there.
    Change,
    /// It takes the claim out, and its id stays out.
    Leave,
    /// It takes the claim out; the same one may be entered again.
    Withdraw,
    /// It has the node tell of the next change.
    Look,
}

/// One claim at all nodes.
#[derive(Debug)]
pub(super) struct Core {
    /// Its number among those of this client: an attempt that failed is withdrawn while the next one, with the same id,
    /// begins.
    pub(super) attempt: usize,
    pub(super) nodes: Arc<Nodes>,
    pub(super) clock: crate::clock::Clock,
    pub(super) id: ClaimId,
    pub(super) names: Vec<LockKeys>,
    pub(super) mode: Mode,
    pub(super) ttl: Duration,
    /// What others are told of it.
    pub(super) record: String,
    /// Who comes, and whether it takes the place of older waiters that say so too, as scripts take it.
    pub(super) newcomer: [String; 2],
    pub(super) inner: Mutex<Inner>,
    pub(super) publisher: Publisher,
    /// Something was learnt.
    pub(super) stir: Notify,
    /// The same, for those who only look on.
    pub(super) heard: Notify,
    /// Held while something is done about what was learnt.
    pub(super) acting: Gate<()>,
}

/// What changes.
#[derive(Debug)]
pub(super) struct Inner {
    pub(super) node_claims: Vec<NodeClaim>,
    /// The claim's place among those of all nodes, once it is known.
    pub(super) score: Option<u64>,
    pub(super) grant: Option<Grant>,
}

/// The wall clock, in microseconds: a proposal for tokens that are the same at all nodes. Nothing depends on it.
pub(super) fn proposal() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(0)
}

impl Core {
    pub(super) fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long a node may hold up the others.
    pub(super) fn straggle(&self) -> Duration {
        (self.ttl / 20).clamp(Duration::from_millis(50), Duration::from_millis(250))
    }

    /// By when one question to a node must be answered.
    pub(super) fn patience(&self) -> Duration {
        claim_state::patience(self.ttl)
    }

    /// `script` about this claim in all its queues. What it may give to others has `hint` for a token.
    pub(super) fn step(&self, script: &'static Script, hint: u64, more: &[String]) -> Step {
        on_queues(script, &self.names, self.id, hint, more)
    }

    /// A token for whoever comes next.
    pub(super) fn next_token(&self) -> u64 {
        let own = |grant: &Grant| grant.names.iter().map(|granted| granted.token.get() + 1).max();
        proposal().max(self.inner().grant.as_ref().and_then(own).unwrap_or(0))
    }

    /// Has the nodes for which `make` gives a step take it, all at once. Returns when all have answered, some time
    /// after `enough` says so, or at the deadline; what is under way then goes on by itself. Dropping the future ends
    /// that too.
    pub(super) async fn round(
        self: &Arc<Self>,
        aim: Aim,
        deadline: Moment,
        make: impl Fn(usize, &NodeClaim) -> Option<Step>,
        enough: impl Fn(&Self) -> bool,
    ) {
        let steps: Vec<Option<Step>> = self
            .inner()
            .node_claims
            .iter()
            .enumerate()
            .map(|(at, node_claim)| make(at, node_claim))
            .collect();
        let mut under_way = JoinSet::new();
        for (at, step) in steps.into_iter().enumerate() {
            let Some(step) = step else { continue };
            let core = Arc::clone(self);
            // What went wrong is kept with the node claim.
            under_way.spawn(async move { drop(core.exchange(at, &step, aim, deadline).await) });
        }
        let mut until = deadline + Duration::from_millis(5);
        let mut done = false;
        loop {
            tokio::select! {
                biased;
                ended = under_way.join_next() => if ended.is_none() { return },
                () = self.clock.sleep_until(until) => break,
            }
            if !done && enough(self) {
                done = true;
                until = until.min(self.clock.now() + self.straggle());
            }
        }
        under_way.detach_all();
    }

    /// How it stands, as far as is known.
    fn state(&self, inner: &Inner, now: Moment) -> ClaimState {
        let taken_away = |grant: &Grant| majority::taken_away(&inner.node_claims, &grant.names, now);
        if majority::lost(&inner.node_claims, now) || inner.grant.as_ref().is_some_and(taken_away) {
            return self.ended(inner);
        }
        let mut rows = inner
            .node_claims
            .iter()
            .filter(|node_claim| node_claim.phase == Phase::In)
            .flat_map(|node_claim| &node_claim.rows);
        if let Some(by) = rows.clone().find_map(|row| row.base.asked.clone()) {
            return ClaimState::AskedToLeave { by };
        }
        if let Some(grant) = &inner.grant {
            return ClaimState::Held(grant.clone());
        }
        let holder = rows.find_map(|row| row.base.lead.clone()).map(Box::new);
        ClaimState::Waiting { ahead: None, holder }
    }

    fn ended(&self, inner: &Inner) -> ClaimState {
        let noted = |why: &str| {
            let mut rows = inner.node_claims.iter().flat_map(|node_claim| &node_claim.rows);
            rows.find(|row| row.base.gone.as_deref() == Some(why))
        };
        // A single node may have taken it for a waiter that holds by the others.
        let waited = self.publisher.held_at().is_none();
        let superseded = noted("superseded").filter(|row| waited && row.base.by.is_some());
        let noted = superseded.or_else(|| noted("evicted"));
        let (why, by) = noted.map_or((None, None), |row| (row.base.gone.as_deref(), row.base.by.as_ref()));
        self.publisher.ended(why, by, self.ttl)
    }

    /// Tells what was learnt to whoever listens and whoever acts on it.
    pub(super) fn learnt(&self) {
        self.tell();
        self.stir.notify_one();
        self.heard.notify_waiters();
    }

    /// Tells how it stands to whoever listens.
    pub(super) fn tell(&self) {
        let inner = self.inner();
        if !self.is_over() {
            let state = self.state(&inner, self.clock.now());
            if !is_the_same_wait(&self.publisher.state(), &state) {
                self.publisher.publish(state);
            }
        }
    }

    /// Whether nothing can follow.
    pub(super) fn is_over(&self) -> bool {
        self.publisher.is_over()
    }
}

/// Whether both say that it waits for the same one: nodes know different things of that one, and some hear later
/// than others that it has gone.
fn is_the_same_wait(old: &ClaimState, new: &ClaimState) -> bool {
    let (ClaimState::Waiting { holder: old, .. }, ClaimState::Waiting { holder: new, .. }) = (old, new)
    else {
        return false;
    };
    let who = |entry: &crate::lock::Entry| (entry.claim, entry.foreign, entry.label.clone());
    new.is_none() || old.as_deref().map(who) == new.as_deref().map(who)
}

/// `script` on the queues of `names`, about the claim `id`; tokens that it gives are `hint` where that is possible.
pub(super) fn on_queues(
    script: &'static Script,
    names: &[LockKeys],
    id: ClaimId,
    hint: u64,
    more: &[String],
) -> Step {
    let mut arguments = vec![id.to_string()];
    let mut keys = Vec::with_capacity(names.len() * 5);
    for name in names {
        keys.extend([name.lock.clone(), name.queue(), name.holders(), name.counters(), name.claim(id)]);
        arguments.extend([name.claim_prefix(), name.claim_suffix().to_owned()]);
    }
    arguments.push(hint.to_string());
    arguments.extend_from_slice(more);
    Step::Script { script, keys, arguments }
}
